"""The thread that reports.

Decides when a report is tried again and what of the time of a close belongs to the goodbye. Knows
nothing of drivers. What fails is counted and warned of, merged back and said by the next report.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from worker_sdk.runtime.complaints import complain, trouble
from worker_sdk.runtime.member import Member
from worker_sdk.runtime.timetable import Timetable
from worker_sdk.transports.base import ReportSink, SendError, names_of
from worker_sdk.transports.threads import Bell, GuestThread, Latch
from worker_sdk.wire.usage import MemberState, UsageBatch

RETRY_SECONDS: Final = 0.5
SEND_SECONDS: Final = 10.0
LOAN_SECONDS: Final = 1.0
"""Where points are lent, a member looks this often whether it has run out."""

GRACE_SECONDS: Final = 0.25
"""So long at most a report under way may end by itself when the client closes."""

SINK_CLOSE_SECONDS: Final = 1.0
CLOSE_MARGIN_SECONDS: Final = 0.2
"""What of the time of a close is left for the thread's own end."""

SINK_CLOSE_LEAST_SECONDS: Final = 0.1
"""What of that margin the sink has where the goodbye took all the time."""

CLOSE_LEAST_SECONDS: Final = 0.05


class Reporter:
    """A member's hello, its reports in turn and out of turn, and its goodbye.

    Args:
        member: whose.
        sink: where they go.
        timetable: when.
        on_loan: called where a report out of turn was delivered: points may come of it.
    """

    def __init__(
        self,
        member: Member,
        sink: ReportSink,
        timetable: Timetable,
        on_loan: Callable[[], object],
    ) -> None:
        self._member = member
        self._sink = sink
        self._timetable = timetable
        self._on_loan = on_loan
        self._send_seconds = min(SEND_SECONDS, max(1.0, timetable.period_seconds / 3))
        self._bell = Bell()
        self._thread = GuestThread("permit-reporter", self._run)
        self._ends_mono: float | None = None
        self._ended = Latch()
        self._lock = threading.RLock()  # a handler's close may come amid another one's
        self._may_be_interrupted = False
        self._is_delivered = False
        self._until_turn_seconds = timetable.first_report_seconds

    def start(self) -> None:
        """Begin.

        Raises:
            RuntimeError: if the system gives no thread (any more).
        """
        self._thread.start()

    def end(self, timeout_seconds: float) -> None:
        """Begin the goodbye, which has so long; nothing waits for it."""
        if self._ends_mono is None:
            seconds = max(CLOSE_LEAST_SECONDS, timeout_seconds - CLOSE_MARGIN_SECONDS)
            self._ends_mono = time.monotonic() + seconds
        self._bell.ring()

    def finish(self, timeout_seconds: float) -> bool:
        """Have the goodbye said within the time; say whether it was delivered.

        A report under way has a short while to end by itself. To be called again by whom it was
        interrupted: it goes on waiting.
        """
        deadline = time.monotonic() + timeout_seconds
        self.end(timeout_seconds)
        if self._thread.ident is None:  # it has not begun
            self._member.goodbye()
            return False
        # Not by joining: a join that Ctrl-C interrupts takes the thread for ended.
        self._ended.wait(min(GRACE_SECONDS, timeout_seconds / 4))
        with self._lock:
            if self._may_be_interrupted:
                self._sink.interrupt()
        if not self._ended.wait(max(0.0, deadline - time.monotonic())):
            self._member.goodbye()  # it hangs; who waits for permits is not to
        return self._is_delivered

    # -- the thread

    @property
    def _is_closing(self) -> bool:
        return self._ends_mono is not None

    def _run(self) -> None:
        try:
            self._take(self._greet)
            while not self._is_closing:
                self._take(self._report_in_turn)
            self._take(self._say_goodbye)
        finally:
            self._ended.open()

    def _take(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:  # the host's program is not to notice
            trouble(self._member, "reporter", error)
            self._bell.wait(RETRY_SECONDS)

    def _greet(self) -> None:
        self._persist(lambda: self._send(self._member.hello(), self._send_seconds), None)

    def _report_in_turn(self) -> None:
        pause_seconds = self._until_turn_seconds(self._member.clock.wall_ms() / 1000)
        self._until_turn_seconds = self._timetable.until_report_seconds
        self._rest(pause_seconds)
        # A failed flush is tried again, but the next one's turn is kept.
        self._persist(self._flush, give_up_after_seconds=self._timetable.period_seconds / 2)

    def _rest(self, seconds: float) -> None:
        """Wait for the next turn; report meanwhile where points are lent and this one runs out."""
        ends_mono = time.monotonic() + seconds
        while not self._is_closing and (left_seconds := ends_mono - time.monotonic()) > 0:
            lends = self._member.may_borrow()
            look_seconds = LOAN_SECONDS if lends else self._timetable.period_seconds / 12
            if self._bell.wait(min(left_seconds, look_seconds)):
                return  # the client closes
            batch = self._member.run_out() if lends else None
            if batch is not None:
                self._borrow(batch)

    def _borrow(self, batch: UsageBatch) -> None:
        # Undelivered it is not kept: the next report in turn says all of it.
        try:
            self._deliver(batch, self._send_seconds)
        except SendError as error:
            self._member.failed("loan", error.cause)
        except Exception as error:
            self._member.failed("loan", names_of(error))
        else:
            self._on_loan()

    def _persist(self, attempt: Callable[[], bool], give_up_after_seconds: float | None) -> None:
        started_mono = time.monotonic()
        pause_seconds = RETRY_SECONDS
        failures = 0
        while not self._is_closing and not attempt():
            tried_seconds = time.monotonic() - started_mono
            if give_up_after_seconds is not None and tried_seconds > give_up_after_seconds:
                return
            failures += 1
            self._bell.wait(self._timetable.retry_seconds(pause_seconds, failures))
            pause_seconds = min(pause_seconds * 2, max(1.0, self._timetable.period_seconds / 12))

    def _flush(self) -> bool:
        batch = self._member.drain()
        return batch is None or self._send(batch, self._send_seconds)

    def _send(self, batch: UsageBatch, timeout_seconds: float) -> bool:
        try:
            self._deliver(batch, timeout_seconds)
        except SendError as error:
            self._member.undelivered(batch, error.undelivered, error.cause)
            complain(self._member, "reports", error)
            return False
        except Exception as error:
            self._member.undelivered(batch, batch, names_of(error))
            complain(self._member, "reports", error)
            return False
        self._member.delivered(batch)
        return True

    def _deliver(self, batch: UsageBatch, timeout_seconds: float) -> None:
        with self._lock:
            self._may_be_interrupted = batch.state is not MemberState.LEAVING
        try:
            self._sink.send(batch, timeout_seconds)
        finally:
            with self._lock:
                self._may_be_interrupted = False

    def _say_goodbye(self) -> None:
        ends_mono = time.monotonic() if self._ends_mono is None else self._ends_mono
        batch = self._member.goodbye()
        left_seconds = ends_mono - time.monotonic()
        if left_seconds > 0:
            self._is_delivered = self._send(batch, left_seconds)
        left_seconds = min(SINK_CLOSE_SECONDS, ends_mono - time.monotonic())
        self._sink.close(max(SINK_CLOSE_LEAST_SECONDS, left_seconds))
