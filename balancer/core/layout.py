"""Where on the points each member's interval lies.

Decides the order of intervals and which points are free. Members keep their order from document
to document, so that offsets move little; when a share is less than a permit, those that waited
longest are laid where the window's whole permits fall. Knows no demand and no safety rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from balancer.core.columns import SMALL, Ints, ints, kind_for, zeros
from balancer.core.entry_columns import EntryColumns
from balancer.core.interval_columns import IntervalColumns
from balancer.core.rows import Rows
from worker_sdk.wire.distribution import DestinationShares, Hold, Member
from worker_sdk.wire.shares import POINTS, Interval, interval_permits, rotation_points


@dataclass(frozen=True, slots=True, eq=False)
class PreviousLayout:
    """Where members lie in the newest document, one row a member.

    Attributes:
        members: whose row is which.
        start: of its first interval; -1 for none.
        points: of all of its intervals.
    """

    members: Sequence[Member]
    start: Ints
    points: Ints

    @classmethod
    def of(cls, rows: Rows, entries: EntryColumns) -> PreviousLayout:
        """Look members up among the entries of a line."""
        members, row = rows.members, rows.find(entries.members)
        is_known = row >= 0
        row = row[is_known]
        start, points = zeros(len(members)) - 1, zeros(len(members))
        start[row] = entries.intervals.firsts()[is_known]
        points[row] = entries.intervals.points()[is_known]
        return cls(members, start, points)

    def order(self) -> Ints:
        """Return the rows by where they lie, so that little moves; new ones last, by name."""
        known = np.flatnonzero(self.start >= 0)
        new = sorted(np.flatnonzero(self.start < 0).tolist(), key=self.members.__getitem__)
        return np.concatenate((known[np.argsort(self.start[known], kind="stable")], ints(new)))


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
        rows: of all members, in the order in which they are to lie.
        points: points of each row.
        capacity: permits a window.
        windows: those that the intervals are for.
        served_window: of each row the last window that gave it a whole permit; those with the
            smallest have waited longest, and those with one beyond these windows as well: it was a
            window of another length, or by a wrong clock. Used only where shares are below one
            permit.
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
        served = np.where(served_window < windows.stop, served_window, 0)
        owed = small[np.argsort(served[small], kind="stable")].tolist()
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
    """Lay shares below a permit one after another.

    Where a whole permit falls on the next place it goes to the member that has waited longest, else
    the place goes to the one that was served last.
    """
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
        else:  # no whole permit falls here
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


def free_gaps(taken: Iterable[IntervalColumns], holds: Iterable[Hold]) -> list[Interval]:
    """Return the points that no entry's intervals and no hold has, ascending."""
    laid = list(holds)
    parts = list(taken)
    start = np.concatenate([*(part.start for part in parts), ints(hold.start for hold in laid)])
    end = np.concatenate([*(part.end for part in parts), ints(hold.end for hold in laid)])
    order = np.argsort(start, kind="stable")
    # Up to where all is looked at: before the first, before each, and after the last.
    position = np.maximum.accumulate(np.concatenate((zeros(1), end[order])))
    following = np.concatenate((start[order], zeros(1) + POINTS))
    rows = np.flatnonzero(following > position)
    return list(zip(position[rows].tolist(), following[rows].tolist(), strict=True))


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
    entries = EntryColumns.of(line.entries)
    rows = ints(row for row, member in enumerate(entries.members) if member in given)
    changes = {
        row: replace(entry, intervals=tuple(sorted((*entry.intervals, given[entry.member]))))
        for row, entry in zip(rows.tolist(), entries.picked(rows), strict=True)
    }
    return replace(line, entries=entries.changed(changes))
