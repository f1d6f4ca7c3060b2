"""What an early round may change in a destination's line: newcomers in, leavers' points out.

Decides, by rules 6 and 7 of docs/explanation/safety.md, which points are free before the next
regular document, and who gets them. Every member's first interval, the capacity and the windows
stay as they are. Knows no strategy: a newcomer gets the interval of a member of its host that said
goodbye, else an even slice; what is left tops up those that lack most, or is lent where the policy
says so (`lending`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from balancer.core.columns import ints, points_of, zeros
from balancer.core.demand import Accounts, demands
from balancer.core.entry_columns import EntryColumns
from balancer.core.layout import free_gaps, take_slice, with_further
from balancer.core.lending import Wants, lend
from balancer.core.matched_entries import MatchedEntries
from balancer.core.model import MemberRecord
from worker_sdk.wire.distribution import DestinationShares, Entry, Member, Terms
from worker_sdk.wire.limits import DESTINATION_MEMBERS_MAX
from worker_sdk.wire.shares import (
    POINTS,
    Interval,
    points_for_permits,
    rotation_points,
)

LEAST_TOP_UP_PERMITS = 2
"""A second interval gives at least so many permits, so that points are not cut too small."""


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
    entries = EntryColumns.of(line.entries)
    changes = _freed(entries, line.terms, members, present)
    left_by_host: dict[str, list[Interval]] = {}
    for before, kept in changes.values():
        freed = _cut_off(before, kept)
        if freed is not None:
            left_by_host.setdefault(before.host, []).append(freed)
    entries = _kept_of(entries, changes)
    amended = replace(line, entries=entries)
    if any(other.terms.capacity != line.terms.capacity for other in others):
        return amended  # points of two capacities cannot be compared
    taken = [entries.intervals]
    for other in others:
        if other.entries != line.entries:
            known = EntryColumns.of(other.entries)
            known = _kept_of(known, _freed(known, other.terms, members, present))
            taken.append(known.intervals)
    gaps = free_gaps(taken, line.holds)
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
    came: list[Entry] = []
    # Readers take no longer line; a newcomer that finds no room waits for a regular round.
    room = max(0, DESTINATION_MEMBERS_MAX - len(line.entries))
    for host, instance in newcomers.members[:room]:
        inherited = left_by_host.get(host)
        interval = _take_inherited(gaps, inherited) or take_slice(gaps, slice_points)
        if interval is None:
            break
        # No safe points: it has no demand on record, and they would outlive this document.
        came.append(Entry(host, instance, (interval,), 0))
    return replace(line, entries=EntryColumns.of(line.entries).changed({}, came))


def wants_more(terms: Terms, matched: MatchedEntries) -> list[tuple[Member, int]]:
    """Return (member, points lacking) of those whose last account wants more than they have.

    Those that lack most come first. Members that have a second interval already are left out, and
    so are those that have only said hello.
    """
    capacity, entries = terms.capacity, matched.entries
    if capacity <= 0:
        return []
    even_permits = capacity // max(1, len(matched.accounts))
    rows = np.flatnonzero((matched.account >= 0) & (entries.intervals.count <= 1))
    accounts = Accounts.of(matched.accounts_of(rows), terms.window_seconds * 1000)
    wanted = points_of(demands(accounts, even_permits, zeros(len(rows))), capacity)
    lack = np.where(accounts.is_new, 0, wanted - entries.intervals.points()[rows])
    lacking = lack > 0
    members = [entries.members[row] for row in rows[lacking].tolist()]
    return sorted(
        zip(members, lack[lacking].tolist(), strict=True), key=lambda item: (-item[1], item[0])
    )


def _topped_up(
    line: DestinationShares, gaps: list[Interval], lacking: Lacking
) -> DestinationShares:
    """Give what is left as second intervals, all but the points spared for newcomers."""
    budget = sum(end - start for start, end in gaps) - lacking.spare_points
    have = set(EntryColumns.of(line.entries).members)
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


def _freed(
    entries: EntryColumns, terms: Terms, members: Mapping[Member, MemberRecord], present: int
) -> dict[int, tuple[Entry, Entry]]:
    """Return leavers' entries, and what of them may still be spent, where that is not all."""
    left = {
        row: (record, record.left_ms)
        for row, record in enumerate(map(members.get, entries.members))
        if record is not None and record.left_ms is not None
    }
    freed = {}
    for (row, (record, left_ms)), entry in zip(
        left.items(), entries.picked(ints(left)), strict=True
    ):
        kept = _without_free_part(entry, record, left_ms, terms, present)
        if kept is not entry:
            freed[row] = entry, kept
    return freed


def _kept_of(entries: EntryColumns, freed: Mapping[int, tuple[Entry, Entry]]) -> EntryColumns:
    """Return the entries without what is freed; those of which nothing is left are taken out."""
    return entries.changed(
        {row: kept if kept.intervals else None for row, (_, kept) in freed.items()}
    )


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
