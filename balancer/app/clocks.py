"""Two clocks: the machine's, which must not step by itself, and one that all replicas share.

Windows go by the machine's clock. Decides which of two times is believed after it was set: the old
one carried on by the clock that never steps, or the new one; so a replica whose clock is set ten
minutes ahead by mistake goes on as before. One whose clock is wrong from the start plans nothing
(`balancer.app.clock_check`), since nobody can know which of two clocks is right; but it may read.
Reports live and release by the shared clock, PostgreSQL's, so that it does not matter which replica
reads them.
"""

from __future__ import annotations

import logging
from typing import Final

from balancer.ports import Clock

STEP_MS: Final = 1_000
"""A smaller step is the ordinary keeping of time (NTP), and is followed."""

APART_MS: Final = 5_000
"""Two clocks that differ by no more agree."""

_log = logging.getLogger("balancer.clock")


def _certainly_ahead_ms(time_ms: int, shared_ms: int, took_ms: int) -> int:
    """Return how far a time is ahead of a shared one that was told in the last ``took_ms``."""
    return max(time_ms - shared_ms - took_ms, 0) or min(time_ms - shared_ms, 0)


class SharedClock:
    """`balancer.ports.Clock` that shows what all replicas share, as far as it was told.

    It begins as the machine's, and each comparison moves it only as far as it was certainly wrong.

    Attributes:
        is_told: whether it was compared once.
    """

    def __init__(self, clock: Clock) -> None:
        self.is_told = False
        self._clock = clock
        self._ahead_ms = clock.now_ms() - clock.monotonic_ms()

    def monotonic_ms(self) -> int:
        """See the port."""
        return self._clock.monotonic_ms()

    def now_ms(self) -> int:
        """See the port."""
        return self._clock.monotonic_ms() + self._ahead_ms

    def compare(self, shared_ms: int, took_ms: int) -> None:
        """Take note of the shared time that was told just now, after so long."""
        least_ms = shared_ms - self._clock.monotonic_ms()
        self._ahead_ms = min(max(self._ahead_ms, least_ms), least_ms + took_ms)
        self.is_told = True


class SteadyClock:
    """`balancer.ports.Clock` on another one; `compare` is called now and then.

    Attributes:
        shared: the clock by which reports live.
    """

    def __init__(self, clock: Clock) -> None:
        self.shared = SharedClock(clock)
        self._clock = clock
        self._ahead_ms = clock.now_ms() - clock.monotonic_ms()
        self._told = False

    def monotonic_ms(self) -> int:
        """See the port."""
        return self._clock.monotonic_ms()

    def now_ms(self) -> int:
        """See the port."""
        shown_ms, carried_ms, step_ms = self._look()
        return carried_ms if abs(step_ms) > STEP_MS else shown_ms

    def _look(self) -> tuple[int, int, int]:
        """Return (time shown, time carried on, how far the one was certainly set off the other).

        A small difference is followed. The two clocks cannot be read at one instant, so what the
        time between may explain is none.
        """
        before_ms = self._clock.monotonic_ms() + self._ahead_ms
        shown_ms = self._clock.now_ms()
        carried_ms = self._clock.monotonic_ms() + self._ahead_ms
        step_ms = max(shown_ms - carried_ms, 0) or min(shown_ms - before_ms, 0)
        if abs(step_ms) <= STEP_MS:
            self._ahead_ms += step_ms
        return shown_ms, carried_ms, step_ms

    def compare(self, shared_ms: int, took_ms: int) -> int:
        """Follow a step where the shared clock shows the same; else say once what is wrong.

        Args:
            shared_ms: time by the clock that all replicas share.
            took_ms: how long it took to ask for it.

        Returns:
            How far the machine's clock is certainly ahead; below 0 where it is behind.
        """
        self.shared.compare(shared_ms, took_ms)
        shown_ms, carried_ms, step_ms = self._look()
        ahead_ms = _certainly_ahead_ms(shown_ms, shared_ms, took_ms)
        if took_ms > APART_MS:
            return ahead_ms  # after so long the comparison tells nothing
        has_stepped = abs(step_ms) > STEP_MS
        apart_ms = shown_ms - shared_ms
        if abs(apart_ms) <= APART_MS + took_ms:
            self._told = False
            believed_ahead_ms = _certainly_ahead_ms(carried_ms, shared_ms, took_ms)
            if has_stepped and abs(ahead_ms) < abs(believed_ahead_ms):
                self._ahead_ms += step_ms
                _log.warning(
                    "this machine's clock was set by %+.1f s and agrees with PostgreSQL's now: "
                    "it is followed",
                    step_ms / 1000,
                    extra={"action": "clock"},
                )
        elif not self._told:
            self._told = True
            _log.error(
                "this machine's clock is %+.0f s from PostgreSQL's; %s",
                apart_ms / 1000,
                "it was set, and the time before is carried on until they agree"
                if has_stepped
                else "it plans nothing where that is too much, and reports live by "
                "PostgreSQL's: keep both by NTP; if all replicas say so, PostgreSQL's is wrong",
                extra={"action": "clock"},
            )
        return ahead_ms
