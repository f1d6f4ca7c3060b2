"""A clock that does not follow a step of the machine's clock unless the shared clock did as well.

Decides which of two times is believed after the machine's clock was set: the old one carried on by
the clock that never steps, or the new one. Windows, lives of reports and releases depend on it: a
replica whose clock is set ten minutes ahead by mistake goes on as before. Whose clock is wrong from
the start is told so and nothing more, for nobody can know which of two clocks is right.
"""

from __future__ import annotations

import logging
from typing import Final

from balancer.ports import Clock

STEP_MS: Final = 1_000
"""Less than this is what keeping time looks like, and is followed."""

APART_MS: Final = 5_000
"""Two clocks that differ by no more agree."""

_log = logging.getLogger("balancer.clock")


class SteadyClock:
    """`balancer.ports.Clock` on another one; `compare` is called now and then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = clock.now_ms() - clock.monotonic_ms()
        self._told = False

    def monotonic_ms(self) -> int:
        """See the port."""
        return self._clock.monotonic_ms()

    def now_ms(self) -> int:
        """See the port."""
        shown_ms = self._clock.now_ms()
        carried_ms = self._clock.monotonic_ms() + self._ahead_ms
        if abs(shown_ms - carried_ms) > STEP_MS:
            return carried_ms
        self._ahead_ms += shown_ms - carried_ms
        return shown_ms

    def compare(self, shared_ms: int, took_ms: int) -> None:
        """Follow a step where the shared clock shows the same; else say once what is wrong.

        Args:
            shared_ms: time by the clock that all replicas share.
            took_ms: how long it took to ask for it.
        """
        if took_ms > APART_MS:
            return  # it may say anything
        shown_ms, believed_ms = self._clock.now_ms(), self.now_ms()
        has_stepped = believed_ms != shown_ms
        apart_ms = shown_ms - shared_ms
        if abs(apart_ms) <= APART_MS + took_ms:
            self._told = False
            if has_stepped and abs(apart_ms) < abs(believed_ms - shared_ms):
                self._ahead_ms = shown_ms - self._clock.monotonic_ms()
                _log.warning("this machine's clock was set right", extra={"action": "clock"})
        elif not self._told:
            self._told = True
            _log.error(
                "this machine's clock is %+.0f s from PostgreSQL's; %s",
                apart_ms / 1000,
                "it was set, and the time before is carried on until they agree"
                if has_stepped
                else "shares may be planned for the wrong windows: keep both by NTP",
                extra={"action": "clock"},
            )
