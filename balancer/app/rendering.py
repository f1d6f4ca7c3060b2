"""A shard's documents, and what of them each host is told.

Decides what of a document each host is told, where that lies, and which destinations are rendered
beforehand: those that somebody asked about lately, by the dates of the documents. Where workers
read documents from the store nobody asks, and rendering every host's part each round would cost as
much as planning; for such a destination a host's part is made when the host asks. Knows neither
clock nor server.

What is rendered is kept in a few large texts: an object for each host would make millions, which
the garbage collector would have to walk through.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np

from balancer.core.columns import Ints
from balancer.core.entry_columns import EntryColumns
from worker_sdk.wire.answers import (
    encode_row_end,
    encode_row_ends,
    encode_row_head,
    narrow_row_end,
)
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Member

_LINE_SHIFT: Final = 32  # larger than the number of hosts of any destination
_HOST_MASK: Final = (1 << _LINE_SHIFT) - 1
_ALL_ASKED: Final[Mapping[str, int]] = {}

UNASKED_MS: Final = 120_000
"""A destination that nobody asked about for so long is not rendered beforehand; workers that ask do
so once a round."""

HostPlaces = Mapping[str, "int | array[int]"]
"""Where each host is: a number, or several where it is in several lines. Each packs two: which line
of the document, and which host of the line."""


@dataclass(slots=True)
class Line:
    """A destination in a document.

    Attributes:
        shares: as in the document.
        entries: of them.
        name: of the destination.
        head: how every host's row begins.
        nobody: how the row of a host ends that has no entry.
        rows: the entries of each host; None where each has one.
        ends: how the rows of all hosts end, joined; None where that is not rendered.
        bounds: where in ``ends`` each begins, and the last ends.
        first: of each entry the first row of its intervals; None until one is asked for.
        asked_ms: when somebody last asked about the destination, or first could, by the dates of
            the documents before.
        asked: whether anybody asked for a row.
    """

    shares: DestinationShares
    entries: EntryColumns
    name: str
    head: bytes
    nobody: bytes
    rows: Sequence[Sequence[int]] | None
    asked_ms: int
    ends: bytes | None = None
    bounds: Sequence[int] = ()
    first: Ints | None = None
    asked: bool = False

    def end(self, number: int) -> bytes:
        """Return how a host's row ends."""
        self.asked = True
        if self.ends is not None:
            return self.ends[self.bounds[number] : self.bounds[number + 1]]
        own = (number,) if self.rows is None else self.rows[number]
        return encode_row_end(self.shares.terms.capacity, list(map(self._entry, own)))

    def _entry(self, row: int) -> Entry:
        """Return one entry; from a sequence of columns it would take some ten times as long."""
        pieces = self.entries.intervals
        if self.first is None:
            self.first = np.cumsum(pieces.count) - pieces.count
        first = int(self.first[row])
        own = range(first, first + int(pieces.count[row]))
        intervals = tuple([(int(pieces.start[at]), int(pieces.end[at])) for at in own])
        return Entry(*self.entries.members[row], intervals, int(self.entries.safe_points[row]))

    def render(self) -> None:
        """Render the rows of all hosts."""
        capacity = self.shares.terms.capacity
        if self.rows is None:
            members, safe_points = self.entries.members, self.entries.safe_points.tolist()
            instances = [instance for _, instance in members]
            parts = zip(instances, self.entries.intervals.as_tuples(), safe_points, strict=True)
            ends = encode_row_ends(capacity, parts)
        else:
            entries = list(self.entries)
            ends = [encode_row_end(capacity, [entries[row] for row in own]) for own in self.rows]
        self.bounds = array("q", accumulate(map(len, ends), initial=0))
        self.ends = b"".join(ends)


@dataclass(frozen=True, slots=True)
class Indexed:
    """A document, and where in it each host is.

    Attributes:
        document: as published.
        lines: its destinations.
        numbers: where in ``lines`` each name is.
        places: where each host is.
    """

    document: Document
    lines: Sequence[Line]
    numbers: Mapping[str, int]
    places: HostPlaces

    def ends(self, host: str) -> dict[str, bytes]:
        """Return how a host's rows end, by destination."""
        places = self.places.get(host)
        if places is None:
            return {}
        found: dict[str, bytes] = {}
        for place in (places,) if isinstance(places, int) else places:
            line = self.lines[place >> _LINE_SHIFT]
            found[line.name] = line.end(place & _HOST_MASK)
        return found


