"""Which documents a new one is built on, and what of an older line may be carried into it.

Decides what members may go by, which epochs the pointer must still name, and how far older shares
may be repeated beside documents of which nobody can say whether anybody read them. Knows no demand
and no strategy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from balancer.core.model import Snapshot
from balancer.core.reservations import Promises, promises_of
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Member
from worker_sdk.wire.shares import POINTS, safe_permits


@dataclass(frozen=True, slots=True)
class Lineage:
    """The documents known, told apart.

    Attributes:
        named: those that the pointer names, newest first: what a new one is built on.
        base: lines of the newest named one, by destination.
        promises: of all of them, by destination.

    The others count as unread: their put came too late, or the pointer that named them was set
    back. Nothing is built on them, but somebody may have read them; so their windows are not
    planned again, their points go to nobody else, and their safe points are reserved.
    """

    named: Sequence[Document]
    base: Mapping[str, DestinationShares]
    promises: Mapping[str, Sequence[Promises]]
    _unread: Mapping[str, Sequence[Promises]]

    def lines(self, destination: str, window_seconds: int) -> list[DestinationShares]:
        """Return every known line of a destination with windows of that length."""
        return _of_length(self.promises.get(destination, ()), window_seconds)

    def until_window(self, destination: str, window_seconds: int) -> int:
        """Return the first window that no document covers, whoever may have read it; 0 for none."""
        lines = self.lines(destination, window_seconds)
        return max((line.terms.until_window for line in lines), default=0)

    def carried(self, line: DestinationShares) -> DestinationShares:
        """Return the line as it may stand in a new document, whose validity is later.

        Where an unread document covers later windows, safe points must not reach further into them
        than what it gives the same member.
        """
        later = self._later(line)
        if not later:
            return line
        given = [_least_permits(other) for other in later]
        entries = []
        for entry in line.entries:
            permits = min(permits_of.get(entry.member, 0) for permits_of in given)
            entries.append(_with_safe_permits(entry, permits, line.terms.capacity))
        return replace(line, entries=tuple(entries))

    def may_repeat(self, line: DestinationShares) -> bool:
        """Say whether repeating the line keeps what unread documents of later windows promise.

        Those of the same or earlier windows were reserved for when the line was planned.
        """
        gives = _least_permits(line)
        return all(
            safe_permits(later.terms.capacity, entry.safe_points) <= gives.get(entry.member, 0)
            for later in self._later(line)
            for entry in later.entries
        )

    def _later(self, line: DestinationShares) -> list[DestinationShares]:
        terms = line.terms
        unread = self._unread.get(terms.destination, ())
        return [
            other
            for other in _of_length(unread, terms.window_seconds)
            if other.terms.until_window > terms.until_window
        ]


def lineage_of(snapshot: Snapshot) -> Lineage:
    """Tell the snapshot's documents apart."""
    pointed = snapshot.pointed_epochs
    named: list[Document] = []
    unread: list[Document] = []
    for document in snapshot.documents:
        is_named = (
            document.epoch <= snapshot.current_epoch
            if pointed is None
            else document.epoch in pointed
        )
        (named if is_named else unread).append(document)
    base = {line.terms.destination: line for line in named[0].destinations} if named else {}
    return Lineage(named, base, promises_of(snapshot.documents), promises_of(unread))


def still_needed(document: Document, named: Sequence[Document], now_ms: int) -> tuple[int, ...]:
    """Return the epochs below ``document`` that cover a window from now on, if none above does."""
    begins: dict[str, int] = {}
    for line in document.destinations:
        begins[line.terms.destination] = line.terms.from_window
    kept = []
    for older in named:
        needed = False
        for line in older.destinations:
            terms = line.terms
            present = now_ms // (terms.window_seconds * 1000)
            first = max(present, terms.from_window)
            before = begins.get(terms.destination, first + 1)
            if first < before and present < terms.until_window:
                needed = True
                begins[terms.destination] = first
        if needed:
            kept.append(older.epoch)
    return tuple(kept)


def _of_length(promises: Iterable[Promises], seconds: int) -> list[DestinationShares]:
    return [known.line for known in promises if known.line.terms.window_seconds == seconds]


def _least_permits(line: DestinationShares) -> dict[Member, int]:
    """Return the permits that each member's longest interval gives in every window."""
    return {
        entry.member: safe_permits(
            line.terms.capacity, max((end - start for start, end in entry.intervals), default=0)
        )
        for entry in line.entries
    }


def _with_safe_permits(entry: Entry, permits: int, capacity: int) -> Entry:
    if safe_permits(capacity, entry.safe_points) <= permits:
        return entry
    return replace(entry, safe_points=permits * POINTS // capacity)
