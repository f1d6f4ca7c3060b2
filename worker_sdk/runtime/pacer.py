"""The thread that serves who waits.

Decides only when to come again: when the next waiter's permits are due, and at least every second,
as the wall clock may step. Not needed for `try_acquire`.
"""

from __future__ import annotations

from typing import Final

from worker_sdk.runtime.complaints import trouble
from worker_sdk.runtime.member import Member
from worker_sdk.transports.threads import Bell, GuestThread

PACER_SECONDS: Final = 1.0


class Pacer:
    """Wakes waiters whose permits are due.

    Args:
        member: whose waiters.
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        self._is_closing = False
        self._bell = Bell()
        self._thread = GuestThread("permit-pacer", self._run)

    def start(self) -> None:
        """Begin.

        Raises:
            RuntimeError: if the system gives no thread (any more).
        """
        self._thread.start()

    def call(self) -> None:
        """Have the waiters looked at, from any thread."""
        self._bell.ring()

    def stop(self) -> None:
        """End soon; nothing waits for it."""
        self._is_closing = True
        self._bell.ring()

    def _run(self) -> None:
        while not self._is_closing:
            next_ms: int | None = None
            try:
                self._member.mind_clock()
                next_ms = self._member.pump()
            except Exception as error:
                trouble(self._member, "pacer", error)
            seconds = PACER_SECONDS if next_ms is None else min(next_ms / 1000, PACER_SECONDS)
            self._bell.wait(seconds)
