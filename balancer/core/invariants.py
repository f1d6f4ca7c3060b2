"""What a document must satisfy before it is published; a function an invariant.

Decides whether a document may be published, from the document and those before it alone. Each
function returns a sentence for each fault. Knows nothing of how the document came about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from balancer.core.columns import Ints, ints, zeros
from balancer.core.entry_columns import EntryColumns
from balancer.core.model import MemberRecord
from balancer.core.rows import Rows
from worker_sdk.wire.distribution import DestinationShares, Document, Member
from worker_sdk.wire.limits import (
    DESTINATION_HOLDS_MAX,
    DESTINATION_MEMBERS_MAX,
    DOCUMENT_DESTINATIONS_MAX,
    ENTRY_INTERVALS_MAX,
)
from worker_sdk.wire.shares import POINTS


def shares_fit(document: Document) -> list[str]:
    """Check that intervals of entries and holds are within a whole and do not overlap."""
    faults = []
    for shares in document.destinations:
        name, entries = shares.terms.destination, EntryColumns.of(shares.entries)
        intervals = entries.intervals
        start = np.concatenate((intervals.start, ints(hold.start for hold in shares.holds)))
        end = np.concatenate((intervals.end, ints(hold.end for hold in shares.holds)))
        if (start[1:] < end[:-1]).any():
            order = np.lexsort((end, start))
            start, end = start[order], end[order]
        position = np.maximum.accumulate(np.concatenate((zeros(1), end)))[:-1]
        is_none = (start < 0) | (start >= end) | (end > POINTS)
        for row in np.flatnonzero(is_none | (start < position)).tolist():
            if is_none[row]:
                faults.append(f"{name}: [{start[row]}, {end[row]}) is no interval of points")
            else:
                faults.append(f"{name}: intervals overlap at {start[row]}")
        if len(set(entries.members)) != len(entries):
            faults.append(f"{name}: a member has two entries")
        faults.extend(
            f"{name}: safe points of {entries.members[row][0]} pass its share"
            for row in np.flatnonzero(entries.safe_points > intervals.points()).tolist()
        )
    return faults


def epoch_grows(document: Document, before: Sequence[Document]) -> list[str]:
    """Check that the epoch is above every one before."""
    largest = max((other.epoch for other in before), default=0)
    if document.epoch > largest:
        return []
    return [f"epoch {document.epoch} is not above {largest}"]


def windows_agree(
    document: Document,
    before: Sequence[Document],
    members: Mapping[Member, MemberRecord],
) -> list[str]:
    """Check documents that cover one window against one another.

    The newest one before that covers a window of a destination speaks for those older: it was
    checked against them, by what was known of goodbyes then. Capacities agree, and no point belongs
    to two different members, unless the earlier one has said goodbye.

    Args:
        document: the one to check.
        before: documents that members may go by, newest first.
        members: everybody known.
    """
    faults = []
    lines = [{old.terms.destination: old for old in other.destinations} for other in before]
    for new in document.destinations:
        name = new.terms.destination
        known = (of_document[name] for of_document in lines if name in of_document)
        old = next((line for line in known if _overlap(new, line)), None)
        if old is None:
            continue
        if new.terms.capacity != old.terms.capacity:
            faults.append(f"{name}: two capacities in one window")
        if new.entries != old.entries:
            faults.extend(_contested(name, new, old, members))
    return faults


def _overlap(new: DestinationShares, old: DestinationShares) -> bool:
    return (
        new.terms.window_seconds == old.terms.window_seconds
        and new.terms.from_window < old.terms.until_window
        and old.terms.from_window < new.terms.until_window
    )


def _contested(
    name: str,
    new: DestinationShares,
    old: DestinationShares,
    members: Mapping[Member, MemberRecord],
) -> list[str]:
    ours, theirs = EntryColumns.of(new.entries), EntryColumns.of(old.entries)
    ours_of = Rows.of(ours.members).find(theirs.members)
    (start, end, owner), (kept_start, kept_end, keeper) = map(_by_start, (ours, theirs))
    # The old intervals that may overlap a new one are neighbours, from ``first`` to ``last``.
    # Mostly that is one, of the same member, and there is nothing to look at.
    first = np.searchsorted(np.maximum.accumulate(kept_end), start, side="right")
    last = np.searchsorted(kept_start, end, side="left")
    is_own = np.append(ours_of[keeper], -1)[first] == owner
    suspects = np.flatnonzero((last > first + 1) | ((last == first + 1) & ~is_own))
    faults = []
    for row in suspects.tolist():
        member = ours.members[owner[row]]
        for place in range(int(first[row]), int(last[row])):
            other = theirs.members[keeper[place]]
            record = members.get(other)
            has_left = record is not None and record.left_ms is not None
            if other != member and not has_left and kept_end[place] > start[row]:
                faults.append(f"{name}: points of {other[0]} given to {member[0]} too")
    return faults


def _by_start(entries: EntryColumns) -> tuple[Ints, Ints, Ints]:
    """Return start, end and row of the entry of each interval, in order."""
    intervals = entries.intervals
    order = np.lexsort((intervals.end, intervals.start))
    return intervals.start[order], intervals.end[order], intervals.owners()[order]


def begins_soon(document: Document, now_ms: int, round_ms: int) -> list[str]:
    """Check that no line begins later than the next window and one round."""
    faults = []
    for shares in document.destinations:
        terms = shares.terms
        window_ms = terms.window_seconds * 1000
        latest_ms = (now_ms // window_ms + 1) * window_ms + max(round_ms, window_ms)
        if terms.from_window * window_ms > latest_ms:
            faults.append(f"{terms.destination}: begins at window {terms.from_window}, too late")
    return faults


def valid_over_coverage(document: Document) -> list[str]:
    """Check that no share outlives the document's validity."""
    return [
        f"{shares.terms.destination}: covers windows beyond the document's validity"
        for shares in document.destinations
        if shares.terms.until_window * shares.terms.window_seconds * 1000 > document.valid_until_ms
    ]


