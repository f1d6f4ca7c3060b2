"""A shard's documents, rendered for every host in them.

Decides what of a document each host is told, and where that lies. Knows neither time nor server.
Pieces lie together in few large texts, since objects of their own would be millions for the garbage
collector to walk through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from worker_sdk.wire.answers import encode_row_end, encode_row_head, narrow_row_end
from worker_sdk.wire.distribution import DestinationShares, Document, Entry

_START_SHIFT: Final = 32  # larger than any row, since answers have a limit
_LINE_SHIFT: Final = 72  # larger than any document has bytes
_SIZE_MASK: Final = (1 << _START_SHIFT) - 1
_START_MASK: Final = (1 << _LINE_SHIFT - _START_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class Line:
    """A destination in a document, rendered.

    Attributes:
        shares: as in the document.
        name: of the destination.
        head: how every host's row begins.
        ends: how the rows of all hosts end, one after another.
        nobody: how the row of a host ends that has no entry.
    """

    shares: DestinationShares
    name: str
    head: bytes
    ends: bytes
    nobody: bytes


@dataclass(frozen=True, slots=True)
class Indexed:
    """A document, rendered, and where in it each host is.

    Attributes:
        document: as published.
        lines: its destinations.
        numbers: where in ``lines`` each name is.
        places: where each host's rows end: a number for one line, a list for several. The number
            is line, start and size of the piece of `Line.ends`, packed.
    """

    document: Document
    lines: Sequence[Line]
    numbers: Mapping[str, int]
    places: Mapping[str, int | list[int]]

    def ends(self, host: str) -> dict[str, bytes]:
        """Return how a host's rows end, by destination."""
        places = self.places.get(host)
        if places is None:
            return {}
        found: dict[str, bytes] = {}
        for place in (places,) if isinstance(places, int) else places:
            line = self.lines[place >> _LINE_SHIFT]
            start = place >> _START_SHIFT & _START_MASK
            found[line.name] = line.ends[start : start + (place & _SIZE_MASK)]
        return found


def index_document(document: Document) -> Indexed:
    """Return the document, rendered for every host in it."""
    places: dict[str, int | list[int]] = {}
    lines = []
    for number, shares in enumerate(document.destinations):
        terms = shares.terms
        ends = []
        start = 0
        for host, own in _by_host(shares.entries).items():
            end = encode_row_end(terms.capacity, own)
            ends.append(end)
            place = number << _LINE_SHIFT | start << _START_SHIFT | len(end)
            start += len(end)
            before = places.get(host)
            if before is None:
                places[host] = place
            elif isinstance(before, int):
                places[host] = [before, place]
            else:
                before.append(place)
        head, nobody = encode_row_head(document, terms), encode_row_end(terms.capacity, ())
        lines.append(Line(shares, terms.destination, head, b"".join(ends), nobody))
    numbers = {line.name: number for number, line in enumerate(lines)}
    return Indexed(document, lines, numbers, places)


def _by_host(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.host, []).append(entry)
    return found


@dataclass(frozen=True, slots=True)
class Shown:
    """A shard's documents, newest first.

    Attributes:
        documents: rendered.
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


NOTHING: Final = Shown((), {}, frozenset())


def change(
    documents: Sequence[Document], before: Shown
) -> tuple[Shown, frozenset[str], frozenset[str]]:
    """Return a shard's new documents, rendered where they were not, and who came and who left."""
    known = {indexed.document.epoch: indexed for indexed in before.documents}
    indexed = tuple(known.get(each.epoch) or index_document(each) for each in documents)
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

    Nearly every answer is such a one, and whole fleets ask within seconds.
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
        start = place >> _START_SHIFT & _START_MASK
        end = line.ends[start : start + (place & _SIZE_MASK)]
        rows.append(line.head + (end if instance is None else narrow_row_end(end, instance)))
    return {name: rows}
