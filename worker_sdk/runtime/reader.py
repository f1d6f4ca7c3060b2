"""The thread that reads shares.

Decides when to look again. Knows nothing of drivers. What fails is counted and warned of; permits
go on by what is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from worker_sdk.runtime.complaints import complain
from worker_sdk.runtime.member import Member
from worker_sdk.runtime.timetable import Timetable
from worker_sdk.transports.base import ShareSource, names_of
from worker_sdk.transports.threads import Bell, GuestThread

NEWCOMER_SECONDS: Final = 0.5
"""A newcomer looks this often until it has an entry, for its first periods."""

NEWCOMER_PERIODS: Final = 3
WAIT_SECONDS: Final = 25.0
LOAN_LOOKS: Final = 12
"""For so many looks, half a second apart, it waits for what comes of a report out of turn."""


class Reader:
    """A member's looks at the distribution.

    Args:
        member: whose.
        source: where the shares come from.
        timetable: when.
        on_shares: called where there was something new.
    """

    def __init__(
        self,
        member: Member,
        source: ShareSource,
        timetable: Timetable,
        on_shares: Callable[[], object],
    ) -> None:
        self._member = member
        self._source = source
        self._timetable = timetable
        self._on_shares = on_shares
        self._soon_seconds = max(NEWCOMER_SECONDS, timetable.period_seconds / 30)
        self._started_mono = time.monotonic()
        self._loan_looks = 0
        self._is_closing = False
        self._bell = Bell()
        self._thread = GuestThread("permit-reader", self._run)

    def start(self) -> None:
        """Begin.

        Raises:
            RuntimeError: if the system gives no thread (any more).
        """
        self._thread.start()

    def expect_loan(self) -> None:
        """Look at once, and for some time often."""
        self._loan_looks = LOAN_LOOKS
        self._bell.ring()

    def stop(self) -> None:
        """End soon; nothing waits for it."""
        self._is_closing = True
        self._bell.ring()
        self._source.interrupt()

    # -- the thread

    def _run(self) -> None:
        failures = 0
        while not self._is_closing:
            started_mono = time.monotonic()
            waits = self._source.can_wait
            failed = self._look(self._hold_seconds() if waits else 0.0)
            failures = failures + 1 if failed else 0
            took_seconds = time.monotonic() - started_mono
            if not self._is_closing:
                self._bell.wait(self._until_read_seconds(failures, waits, took_seconds))

    def _look(self, hold_seconds: float) -> bool:
        """Look once; say whether something failed."""
        try:
            reading = self._source.read(self._member.held_epochs(), hold_seconds)
            if self._is_closing:
                return False
            if self._member.take_reading(reading):
                self._on_shares()
            if reading.failures:
                self._member.warn(
                    f"distribution:{reading.failures[0]}",
                    "distribution: not all could be read: %s",
                    reading.failures,
                )
            return bool(reading.failures)
        except Exception as error:
            if not self._is_closing:
                self._member.failed("read", names_of(error))
                complain(self._member, "distribution", error)
            return True

    def _hold_seconds(self) -> float:
        return min(WAIT_SECONDS, max(1.0, self._timetable.period_seconds))

    def _until_read_seconds(self, failures: int, waits: bool, took_seconds: float) -> float:
        newcomer_seconds = self._timetable.period_seconds * NEWCOMER_PERIODS
        if failures:
            return self._timetable.retry_seconds(self._soon_seconds, failures)
        if waits:
            # The other side says when to look; this only keeps one that does not wait from being
            # asked without pause.
            return max(0.0, NEWCOMER_SECONDS - took_seconds)
        if self._loan_looks:
            self._loan_looks -= 1
            return NEWCOMER_SECONDS
        if self._member.lacks_entry():
            is_new = time.monotonic() - self._started_mono < newcomer_seconds
            return NEWCOMER_SECONDS if is_new else self._soon_seconds
        turn_seconds = self._timetable.until_read_seconds(self._member.clock.wall_ms() / 1000)
        covered_seconds = self._member.covered_for_ms() / 1000
        # If the documents end before the next turn, theirs was missed: look again soon.
        return turn_seconds if turn_seconds < covered_seconds else self._soon_seconds
