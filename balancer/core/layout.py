"""Where on the points each member's interval lies.

Decides the order of intervals and which points are free. Members keep their order from document
to document, so that offsets move little; when a share is less than a permit, those that waited
longest are laid where the window's whole permits fall. Knows no demand and no safety rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from worker_sdk.wire.distribution import DestinationShares, Entry, Hold, Member
from worker_sdk.wire.shares import POINTS, Interval, interval_permits


def stable_order(members: Iterable[Member], before: DestinationShares | None) -> list[Member]:
    """Return the members in the order of their intervals in ``before``; new ones last, by name."""
    starts: dict[Member, int] = {}
    if before is not None:
        for entry in before.entries:
            if entry.intervals:
                starts[entry.member] = entry.intervals[0][0]
    return sorted(members, key=lambda member: (starts.get(member, POINTS), member))


def lay_out(
    order: Sequence[Member],
    points: Mapping[Member, int],
    *,
    capacity: int,
    windows: range,
    served_window: Mapping[Member, int],
) -> dict[Member, Interval]:
    """Return one unbroken interval for each member with points, packed from 0 on.

    Args:
        order: the members.
        points: points of each.
        capacity: permits a window.
        windows: those that the intervals are for.
        served_window: member to the last window that gave it a whole permit; those with the
            smallest are owed longest. Used only where shares are below one permit.
    """
    placed: dict[Member, Interval] = {}
    offset = 0
    small = [
        member for member in order if points[member] > 0 and capacity * points[member] < POINTS
    ]
    for member in order:
        if points[member] > 0 and capacity * points[member] >= POINTS:
            placed[member] = (offset, offset + points[member])
            offset += points[member]
    owed = sorted(small, key=lambda member: (served_window.get(member, 0), member))
    first, last = 0, len(owed)
    while first < last:
        candidate = owed[first]
        end = offset + points[candidate]
        if last_permit_window(capacity, (offset, end), windows) is not None:
            first += 1
        else:  # no whole permit falls here: whoever was served last can wait
            last -= 1
            candidate = owed[last]
            end = offset + points[candidate]
        placed[candidate] = (offset, end)
        offset = end
    return placed


def last_permit_window(capacity: int, interval: Interval, windows: range) -> int | None:
    """Return the last of the windows in which the interval gives a permit; None if none does."""
    for window in reversed(windows):
        if interval_permits(capacity, *interval, window) > 0:
            return window
    return None


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
