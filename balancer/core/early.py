"""What an early round may change in a destination's line: newcomers in, leavers' points out.

Decides, by rules 6 and 7, which points are free before the next regular document, and who gets
them. Everybody's first interval, the capacity and the windows stay as they are. Knows no strategy:
a newcomer gets its predecessor's interval if one of its host said goodbye, else an even slice;
what is left tops up those that lack most, or is lent where the policy says so (`lending`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from balancer.core.columns import points_of, zeros
from balancer.core.demand import Accounts, demands
from balancer.core.layout import free_gaps, take_slice, with_further
from balancer.core.lending import Wants, lend
from balancer.core.model import MemberRecord, Usage
from worker_sdk.wire.distribution import DestinationShares, Entry, Member, Terms
from worker_sdk.wire.shares import (
    POINTS,
    Interval,
    points_for_permits,
    rotation_points,
    share_points,
)

LEAST_TOP_UP_PERMITS = 2
"""A second interval gives at least so many permits, so that points are not cut into dust."""


@dataclass(frozen=True, slots=True)
class Newcomers:
    """Live members without an entry, and how many members are live in all."""

    members: Sequence[Member]
    live_count: int


@dataclass(frozen=True, slots=True)
class Lacking:
    """Who wants more: (member, points), most first; ``spare_points`` are left for newcomers."""

    members: Sequence[tuple[Member, int]]
    spare_points: int


def amend(
    line: DestinationShares,
    newcomers: Newcomers,
    lacking: Lacking | Wants,
    members: Mapping[Member, MemberRecord],
    *,
    others: Sequence[DestinationShares],
    present: int,
) -> DestinationShares:
    """Return the line with leavers' free points taken out, newcomers put on them, others topped up.

    Args:
        line: of the newest document, covering the present window or a later one.
        newcomers: who is to get points.
        lacking: who is to get more.
        members: everybody known.
        others: all other lines of the destination that cover a window from now on which ``line``
            covers: whoever holds one of them may spend by it.
        present: index of the present window.
    """
    entries: list[Entry] = []
    left_by_host: dict[str, list[Interval]] = {}
    for entry in line.entries:
        kept = _kept_of(entry, line.terms, members, present)
        if kept.intervals or kept is entry:
            entries.append(kept)
        freed = _cut_off(entry, kept)
        if freed is not None:
            left_by_host.setdefault(entry.host, []).append(freed)
    amended = replace(line, entries=tuple(entries))
    if any(other.terms.capacity != line.terms.capacity for other in others):
        return amended  # points of two capacities cannot be compared
    elsewhere = [
        _kept_of(entry, other.terms, members, present)
        for other in others
        if other.entries != line.entries
        for entry in other.entries
    ]
    gaps = free_gaps([*entries, *elsewhere], line.holds)
    amended = _with_newcomers(amended, gaps, newcomers, left_by_host)
    if isinstance(lacking, Wants):
        return lend(amended, gaps, lacking)
    return _topped_up(amended, gaps, lacking)


def _with_newcomers(
    line: DestinationShares,
    gaps: list[Interval],
    newcomers: Newcomers,
    left_by_host: Mapping[str, list[Interval]],
) -> DestinationShares:
    slice_points = max(1, POINTS // max(1, newcomers.live_count))
    entries = list(line.entries)
    for host, instance in newcomers.members:
        inherited = left_by_host.get(host)
        interval = _take_inherited(gaps, inherited) or take_slice(gaps, slice_points)
        if interval is None:
            break
        # No safe points: it has no demand on record, and they would outlive this document.
        entries.append(Entry(host, instance, (interval,), 0))
    return replace(line, entries=tuple(entries))


def wants_more(
    line: DestinationShares, live: Mapping[Member, Usage], window_ms: int
) -> list[tuple[Member, int]]:
    """Return (member, points lacking) of those whose last account wants more than they have.

    Those that lack most come first. Whoever has a second interval already is left out, and whoever
    has only said hello.
    """
    capacity = line.terms.capacity
    if capacity <= 0:
        return []
    even_permits = capacity // max(1, len(live))
    entries = [
        entry for entry in line.entries if entry.member in live and len(entry.intervals) <= 1
    ]
    accounts = Accounts.of([live[entry.member] for entry in entries], window_ms)
    wanted = points_of(demands(accounts, even_permits, zeros(len(entries))), capacity)
    lacking = [
        (entry.member, lack)
        for entry, is_new, points in zip(
            entries, accounts.is_new().tolist(), wanted.tolist(), strict=True
        )
        if not is_new and (lack := points - share_points(entry.intervals)) > 0
    ]
    return sorted(lacking, key=lambda item: (-item[1], item[0]))


def _topped_up(
    line: DestinationShares, gaps: list[Interval], lacking: Lacking
) -> DestinationShares:
    """Give what is left as second intervals, all but the points spared for newcomers."""
    budget = sum(end - start for start, end in gaps) - lacking.spare_points
    have = {entry.member for entry in line.entries}
    wanting = [(member, lack) for member, lack in lacking.members if member in have]
    if not wanting or budget <= 0:
        return line
    least = points_for_permits(LEAST_TOP_UP_PERMITS, line.terms.capacity)
    even = max(least, budget // len(wanting))
    given: dict[Member, Interval] = {}
    for member, lack in wanting:
        wanted = min(even, max(lack, least), budget)
        interval = take_slice(gaps, wanted) if wanted >= least else None
        if interval is None or interval[1] - interval[0] < least:
            break
        given[member] = interval
        budget -= interval[1] - interval[0]
    return with_further(line, given)


def _kept_of(
    entry: Entry, terms: Terms, members: Mapping[Member, MemberRecord], present: int
) -> Entry:
    """Return the part of an entry that its member may still spend in a window from now on."""
    record = members.get(entry.member)
    if record is None or record.left_ms is None:
        return entry
    return _without_free_part(entry, record, record.left_ms, terms, present)


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
