"""Share arithmetic: points of a destination's capacity into whole permits of a window.

Decides how many permits an interval gives in a window, and how many points a number of permits
needs. Knows nothing of members, documents or time beyond the window's index.

All is integer arithmetic. Points run from 0 to ``POINTS`` = 10^9; an interval ``(a, b)`` is
half open, ``0 <= a < b <= POINTS``. Rounding is always towards minus infinity (floor) unless a
name says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

POINTS: Final = 1_000_000_000
"""Points of a whole capacity: 100 %."""

GOLDEN_STEP_POINTS: Final = 618_033_989
"""10^9 divided by the golden ratio: successive windows' roundings are spread most evenly."""

Interval = tuple[int, int]
"""Half open range of points ``(a, b)``."""


def window_at(unix_ms: int, window_seconds: int) -> int:
    """Return the index of the aligned window in which the Unix instant ``unix_ms`` lies."""
    return unix_ms // (window_seconds * 1000)


def window_start_ms(window: int, window_seconds: int) -> int:
    """Return the Unix instant in milliseconds at which window ``window`` begins."""
    return window * window_seconds * 1000


def rotation_points(window: int) -> int:
    """Return R of window ``window``: where its odd permits fall, in points."""
    return (window * GOLDEN_STEP_POINTS) % POINTS


def interval_permits(capacity: int, start: int, end: int, window: int) -> int:
    """Return the whole permits that ``[start, end)`` gives in a window.

    ``floor((C*b + R) / 10^9) - floor((C*a + R) / 10^9)``. The sums telescope: adjacent intervals
    from 0 to 10^9 give exactly ``capacity`` together, whatever their number.
    """
    rotation = (window * GOLDEN_STEP_POINTS) % POINTS
    return (capacity * end + rotation) // POINTS - (capacity * start + rotation) // POINTS


def share_permits(capacity: int, intervals: Iterable[Interval], window: int) -> int:
    """Return the whole permits that a member's intervals give together in a window."""
    rotation = (window * GOLDEN_STEP_POINTS) % POINTS
    permits = 0
    for start, end in intervals:
        permits += (capacity * end + rotation) // POINTS - (capacity * start + rotation) // POINTS
    return permits


def share_points(intervals: Iterable[Interval]) -> int:
    """Return the points that the intervals cover together."""
    points = 0
    for start, end in intervals:
        points += end - start
    return points


def safe_permits(capacity: int, safe_points: int) -> int:
    """Return the permits that safe points give in any window (floor)."""
    return capacity * safe_points // POINTS


def points_for_permits(permits: int, capacity: int) -> int:
    """Return the fewest points that give at least ``permits`` in every window, unbroken.

    ``ceil(permits * 10^9 / capacity)``. The result exceeds ``POINTS`` where the capacity has not
    so many permits; the caller decides what that means.

    Raises:
        ValueError: if ``capacity`` is not positive while permits are asked for.
    """
    if permits <= 0:
        return 0
    if capacity <= 0:
        raise ValueError("no points of a closed destination give a permit")
    return -(-permits * POINTS // capacity)


def most_permits(capacity: int, intervals: Iterable[Interval]) -> int:
    """Return the most permits that the intervals can give together in any window.

    An interval of p points gives ``floor(C*p / 10^9)`` or one more; whether all of several reach
    their maximum in one window is not asked, so this is an upper bound.
    """
    total = 0
    for start, end in intervals:
        total += -(-capacity * (end - start) // POINTS)
    return total