def index_document(
    document: Document, before: Indexed | None = None, unasked: Mapping[str, int] = _ALL_ASKED
) -> Indexed:
    """Return where each host is in the document, rendered for all of them where somebody may ask.

    Args:
        document: to index.
        before: another; where both are of the same members, so are the places.
        unasked: destinations about which nobody asked since a date, in Unix milliseconds.
    """
    of_all = [EntryColumns.of(shares.entries) for shares in document.destinations]
    is_alike = before is not None and [entries.members for entries in of_all] == [
        line.entries.members for line in before.lines
    ]
    if before is not None and is_alike:
        places, rows = before.places, [line.rows for line in before.lines]
    else:
        places, rows = _placed(entries.members for entries in of_all)
    lines = []
    for shares, entries, own in zip(document.destinations, of_all, rows, strict=True):
        terms = shares.terms
        head, nobody = encode_row_head(document, terms), encode_row_end(terms.capacity, ())
        asked_ms = unasked.get(terms.destination, document.published_at_ms)
        line = Line(shares, entries, terms.destination, head, nobody, own, asked_ms)
        if document.published_at_ms - asked_ms < UNASKED_MS:
            line.render()
        lines.append(line)
    numbers = {line.name: number for number, line in enumerate(lines)}
    return Indexed(document, lines, numbers, places)


def _placed(
    of_lines: Iterable[Sequence[Member]],
) -> tuple[HostPlaces, list[Sequence[Sequence[int]] | None]]:
    """Return the places of hosts, and of each line the entries of each host."""
    places: dict[str, int | array[int]] = {}
    rows: list[Sequence[Sequence[int]] | None] = []
    for number, members in enumerate(of_lines):
        own: dict[str, list[int]] = {}
        for row, (host, _) in enumerate(members):
            own.setdefault(host, []).append(row)
        rows.append(list(own.values()) if len(own) < len(members) else None)
        for place, host in enumerate(own, number << _LINE_SHIFT):
            before = places.get(host)
            if before is None:
                places[host] = place
            elif isinstance(before, int):
                places[host] = array("q", (before, place))
            else:
                before.append(place)
    return places, rows


@dataclass(frozen=True, slots=True)
class Shown:
    """A shard's documents, newest first.

    Attributes:
        documents: indexed.
        newest: the hosts of the newest.
        gone: hosts of the others that are not in the newest.
    """

    documents: tuple[Indexed, ...]
    newest: Mapping[str, object]
    gone: frozenset[str]

    @property
    def hosts(self) -> Set[str]:
        """All hosts of them."""
        return self.newest.keys() | self.gone if self.gone else self.newest.keys()

    @property
    def epochs(self) -> list[int]:
        """Their epochs, newest first."""
        return [indexed.document.epoch for indexed in self.documents]

    @property
    def unasked(self) -> Mapping[str, int]:
        """Destinations of them about which nobody asked, and since when."""
        lines = [line for indexed in self.documents for line in indexed.lines]
        asked = {line.name for line in lines if line.asked}
        return {line.name: line.asked_ms for line in reversed(lines) if line.name not in asked}


NOTHING: Final = Shown((), {}, frozenset())


def change(
    documents: Sequence[Document], before: Shown
) -> tuple[Shown, frozenset[str], frozenset[str]]:
    """Return a shard's new documents, indexed where they were not, and who came and who left."""
    known = {indexed.document.epoch: indexed for indexed in before.documents}
    last, unasked = next(iter(before.documents), None), before.unasked
    indexed = tuple(
        known.get(each.epoch) or index_document(each, last, unasked) for each in documents
    )
    after = NOTHING
    if indexed:
        newest, *others = [each.places for each in indexed]
        gone = frozenset(host for places in others for host in places.keys() - newest.keys())
        after = Shown(indexed, newest, gone)
    had, has = before.hosts, after.hosts
    return after, frozenset(has - had), frozenset(had - has)


def rows_of(shard: Sequence[Indexed], host: str, instance: str | None) -> dict[str, list[bytes]]:
    """Return the rows of every destination in which the host has an entry in any document."""
    rows = _rows_of_one(shard, host, instance)
    if rows is not None:
        return rows
    ends = [indexed.ends(host) for indexed in shard]
    rows = {name: [] for own in ends for name in own}
    for indexed, own in zip(shard, ends, strict=True):
        for name, known in rows.items():
            number = indexed.numbers.get(name)
            if number is not None:
                line = indexed.lines[number]
                end = own.get(name, line.nobody)
                if instance is not None:
                    end = narrow_row_end(end, instance)
                known.append(line.head + end)
    return rows


def _rows_of_one(
    shard: Sequence[Indexed], host: str, instance: str | None
) -> dict[str, list[bytes]] | None:
    """Return what `rows_of` does where every document has the host in the same one destination.

    Nearly every answer is of this kind, and whole fleets ask within seconds.
    """
    name = ""
    rows: list[bytes] = []
    for indexed in shard:
        place = indexed.places.get(host)
        if not isinstance(place, int):
            return None
        line = indexed.lines[place >> _LINE_SHIFT]
        if rows and line.name != name:
            return None
        name = line.name
        end = line.end(place & _HOST_MASK)
        rows.append(line.head + (end if instance is None else narrow_row_end(end, instance)))
    return {name: rows}
