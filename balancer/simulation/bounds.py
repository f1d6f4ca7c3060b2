"""How much may be spent in a window, from the rules' words, apart from the planner's own code.

By rule 10 that is the capacity, or, where it was lowered, what is promised already.
"""

from __future__ import annotations

from balancer.core.model import MemberRecord, Snapshot
from worker_sdk.wire.distribution import Document, Member
from worker_sdk.wire.shares import safe_permits


def bounds_of(
    document: Document, snapshot: Snapshot, known: dict[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    """Return (destination, window) to max(C, sum of what is promised), for windows planned anew."""
    bounds = {}
    for line in document.destinations:
        terms = line.terms
        name = terms.destination
        copied = {
            (old.terms.from_window, old.terms.until_window)
            for other in snapshot.documents
            if other.epoch in (snapshot.pointed_epochs or ())
            for old in other.destinations
            if old.terms.destination == name
        }
        windows = range(terms.from_window, terms.until_window)
        fresh = [] if (terms.from_window, terms.until_window) in copied else list(windows)
        if not fresh:
            continue
        promised = sum(promised_permits(snapshot, name, terms.from_window).values())
        if snapshot.learning and terms.capacity == _capacity_in_force(snapshot, name):
            # What is repeated may have been planned above the capacity.
            promised = max([promised, *(bound for (of, _), bound in known.items() if of == name)])
        for window in fresh:
            bounds[name, window] = max(terms.capacity, promised)
    return bounds


def _capacity_in_force(snapshot: Snapshot, name: str) -> int | None:
    """Return the capacity of a destination in the newest document named; None for none."""
    for document in snapshot.documents:
        if document.epoch == snapshot.current_epoch:
            for line in document.destinations:
                if line.terms.destination == name:
                    return line.terms.capacity
    return None


def promised_permits(snapshot: Snapshot, name: str, window: int) -> dict[Member, int]:
    """Return what each member may spend in a window by its safe points, as far as is known.

    Written from the rules' words, apart from the planner's own code.
    """
    records = {record.member: record for record in snapshot.members}
    published_ms = {document.epoch: document.published_at_ms for document in snapshot.documents}
    promised: dict[Member, int] = {}
    for document in snapshot.documents:
        for line in document.destinations:
            terms = line.terms
            if terms.destination != name:
                continue
            start_ms = window * terms.window_seconds * 1000
            ends_ms = start_ms + terms.window_seconds * 1000
            if ends_ms > document.valid_until_ms + terms.on_expiry.for_ms:
                continue
            for entry in line.entries:
                record = records.get(entry.member)
                if record is not None and record.left_ms is not None and record.left_ms < start_ms:
                    continue
                if record is not None and _acknowledged(record, published_ms, start_ms) > (
                    document.epoch
                ):
                    continue
                permits = safe_permits(terms.capacity, entry.safe_points)
                promised[entry.member] = max(permits, promised.get(entry.member, 0))
    return promised


def _acknowledged(record: MemberRecord, published_ms: dict[int, int], start_ms: int) -> int:
    """Return the epoch that a member is believed to hold; 0 where it cannot hold what it said."""
    seen_ms = record.acknowledged_ms
    known_ms = published_ms.get(record.acknowledged_epoch)
    if seen_ms >= start_ms or known_ms is None or known_ms >= seen_ms:
        return 0
    return record.acknowledged_epoch