def readers_take_it(document: Document) -> list[str]:
    """Check that nothing is more than readers of the document accept.

    A document that nobody can read stops every member, and the next leader with them.
    """
    faults = []
    if len(document.destinations) > DOCUMENT_DESTINATIONS_MAX:
        faults.append(f"{len(document.destinations)} destinations are more than readers take")
    for shares in document.destinations:
        most_intervals = EntryColumns.of(shares.entries).intervals.count.max(initial=0)
        faults.extend(
            f"{shares.terms.destination}: {count} {what} are more than readers take"
            for what, count, most in (
                ("members", len(shares.entries), DESTINATION_MEMBERS_MAX),
                ("holds", len(shares.holds), DESTINATION_HOLDS_MAX),
                ("intervals of a member", int(most_intervals), ENTRY_INTERVALS_MAX),
            )
            if count > most
        )
    return faults


def promises_kept(
    line: DestinationShares,
    live: Rows,
    needed: Ints,
    gone: Mapping[Member, int],
) -> list[str]:
    """Check that what earlier documents promise has an unbroken interval, or a hold a member.

    Args:
        line: the one to check.
        live: the live members' rows.
        needed: points promised to each of them.
        gone: points promised to members that are not live.
    """
    name, entries = line.terms.destination, EntryColumns.of(line.entries)
    row = live.find(entries.members)
    is_live = row >= 0
    kept, has_entry = zeros(len(live)), np.zeros(len(live), dtype=np.bool_)
    kept[row[is_live]] = entries.intervals.longest()[is_live]
    has_entry[row[is_live]] = True
    faults = [
        f"{name}: {live.members[row][0]} may still spend more than its interval keeps"
        for row in np.flatnonzero(has_entry & (kept < needed)).tolist()
    ]
    without_entry = sorted(
        [*needed[~has_entry & (needed > 0)].tolist(), *filter(None, gone.values())]
    )
    holds = sorted(hold.end - hold.start for hold in line.holds)
    if any(held < points for held, points in zip(holds[::-1], without_entry[::-1], strict=False)):
        faults.append(f"{name}: a hold is smaller than what it keeps")
    if len(holds) < len(without_entry):
        faults.append(f"{name}: a hold is missing")
    return faults
