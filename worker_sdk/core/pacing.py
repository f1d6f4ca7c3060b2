"""Release of a window's permits within the window.

Decides how many of a window's permits are released at an instant, and when the next ones are.
Knows nothing of shares, of what was spent, or of who waits.

The formula. A window of W ms with a guard of g ms is open in ``[g, W - g)``, O = W - 2g ms long;
outside nothing is granted. With pacing ``window`` all G permits are released as it opens. With
pacing ``even`` a burst B = ceil(G / 10) is, and the others follow linearly over the ramp
R = floor(0.9 * O): ``released(e) = min(G, B + floor((G - B) * e / R))``, e being the ms since it
opened. The last tenth is left free so that a worker that sends one by one can still spend the last
permits. What is released and not spent stays until the window closes, so in any stretch of W ms
one member spends at most G of the window that ends in it plus ``released`` of the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from worker_sdk.wire.distribution import Pacing

BURST_DIVISOR: Final = 10
"""The first tenth of a window's permits, at least one, is released at once."""

RAMP_TENTHS: Final = 9
"""Everything is released when this many tenths of the open part have passed."""


@dataclass(frozen=True, slots=True)
class Release:
    """One window's release.

    Attributes:
        opens_ms: Unix instant from which permits are granted.
        closes_ms: Unix instant from which none are; not after ``opens_ms`` if the guard is so wide
            that the window never opens.
        permits: permits of the whole window.
        pacing: how they are released.
    """

    opens_ms: int
    closes_ms: int
    permits: int
    pacing: Pacing

    def is_open(self, now_ms: int) -> bool:
        """Say whether ``now_ms`` lies in the open part."""
        return self.opens_ms <= now_ms < self.closes_ms

    def released(self, now_ms: int) -> int:
        """Return the permits released by ``now_ms``, in all, whether or not spent.

        After the close it is what had been released by then, which is everything if the window
        ever opened.
        """
        if now_ms < self.opens_ms or self.closes_ms <= self.opens_ms:
            return 0
        if self.pacing is Pacing.WINDOW or now_ms >= self.closes_ms:
            return self.permits
        burst = self._burst()
        ramp_ms = self._ramp_ms()
        if ramp_ms <= 0:
            return self.permits
        elapsed_ms = now_ms - self.opens_ms
        return min(self.permits, burst + (self.permits - burst) * elapsed_ms // ramp_ms)

    def reaches_at_ms(self, permits: int) -> int | None:
        """Return the first instant at which ``permits`` are released; None if never."""
        if permits > self.permits or self.closes_ms <= self.opens_ms:
            return None
        burst = self._burst()
        if self.pacing is Pacing.WINDOW or permits <= burst:
            return self.opens_ms
        ramp_ms = self._ramp_ms()
        return self.opens_ms + -(-(permits - burst) * ramp_ms // (self.permits - burst))

    def _burst(self) -> int:
        return -(-self.permits // BURST_DIVISOR)

    def _ramp_ms(self) -> int:
        return (self.closes_ms - self.opens_ms) * RAMP_TENTHS // 10
