"""What earlier documents still promise: the points that must be kept for their holders.

Decides, by rules 7, 8, 10 and 11 of the safety argument, how many permits each member may still
spend in a window without holding the document now planned, and what interval keeps those safe.
It reads the documents themselves; it knows no memory, so that losing that cannot overrun anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from balancer.core.model import MemberRecord
from worker_sdk.wire.distribution import DestinationShares, Document, Member, Terms
from worker_sdk.wire.shares import POINTS, points_for_permits, safe_permits

_NOTHING = (0, 0)


@dataclass(frozen=True, slots=True)
class Promises:
    """What one document promises for one destination.

    Attributes:
        epoch: of the document.
        until_ms: windows that end later are not covered by it any more.
        line: the destination's; its safe points are what is promised.
    """

    epoch: int
    until_ms: int
    line: DestinationShares


def promises_of(documents: Sequence[Document], destination: str) -> list[Promises]:
    """Return what the documents promise for one destination, a value a document."""
    return [
        Promises(document.epoch, promise_until_ms(document, line.terms), line)
        for document in documents
        for line in document.destinations
        if line.terms.destination == destination
    ]


def promise_until_ms(document: Document, terms: Terms) -> int:
    """Return until when a document's safe points may be spent, ``on_expiry`` included."""
    extension_ms = terms.on_expiry.for_ms if terms.on_expiry.permille else 0
    return document.valid_until_ms + extension_ms


def reserved_permits(
    promises: Sequence[Promises],
    members: Mapping[Member, MemberRecord],
    *,
    start_ms: int,
    window_ms: int,
    published_ms: Mapping[int, int],
) -> dict[Member, tuple[int, int]]:
    """Return member to (permits it may spend in windows from ``start_ms`` on, until when).

    A goodbye or an acknowledgement counts only if it was seen before ``start_ms``. An
    acknowledgement of an epoch that no known document had when it was seen counts for nothing, also
    when that epoch comes later.

    Args:
        promises: of all unexpired documents.
        members: everybody known.
        start_ms: start of the first window planned.
        window_ms: length of a window.
        published_ms: epoch to the instant of publication of the documents known.
    """
    # Most have acknowledged the newest, so that an older document concerns few.
    by_epoch: dict[int, list[Member]] = {}
    for member, record in members.items():
        if record.left_ms is not None and record.left_ms < start_ms:
            continue
        epoch = record.acknowledged_epoch
        seen_ms = record.acknowledged_ms
        if seen_ms >= start_ms or published_ms.get(epoch, seen_ms) >= seen_ms:
            epoch = 0
        by_epoch.setdefault(epoch, []).append(member)
    reserved: dict[Member, tuple[int, int]] = {}
    for promised in promises:
        if start_ms + window_ms > promised.until_ms:
            continue
        concerned = [list(promised.line.by_member.keys() - members.keys())]
        concerned += [known for epoch, known in by_epoch.items() if epoch <= promised.epoch]
        entry_of, capacity = promised.line.by_member.get, promised.line.terms.capacity
        for member in chain.from_iterable(concerned):
            entry = entry_of(member)
            if entry is None or not entry.safe_points:
                continue
            permits = safe_permits(capacity, entry.safe_points)
            if not permits:
                continue
            known_permits, known_until_ms = reserved.get(member, _NOTHING)
            reserved[member] = (
                max(known_permits, permits),
                max(known_until_ms, promised.until_ms),
            )
    return reserved


def reserved_points(permits: Mapping[Member, int], capacity: int) -> tuple[dict[Member, int], bool]:
    """Return member to reserved points, and whether nobody else may be given any.

    ``ceil(F·10^9 / C)`` points always give F permits. Where that does not fit (the capacity was
    lowered), each gets ``floor(F·10^9 / max(C, ΣF))``, which never gives more than F, and nobody
    anything else: the window's bound is then max(C, ΣF).
    """
    total = sum(permits.values())
    if capacity > 0:
        points = {
            member: points_for_permits(wanted, capacity) for member, wanted in permits.items()
        }
        if sum(points.values()) <= POINTS:
            return points, False
    bound = max(capacity, total)
    if bound == 0:
        return {}, False
    return {member: wanted * POINTS // bound for member, wanted in permits.items()}, True


def gives_permits(documents: Iterable[Document], destination: str, now_ms: int) -> bool:
    """Say whether any document still gives or promises permits of a destination at ``now_ms``."""
    for document in documents:
        for shares in document.destinations:
            terms = shares.terms
            if terms.destination != destination or terms.capacity == 0 or not shares.entries:
                continue
            covered_until_ms = terms.until_window * terms.window_seconds * 1000
            if max(covered_until_ms, promise_until_ms(document, terms)) > now_ms:
                return True
    return False
