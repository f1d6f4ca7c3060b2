"""The points that a document holds back for safety: how many, for whom, and until when.

The planner decides them. A hold carries no name; this finds whose it is again, from the documents
that made the promise. Knows no store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from balancer.core.model import PERCENT_POINTS
from balancer.core.reservations import promise_until_ms
from worker_sdk.wire.distribution import DestinationShares, Document, Member
from worker_sdk.wire.shares import POINTS, points_for_permits, safe_permits


@dataclass(frozen=True, slots=True)
class Held:
    """The points of one destination that a document keeps back.

    Attributes:
        points: in all.
        count: number of holds.
        until_ms: the longest date; None where there is none.
    """

    points: int
    count: int
    until_ms: int | None

    def as_json(self, capacity: int) -> dict[str, object]:
        """Return it as JSON values; ``permits`` is the part of the capacity, rounded down."""
        return {
            "points": self.points,
            "percent": self.points / PERCENT_POINTS,
            "permits": capacity * self.points // POINTS,
            "count": self.count,
            "until_ms": self.until_ms,
        }


@dataclass(frozen=True, slots=True)
class Holder:
    """Whom a hold is for.

    Attributes:
        member: who may still be spending; None where the documents at hand do not tell.
        points: kept for it.
        until_ms: the hold's date; it ends sooner by a goodbye or an acknowledgement.
    """

    member: Member | None
    points: int
    until_ms: int


def held_of(line: DestinationShares) -> Held:
    """Return what the document keeps back of one destination."""
    return Held(
        points=sum(hold.end - hold.start for hold in line.holds),
        count=len(line.holds),
        until_ms=max((hold.until_ms for hold in line.holds), default=None),
    )


def holders_of(
    epoch: int, line: DestinationShares, documents: Iterable[Document]
) -> Sequence[Holder]:
    """Return whom the holds of a line are for, in the order of their points.

    A hold is that of a member without an entry, whose promise in an older document has the hold's
    points and date. Holds lie in the order of members' names, so those of one size are told apart
    unless somebody with just such a promise took leave.

    Args:
        epoch: of the document with the line.
        line: with the holds.
        documents: all that are unexpired.
    """
    have = {entry.member for entry in line.entries}
    promised = _promised([known for known in documents if known.epoch < epoch], line, have)
    candidates = [
        (member, _forms(promised[member], line.terms.capacity)) for member in sorted(promised)
    ]
    holders: list[Holder] = []
    first = 0
    for hold in sorted(line.holds, key=lambda laid: laid.start):
        form = (hold.end - hold.start, hold.until_ms)
        found = next(
            (place for place in range(first, len(candidates)) if form in candidates[place][1]),
            None,
        )
        member = None
        if found is not None:
            member, first = candidates[found][0], found + 1
        holders.append(Holder(member, *form))
    return holders


def holders_as_json(
    epoch: int, line: DestinationShares, documents: Iterable[Document]
) -> list[dict[str, object]]:
    """Return `holders_of` as JSON values; host and instance are null where they are not told."""
    told: list[dict[str, object]] = []
    for holder in holders_of(epoch, line, documents):
        host, instance = holder.member or (None, None)
        date = {"points": holder.points, "until_ms": holder.until_ms}
        told.append({"host": host, "instance": instance, **date})
    return told


def _promised(
    documents: Iterable[Document], line: DestinationShares, have: Collection[Member]
) -> dict[Member, list[tuple[int, int]]]:
    """Return (permits, date) of what was promised to those without an entry, newest first."""
    promised: dict[Member, list[tuple[int, int]]] = {}
    for document in sorted(documents, key=lambda known: -known.epoch):
        for shares in document.destinations:
            if shares.terms.destination != line.terms.destination:
                continue
            until_ms = promise_until_ms(document, shares.terms)
            for entry in shares.entries:
                permits = safe_permits(shares.terms.capacity, entry.safe_points)
                if permits > 0 and entry.member not in have:
                    promised.setdefault(entry.member, []).append((permits, until_ms))
    return promised


def _forms(promises: Sequence[tuple[int, int]], capacity: int) -> set[tuple[int, int]]:
    """Return the (points, date) that a hold for these promises, newest first, may have.

    An acknowledgement ends the promises of older epochs; which came is not known here.
    """
    forms: set[tuple[int, int]] = set()
    most_permits, latest_ms = 0, 0
    for permits, until_ms in promises:
        most_permits, latest_ms = max(most_permits, permits), max(latest_ms, until_ms)
        if capacity > 0:
            forms.add((points_for_permits(most_permits, capacity), latest_ms))
    return forms
