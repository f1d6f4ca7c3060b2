"""What earlier documents still promise: the points that must be kept for their holders.

Decides, by rules 7, 8, 10 and 11 of the safety argument, how many permits each member may still
spend in a window without holding the document now planned, and what interval keeps those safe.
It reads the documents themselves; it knows no memory, so that losing that cannot overrun anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from balancer.core.model import MemberRecord
from worker_sdk.wire.distribution import Document, Member, Terms
from worker_sdk.wire.shares import POINTS, points_for_permits, safe_permits


@dataclass(frozen=True, slots=True)
class Promise:
    """One document's promise of safe permits to one member.

    Attributes:
        epoch: of the document.
        permits: that its safe points give a window.
        until_ms: windows that end later are not covered by it any more.
    """

    epoch: int
    permits: int
    until_ms: int


def promises_of(documents: Sequence[Document], destination: str) -> dict[Member, list[Promise]]:
    """Return what the documents promise for one destination, by member."""
    promises: dict[Member, list[Promise]] = {}
    for document in documents:
        for shares in document.destinations:
            if shares.terms.destination != destination:
                continue
            until_ms = promise_until_ms(document, shares.terms)
            for entry in shares.entries:
                permits = safe_permits(shares.terms.capacity, entry.safe_points)
                if permits > 0:
                    promises.setdefault(entry.member, []).append(
                        Promise(document.epoch, permits, until_ms)
                    )
    return promises


def promise_until_ms(document: Document, terms: Terms) -> int:
    """Return until when a document's safe points may be spent, ``on_expiry`` included."""
    extension_ms = terms.on_expiry.for_ms if terms.on_expiry.permille else 0
    return document.valid_until_ms + extension_ms


def reserved_permits(
    promises: Mapping[Member, Sequence[Promise]],
    members: Mapping[Member, MemberRecord],
    *,
    start_ms: int,
    window_ms: int,
    largest_epoch: int,
) -> dict[Member, tuple[int, int]]:
    """Return member to (permits it may spend in windows from ``start_ms`` on, until when).

    A goodbye or an acknowledgement counts only if it was seen before ``start_ms``; an
    acknowledgement of an epoch that was never published counts for nothing.
    """
    reserved: dict[Member, tuple[int, int]] = {}
    for member, made in promises.items():
        record = members.get(member)
        acknowledged = 0
        if record is not None:
            if record.left_ms is not None and record.left_ms < start_ms:
                continue
            if record.acknowledged_ms < start_ms and record.acknowledged_epoch <= largest_epoch:
                acknowledged = record.acknowledged_epoch
        live = [
            promise
            for promise in made
            if promise.epoch >= acknowledged and start_ms + window_ms <= promise.until_ms
        ]
        if live:
            reserved[member] = (
                max(promise.permits for promise in live),
                max(promise.until_ms for promise in live),
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
