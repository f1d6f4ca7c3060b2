"""What windows release, and what was released in all: the ``granted`` of a report.

Decides that what a window releases is counted once, whatever documents come and whichever way the
clock steps. Knows nothing of what was spent.
"""

from __future__ import annotations

from typing import Final

from worker_sdk.core.ladder import Ladder, Standing
from worker_sdk.core.pacing import Release
from worker_sdk.wire.distribution import Pacing

WINDOWS_AT_ONCE_MAX: Final = 64
"""Windows accounted for in one call; after a longer pause the others are left out."""

_NOTHING: Final = Release(0, 0, 0, Pacing.WINDOW)


def release_of(standing: Standing, permits: int | None = None) -> Release:
    """Return the release of a window's permits, or of so many instead.

    Raises:
        ValueError: while starting, when there is no window.
    """
    share = standing.share
    if share is None:
        raise ValueError("a window without a document releases nothing")
    return Release(
        opens_ms=standing.start_ms + share.terms.guard_ms,
        closes_ms=standing.end_ms - share.terms.guard_ms,
        permits=standing.permits if permits is None else permits,
        pacing=share.terms.pacing,
    )


class Released:
    """The releases of a ladder's windows, and the permits released, each once."""

    __slots__ = ("_at_ms", "_known", "_known_of", "_ladder", "_permits", "_so_far", "_start_ms")

    def __init__(self, ladder: Ladder) -> None:
        self._ladder = ladder
        self._known_of: Standing | None = None
        self._known = _NOTHING
        self._at_ms: int | None = None
        self._start_ms = -1
        self._so_far = 0
        self._permits = 0

    def of(self, standing: Standing) -> Release:
        """Return the release of a window; the last one is remembered."""
        if standing is not self._known_of:
            self._known_of = standing
            self._known = release_of(standing)
        return self._known

    def advance(self, now_ms: int) -> None:
        """Add what was released since the last call."""
        at_ms = self._at_ms
        self._at_ms = now_ms
        if at_ms is None or now_ms < at_ms:
            return  # the first call, or the clock stepped back: that time was accounted for
        for _ in range(WINDOWS_AT_ONCE_MAX):
            standing = self._ladder.standing(at_ms)
            if standing.window is None or standing.start_ms < self._start_ms:
                return
            if standing.start_ms > self._start_ms:
                self._start_ms = standing.start_ms
                self._so_far = 0
            if self._so_far < standing.permits:
                released = self.of(standing).released(min(now_ms, standing.end_ms))
                if released > self._so_far:
                    self._permits += released - self._so_far
                    self._so_far = released
            if now_ms < standing.end_ms:
                return
            at_ms = standing.end_ms

    def drain(self) -> int:
        """Return what was added since the last call."""
        permits, self._permits = self._permits, 0
        return permits
