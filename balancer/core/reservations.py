"""What earlier documents still promise: the points that must be kept for their holders.

Decides, by rules 7, 8, 10 and 11 of docs/explanation/safety.md, how many permits each member may
still spend in a window without holding the document now planned, and how many points keep those
free. Reads the documents themselves and not the planner's memory, so that losing the memory cannot
lead to an overrun.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import numpy as np

from balancer.core.columns import LARGE, Ints, ints, kind_for, points_of, total, zeros
from balancer.core.entry_columns import EntryColumns
from balancer.core.model import MemberRecord
from balancer.core.rows import Rows
from worker_sdk.wire.distribution import DestinationShares, Document, Member, Terms
from worker_sdk.wire.limits import EPOCH_MAX
from worker_sdk.wire.shares import POINTS

_NOTHING: Final = (0, 0)

NO_EPOCH: Final = EPOCH_MAX + 1
"""The oldest epoch of a member that said goodbye: it may go by no document any more."""


@dataclass(frozen=True, slots=True)
class Promises:
    """What one document promises for one destination.

    Attributes:
        epoch: of the document.
        until_ms: the promise covers windows that end by then.
        line: the destination's; its safe points are what is promised.
    """

    epoch: int
    until_ms: int
    line: DestinationShares


def promises_of(documents: Iterable[Document]) -> dict[str, list[Promises]]:
    """Return what the documents promise for each destination, a value a document."""
    promises: dict[str, list[Promises]] = {}
    for document in documents:
        for line in document.destinations:
            promised = Promises(document.epoch, promise_until_ms(document, line.terms), line)
            promises.setdefault(line.terms.destination, []).append(promised)
    return promises


def promise_until_ms(document: Document, terms: Terms) -> int:
    """Return until when a document's safe points may be spent, ``on_expiry`` included."""
    extension_ms = terms.on_expiry.for_ms if terms.on_expiry.permille else 0
    return document.valid_until_ms + extension_ms


def gives_until_ms(document: Document) -> int:
    """Return until when a document gives or promises permits of any destination."""
    until_ms = document.valid_until_ms
    for line in document.destinations:
        covered_until_ms = line.terms.until_window * line.terms.window_seconds * 1000
        until_ms = max(until_ms, covered_until_ms, promise_until_ms(document, line.terms))
    return until_ms


def oldest_epochs(
    members: Mapping[Member, MemberRecord], published_ms: Mapping[int, int], *, start_ms: int
) -> dict[Member, int]:
    """Return the oldest epoch that each may still go by in windows from ``start_ms`` on.

    A goodbye or an acknowledgement counts only if it was seen before ``start_ms``. An
    acknowledgement of an epoch that no known document had when it was seen counts for nothing, also
    when that epoch comes later.

    Args:
        members: everybody known.
        published_ms: epoch to the instant of publication of the documents known.
        start_ms: start of the first window planned.
    """
    records = members.values()
    epochs = ints(map(attrgetter("acknowledged_epoch"), records))
    seen_ms = ints(map(attrgetter("acknowledged_ms"), records))
    is_true = np.zeros(len(members), dtype=np.bool_)
    for epoch, instant_ms in published_ms.items():
        is_true |= (epochs == epoch) & (instant_ms < seen_ms)
    counts = np.where(is_true & (seen_ms < start_ms), epochs, 0)
    oldest = dict(zip(members, counts.tolist(), strict=True))
    for member, record in members.items():
        if record.left_ms is not None and record.left_ms < start_ms:
            oldest[member] = NO_EPOCH
    return oldest


@dataclass(frozen=True, slots=True, eq=False)
class Reserved:
    """Permits that members may still spend by earlier documents.

    Attributes:
        live: of each live member, one row a member.
        others: of those not live, and until when.
        until_ms: the last date of all.
    """

    live: Ints
    others: Mapping[Member, tuple[int, int]]
    until_ms: int


def reserved_permits(
    promises: Iterable[Promises],
    oldest: Mapping[Member, int],
    live: Rows,
    *,
    start_ms: int,
    window_ms: int,
) -> Reserved:
    """Return what may be spent in windows from ``start_ms`` on, the largest promise of each.

    Args:
        promises: of all unexpired documents.
        oldest: as `oldest_epochs` says; who is not in it may go by any.
        live: the live members' rows.
        start_ms: start of the first window planned.
        window_ms: length of a window.
    """
    oldest_of_row = live.values_of(oldest)
    permits = zeros(len(live))
    others: dict[Member, tuple[int, int]] = {}
    last_until_ms = 0
    for promised in promises:
        until_ms, capacity = promised.until_ms, promised.line.terms.capacity
        if start_ms + window_ms > until_ms:
            continue
        entries = EntryColumns.of(promised.line.entries)
        given = entries.safe_points.astype(kind_for(capacity * POINTS)) * capacity // POINTS
        row_of = live.find(entries.members)
        may_spend = np.flatnonzero((row_of >= 0) & (given > 0))
        # Most members have acknowledged the newest document, so an older one concerns few.
        may_spend = may_spend[oldest_of_row[row_of[may_spend]] <= promised.epoch]
        rows = row_of[may_spend]
        permits[rows] = np.maximum(permits[rows], given[may_spend])
        if len(rows):
            last_until_ms = max(last_until_ms, until_ms)
        for place in np.flatnonzero((row_of < 0) & (given > 0)).tolist():
            member = entries.members[place]
            if oldest.get(member, 0) > promised.epoch:
                continue
            known_permits, known_until_ms = others.get(member, _NOTHING)
            most = max(known_permits, int(given[place]))
            others[member] = (most, max(known_until_ms, until_ms))
            last_until_ms = max(last_until_ms, until_ms)
    return Reserved(permits, others, last_until_ms)


def reserved_points(reserved: Reserved, capacity: int) -> tuple[Ints, Ints, bool]:
    """Return points reserved for the live and the others, and whether nobody else may get any.

    ``ceil(F·10^9 / C)`` points always give F permits. Where that does not fit (the capacity was
    lowered), each gets ``floor(F·10^9 / max(C, ΣF))``, which never gives more than F, and nobody
    anything else: the window's bound is then max(C, ΣF).
    """
    count = len(reserved.live)
    permits = np.concatenate((reserved.live, ints(most for most, _ in reserved.others.values())))
    points, is_full = points_of(permits, capacity), False
    if int(permits.max(initial=0)) > capacity or total(points) > POINTS:
        bound, is_full = max(capacity, total(permits)), True
        points = (permits.astype(LARGE) * POINTS // bound).astype(permits.dtype)
    return points[:count], points[count:], is_full


def gives_permits(promises: Iterable[Promises], now_ms: int) -> bool:
    """Say whether any document still gives or promises permits of a destination at ``now_ms``."""
    for promised in promises:
        terms = promised.line.terms
        if terms.capacity == 0 or not promised.line.entries:
            continue
        covered_until_ms = terms.until_window * terms.window_seconds * 1000
        if max(covered_until_ms, promised.until_ms) > now_ms:
            return True
    return False
