"""Where on the points each member's interval lies.

Decides the order of intervals and which points are free. Members keep their order from document
to document, so that offsets move little; when a share is less than a permit, those that waited
longest are laid where the window's whole permits fall. Knows no demand and no safety rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from balancer.core.columns import SMALL, Flags, Ints, ints, kind_for, zeros
from balancer.core.pieces import NO_ENTRY, Pieces, safe_points_of
from worker_sdk.wire.distribution import DestinationShares, Entry, Hold, Member
from worker_sdk.wire.shares import POINTS, Interval, interval_permits, rotation_points


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Where members lie in the newest document, one row a member.

    Attributes:
        members: whose row is which.
        entries: of each; `NO_ENTRY` for none.
        start, end: its first interval; -1 for none.
        count: how many intervals it has.
        points: of all of them.
    """

    members: Sequence[Member]
    entries: Sequence[Entry]
    start: Ints
    end: Ints
    count: Ints
    points: Ints

    @classmethod
    def of(cls, members: Sequence[Member], entry_of: Mapping[Member, Entry]) -> Standing:
        """Look ``members`` up among the entries of a line."""
        entries = list(map(entry_of.get, members, repeat(NO_ENTRY)))
        pieces = Pieces.of(entries)
        return cls(members, entries, *pieces.firsts(), pieces.count, pieces.points())

    def order(self) -> Ints:
        """Return the rows by where they lie, so that little moves; new ones last, by name."""
        known = np.flatnonzero(self.count)
        new = sorted(np.flatnonzero(self.count == 0).tolist(), key=self.members.__getitem__)
        return np.concatenate((known[np.argsort(self.start[known], kind="stable")], ints(new)))

    def is_same(self, layout: Layout, safe_points: Ints) -> Flags:
        """Say whose entry already is what the layout and these safe points make of it."""
        lies_same = (self.start == layout.start) & (self.end == layout.end) & (self.count == 1)
        return np.asarray(lies_same & (safe_points_of(self.entries) == safe_points))


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Intervals of a destination's members, one row a member.

    Attributes:
        start, end: the interval; equal where a row has none.
        order: rows that have one, by the points they lie on.
        served: the last window that gives a whole permit; 0 for none.
    """

    start: Ints
    end: Ints
    order: Ints
    served: Ints


def lay_out(
    rows: Ints, points: Ints, *, capacity: int, windows: range, served_window: Ints
) -> Layout:
    """Return one unbroken interval for each row with points, packed from 0 on.

    Args:
        rows: all of them, in the order wanted.
        points: points of each row.
        capacity: permits a window.
        windows: those that the intervals are for.
        served_window: of each row the last window that gave it a whole permit; those with the
            smallest are owed longest. Used only where shares are below one permit.
    """
    ordered = points[rows]
    # Not capacity · points >= POINTS: that product may pass 64 bits.
    one_permit = -(-POINTS // capacity) if capacity > 0 else POINTS + 1
    large = rows[ordered >= one_permit]
    small = rows[(ordered > 0) & (ordered < one_permit)]
    start, end = zeros(len(points)), zeros(len(points))
    ends = np.cumsum(points[large])
    end[large] = ends
    start[large] = ends - points[large]
    offset = int(ends[-1]) if len(ends) else 0
    if len(small) and capacity <= 0:  # a closed destination gives nobody a permit
        sizes = points[small]
        end[small] = offset + np.cumsum(sizes)
        start[small] = end[small] - sizes
    elif len(small):
        owed = small[np.argsort(served_window[small], kind="stable")].tolist()
        small = ints(_lay_small(owed, points, (start, end), offset, (capacity, windows)))
    placed = np.concatenate((large, small))
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


def take_slice(gaps: list[Interval], points: int) -> Interval | None:
    """Take a slice of the largest gap, or all of it where it is smaller; the gaps shrink."""
    if not gaps:
        return None
    number = max(range(len(gaps)), key=lambda index: gaps[index][1] - gaps[index][0])
    start, end = gaps[number]
    taken = (start, min(end, start + points))
    if taken[1] == end:
        del gaps[number]
    else:
        gaps[number] = (taken[1], end)
    return taken


def with_further(line: DestinationShares, given: Mapping[Member, Interval]) -> DestinationShares:
    """Return the line in which members have the given intervals beside those that they had."""
    entries = tuple(
        replace(entry, intervals=tuple(sorted((*entry.intervals, given[entry.member]))))
        if entry.member in given
        else entry
        for entry in line.entries
    )
    return replace(line, entries=entries)
