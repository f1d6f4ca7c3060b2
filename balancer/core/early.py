"""What an early round may change in a destination's line: newcomers in, leavers' points out.

Decides, by rules 6 and 7, which points are free before the next regular document, and who gets
them. Everybody else's intervals, the capacity and the windows stay as they are. Knows no strategy:
a newcomer gets its predecessor's interval if one of its host said goodbye, else an even slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from balancer.core.layout import free_gaps
from balancer.core.model import MemberRecord
from worker_sdk.wire.distribution import DestinationShares, Entry, Member, Terms
from worker_sdk.wire.shares import POINTS, Interval, rotation_points


def amend(
    line: DestinationShares,
    newcomers: Sequence[Member],
    members: Mapping[Member, MemberRecord],
    *,
    live_count: int,
    present: int,
) -> DestinationShares:
    """Return the line with leavers' free points taken out and newcomers put on free points.

    Args:
        line: of the newest document, covering the present window or a later one.
        newcomers: live members without an entry in it.
        members: everybody known.
        live_count: live members of the destination.
        present: index of the present window.
    """
    entries: list[Entry] = []
    left_by_host: dict[str, list[Interval]] = {}
    for entry in line.entries:
        record = members.get(entry.member)
        kept = entry
        if record is not None and record.left_ms is not None:
            kept = _without_free_part(entry, record, record.left_ms, line.terms, present)
        if kept.intervals or kept is entry:
            entries.append(kept)
        freed = _cut_off(entry, kept)
        if freed is not None:
            left_by_host.setdefault(entry.host, []).append(freed)
    gaps = free_gaps(entries, line.holds)
    slice_points = max(1, POINTS // max(1, live_count))
    for host, instance in newcomers:
        inherited = left_by_host.get(host)
        interval = _take_inherited(gaps, inherited) or _take_slice(gaps, slice_points)
        if interval is None:
            break
        # No safe points: it has no demand on record, and they would outlive this document.
        entries.append(Entry(host, instance, (interval,), 0))
    return replace(line, entries=tuple(entries))


def _without_free_part(
    entry: Entry, record: MemberRecord, left_ms: int, terms: Terms, present: int
) -> Entry:
    """Return what must stay of a leaver's entry: nothing, the spent head, or all of it."""
    window_ms = terms.window_seconds * 1000
    first = max(present, terms.from_window)
    if left_ms < first * window_ms:
        return replace(entry, intervals=(), safe_points=0)
    account = record.spent.get(terms.destination)
    provable = (
        account is not None
        and account[0] == present == first
        and present < terms.until_window
        and len(entry.intervals) == 1
        and terms.capacity > 0
    )
    if account is None or not provable:
        return entry
    start, end = entry.intervals[0]
    rotation = rotation_points(present)
    given_before = (terms.capacity * start + rotation) // POINTS
    # The smallest end at which the head still gives every permit that was spent.
    needed = (given_before + account[1]) * POINTS - rotation
    head_end = max(start, -(-needed // terms.capacity))
    if head_end >= end:
        return entry
    if head_end == start:
        return replace(entry, intervals=(), safe_points=0)
    return replace(
        entry,
        intervals=((start, head_end),),
        safe_points=min(entry.safe_points, head_end - start),
    )


def _cut_off(before: Entry, after: Entry) -> Interval | None:
    if before.intervals == after.intervals or len(before.intervals) != 1:
        return None
    start, end = before.intervals[0]
    return (after.intervals[0][1] if after.intervals else start, end)


def _take_inherited(gaps: list[Interval], inherited: list[Interval] | None) -> Interval | None:
    """Take the part of a predecessor's interval that is free; the gaps shrink."""
    if not inherited:
        return None
    wanted = inherited.pop()
    for number, (start, end) in enumerate(gaps):
        if start <= wanted[0] and wanted[1] <= end:
            rest = [(start, wanted[0]), (wanted[1], end)]
            gaps[number : number + 1] = [gap for gap in rest if gap[0] < gap[1]]
            return wanted
    return None


def _take_slice(gaps: list[Interval], points: int) -> Interval | None:
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
