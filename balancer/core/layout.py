"""Where on the points each member's interval lies.

Decides the order of intervals and which points are free. Members keep their order from document
to document, so that offsets move little; when a share is less than a permit, those that waited
longest are laid where the window's whole permits fall. Knows no demand and no safety rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from balancer.core.columns import SMALL, Ints, ints, kind_for, zeros
from worker_sdk.wire.distribution import DestinationShares, Entry, Hold, Member
from worker_sdk.wire.shares import POINTS, Interval, interval_permits, rotation_points


def stable_order(members: Collection[Member], before: DestinationShares | None) -> list[Member]:
    """Return the members in the order of their intervals in ``before``; new ones last, by name."""
    if before is None:
        return sorted(members)
    placed = [
        (entry.intervals[0][0], member)
        for member, entry in before.by_member.items()
        if entry.intervals and member in members
    ]
    placed.sort()  # nearly sorted already
    known = [member for _, member in placed]
    if len(known) == len(members):
        return known
    return known + sorted(set(members).difference(known))


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Intervals of a destination's members, one row a member.

    Attributes:
        start, end: the interval; equal where a row has none.
        order: rows that have one, ascending.
        served: the last window that gives a whole permit; 0 for none.
    """

    start: Ints
    end: Ints
    order: Sequence[int]
    served: Ints


def lay_out(
    order: Sequence[int], points: Ints, *, capacity: int, windows: range, served_window: Ints
) -> Layout:
    """Return one unbroken interval for each row with points, packed from 0 on.

    Args:
        order: the rows, in the order wanted.
        points: points of each row.
        capacity: permits a window.
        windows: those that the intervals are for.
        served_window: of each row the last window that gave it a whole permit; those with the
            smallest are owed longest. Used only where shares are below one permit.
    """
    rows = ints(order)
    ordered = points[rows] if len(rows) else zeros(0)
    # Not capacity · points >= POINTS: that product may pass 64 bits.
    one_permit = -(-POINTS // capacity) if capacity > 0 else POINTS + 1
    large = rows[ordered >= one_permit]
    small = rows[(ordered > 0) & (ordered < one_permit)]
    start, end = zeros(len(points)), zeros(len(points))
    ends = np.cumsum(points[large]) if len(large) else zeros(0)
    end[large] = ends
    start[large] = ends - points[large]
    offset = int(ends[-1]) if len(ends) else 0
    placed = large.tolist()
    if len(small) and capacity <= 0:  # a closed destination gives nobody a permit
        sizes = points[small]
        end[small] = offset + np.cumsum(sizes)
        start[small] = end[small] - sizes
        placed += small.tolist()
    elif len(small):
        owed = small[np.argsort(served_window[small], kind="stable")].tolist()
        placed += _lay_small(owed, points, (start, end), offset, (capacity, windows))
    return Layout(start, end, placed, _served(start, end, capacity, windows))


def _lay_small(
    owed: Sequence[int],
    points: Ints,
    intervals: tuple[Ints, Ints],
    offset: int,
    plan: tuple[int, range],
) -> list[int]:
    """Lay shares below a permit: where one falls, the first of those owed, else the last."""
    start, end = intervals
    capacity, windows = plan
    sizes = points.tolist()
    placed = []
    first, last = 0, len(owed)
    while first < last:
        row = owed[first]
        if any(
            interval_permits(capacity, offset, offset + sizes[row], window) for window in windows
        ):
            first += 1
        else:  # no whole permit falls here: whoever was served last can wait
            last -= 1
            row = owed[last]
        start[row], end[row] = offset, offset + sizes[row]
        offset += sizes[row]
        placed.append(row)
    return placed


def _served(start: Ints, end: Ints, capacity: int, windows: range) -> Ints:
    kind = kind_for((capacity + 1) * POINTS)
    first, last = start.astype(kind), end.astype(kind)
    served = zeros(len(start))
    for window in windows:
        rotation = rotation_points(window)
        permits = (capacity * last + rotation) // POINTS - (capacity * first + rotation) // POINTS
        served = np.where(permits > 0, window, served)
    return served.astype(SMALL)


def lay_holds(holds: Mapping[Member, tuple[int, int]], offset: int) -> tuple[tuple[Hold, ...], int]:
    """Return holds (member to points and date) packed from ``offset`` on, and where they end."""
    laid = []
    for member in sorted(holds):
        points, until_ms = holds[member]
        if points > 0:
            laid.append(Hold(offset, offset + points, until_ms))
            offset += points
    return tuple(laid), offset


def free_gaps(entries: Iterable[Entry], holds: Iterable[Hold]) -> list[Interval]:
    """Return the points that no entry and no hold has, ascending."""
    taken = sorted(
        [interval for entry in entries for interval in entry.intervals]
        + [(hold.start, hold.end) for hold in holds]
    )
    gaps: list[Interval] = []
    position = 0
    for start, end in taken:
        if start > position:
            gaps.append((position, start))
        position = max(position, end)
    if position < POINTS:
        gaps.append((position, POINTS))
    return gaps
