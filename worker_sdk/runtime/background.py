"""The work behind a client, on three threads of its own.

Decides how they begin and end together. One reports, one reads, one serves who waits: none holds
up another, none raises into the host program, and none is needed for `try_acquire`.
"""

from __future__ import annotations

from typing import Final

from worker_sdk.runtime.member import Member
from worker_sdk.runtime.pacer import Pacer
from worker_sdk.runtime.reader import Reader
from worker_sdk.runtime.reporter import Reporter
from worker_sdk.runtime.shelter import ShelteredSink, ShelteredSource
from worker_sdk.runtime.timetable import make_timetable
from worker_sdk.transports.base import ReportSink, ShareSource

FORSAKEN_SECONDS: Final = 5.0
"""What the goodbye of a life has that nobody came to know."""


class Background:
    """The threads of one member.

    Args:
        member: whom they serve.
        sink: where reports go.
        source: where shares come from.
        flush_seconds: period of reports.
    """

    def __init__(
        self, member: Member, sink: ReportSink, source: ShareSource, flush_seconds: float
    ) -> None:
        self._member = member
        timetable = make_timetable(flush_seconds, member.instance)
        self._pacer = Pacer(member)
        self._reader = Reader(
            member, ShelteredSource(source), timetable, on_shares=self._pacer.call
        )
        self._reporter = Reporter(
            member, ShelteredSink(sink), timetable, on_loan=self._reader.expect_loan
        )

    def start(self) -> None:
        """Start the threads.

        Raises:
            RuntimeError: if the system gives no thread (any more); none runs then.
        """
        self._member.on_waiting = self._pacer.call
        try:
            self._pacer.start()
            self._reader.start()
            self._reporter.start()  # the last: what it has begun to send would be in vain
        except BaseException:  # by Ctrl-C, too
            self.forsake()
            raise

    def forsake(self) -> None:
        """Have the work ended, with a goodbye if it has begun; nothing waits for it."""
        self._pacer.stop()
        self._reader.stop()
        self._reporter.end(FORSAKEN_SECONDS)

    def close(self, timeout_seconds: float) -> bool:
        """End the work within the time; say whether the goodbye was delivered.

        Called again, it sees to its end what is under way, or was interrupted wherever it was.
        """
        try:
            self._pacer.stop()
            self._reader.stop()
        finally:  # Ctrl-C may come anywhere
            is_delivered = self._reporter.finish(timeout_seconds)
        return is_delivered
