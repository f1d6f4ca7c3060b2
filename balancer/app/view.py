"""What HTTP serves: the current documents, from memory.

Decides which documents answer for a host, and who is told that an answer has changed. Knows no
server. Documents are swapped whole, so that a reader sees one state or the next.

What each host is told by a document is rendered when the document comes, on a thread: an answer is
joined of such pieces in some microseconds. Pieces lie together in few large texts, since objects
of their own would be millions for the garbage collector to walk through.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from balancer.app.safety import held_of
from worker_sdk.wire.answers import (
    encode_row_end,
    encode_row_head,
    encode_rows,
    narrow_row_end,
)
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, encode_terms
from worker_sdk.wire.pointer import shard_of
from worker_sdk.wire.shares import POINTS, share_points
from worker_sdk.wire.strict import dump_json

WAKE_AT_ONCE: Final = 16
"""So many waiters wake in one turn of the loop: each of them makes and sends an answer."""

_POINTS_OF_A_PERCENT: Final = POINTS // 100

_START_SHIFT: Final = 32  # larger than any row, since answers have a limit
_LINE_SHIFT: Final = 72  # larger than any document has bytes
_SIZE_MASK: Final = (1 << _START_SHIFT) - 1
_START_MASK: Final = (1 << _LINE_SHIFT - _START_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class Answer:
    """A body and the tag that names its content."""

    body: bytes
    tag: str


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
class _Shown:
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
        return self.newest.keys() | self.gone if self.gone else self.newest.keys()

    @property
    def epochs(self) -> list[int]:
        return [indexed.document.epoch for indexed in self.documents]


_NOTHING: Final = _Shown((), {}, frozenset())


def _change(
    documents: Sequence[Document], before: _Shown
) -> tuple[_Shown, frozenset[str], frozenset[str]]:
    """Return a shard's new documents, rendered where they were not, and who came and who left."""
    known = {indexed.document.epoch: indexed for indexed in before.documents}
    indexed = tuple(known.get(each.epoch) or index_document(each) for each in documents)
    after = _NOTHING
    if indexed:
        newest, *others = [each.places for each in indexed]
        gone = frozenset(host for places in others for host in places.keys() - newest.keys())
        after = _Shown(indexed, newest, gone)
    had, has = before.hosts, after.hosts
    return after, frozenset(has - had), frozenset(had - has)


class DistributionView:
    """The documents of all shards, newest first, and the answers made of them.

    Attributes:
        shards: number of shards of the layout; 0 while that is not known.
        version: grows with each change.
    """

    def __init__(self, shards: int = 0) -> None:
        self.shards = shards
        self.version = 0
        self._shards: dict[int, _Shown] = {}
        self._shards_of: dict[str, tuple[int, ...]] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._to_wake: deque[asyncio.Future[None]] = deque()

    @property
    def is_complete(self) -> bool:
        """Whether every shard was looked at once."""
        return self.shards > 0 and len(self._shards) >= self.shards

    async def show(self, shard: int, documents: Sequence[Document]) -> None:
        """Take a shard's current documents, as `publish`; a large one is indexed on a thread."""
        before = self._shards.get(shard, _NOTHING)
        after, came, left = await asyncio.to_thread(_change, documents, before)
        if self._shards.get(shard, _NOTHING) is not before:  # another was quicker
            after, came, left = _change(documents, self._shards.get(shard, _NOTHING))
        self._swap(shard, after, came, left)

    def publish(self, shard: int, documents: Sequence[Document]) -> None:
        """Take a shard's current documents; waiters wake if they differ from those known."""
        self._swap(shard, *_change(documents, self._shards.get(shard, _NOTHING)))

    def _swap(self, shard: int, after: _Shown, came: Set[str], left: Set[str]) -> None:
        before = self._shards.get(shard, _NOTHING)
        self._shards[shard] = after
        if before.epochs == after.epochs:
            return
        alone = (shard,)
        for host in came:
            others = self._shards_of.get(host)
            self._shards_of[host] = alone if others is None else (*others, shard)
        for host in left:
            others = tuple(other for other in self._shards_of[host] if other != shard)
            if others:
                self._shards_of[host] = others
            else:
                del self._shards_of[host]
        self.version += 1
        self._wake(lambda host: host in left or shard in self._shards_of.get(host, ()))

    def wake(self) -> None:
        """Wake every waiter, changed or not."""
        self._wake(lambda _: True)

    def _wake(self, is_meant: Callable[[str], bool]) -> None:
        is_under_way = bool(self._to_wake)
        for host in [host for host in self._waiting if is_meant(host)]:
            self._to_wake.extend(self._waiting.pop(host))
        if self._to_wake and not is_under_way:
            self._wake_some()

    def _wake_some(self) -> None:
        """Wake a few, and the next ones when the loop has seen to others as well."""
        for _ in range(min(WAKE_AT_ONCE, len(self._to_wake))):
            waiter = self._to_wake.popleft()
            if not waiter.done():
                waiter.set_result(None)
        if self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def documents_of(self, shard: int) -> tuple[Document, ...]:
        """Return a shard's documents, newest first."""
        return tuple(indexed.document for indexed in self._shards.get(shard, _NOTHING).documents)

    def host_answer(self, host: str, instance: str | None = None) -> bytes | None:
        """Return the body of ``GET /distribution/<host>``; None where the host has no entry."""
        answer = self.answer(host, instance)
        return None if answer is None else answer.body

    def answer(self, host: str, instance: str | None = None) -> Answer | None:
        """Return the answer about a host; None where it has no entry."""
        rows: dict[str, list[bytes]] = {}
        for shard in self._shards_of.get(host, ()):
            rows.update(_rows(self._shards[shard].documents, host, instance))
        return make_answer(encode_rows(host, self.shards, rows)) if rows else None

    def empty_answer(self, host: str) -> Answer:
        """Return the answer about a host that is known and has no entry."""
        return make_answer(dump_json({"host": host, "shards": self.shards, "destinations": {}}))

    def destination_answer(self, name: str) -> Answer | None:
        """Return the documents of one destination with every member; None where there is none.

        ``{"destination","shard","documents":[{epoch, dates, terms, "held","holds","members":
        [{"host","instance","intervals","safe","percent","permits"},…]},…]}``, newest first.
        """
        shard = shard_of(name, self.shards) if self.shards else 0
        rows: list[object] = []
        for indexed in self._shards.get(shard, _NOTHING).documents:
            number = indexed.numbers.get(name)
            if number is not None:
                rows.append(_destination_row(indexed.document, indexed.lines[number].shares))
        if not rows:
            return None
        return make_answer(dump_json({"destination": name, "shard": shard, "documents": rows}))

    async def wait_changed(self, host: str, version: int, timeout_seconds: float) -> int:
        """Wait until the answer about a host may have changed, or the time is over.

        Args:
            host: whose answer.
            version: at which it was made; where that is past, nothing is waited for.
            timeout_seconds: so long at most.

        Returns:
            The version now.
        """
        if self.version != version:
            return self.version
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, set()).add(waiter)
        try:
            async with asyncio.timeout(timeout_seconds):
                await waiter
        except TimeoutError:
            pass
        finally:
            waiters = self._waiting.get(host)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._waiting[host]
        return self.version


def make_answer(body: bytes) -> Answer:
    """Return a body with its tag."""
    return Answer(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _rows(shard: Sequence[Indexed], host: str, instance: str | None) -> dict[str, list[bytes]]:
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
    """Return what `_rows` does where every document has the host in the same one destination.

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


def _destination_row(document: Document, line: DestinationShares) -> dict[str, object]:
    return {
        "epoch": document.epoch,
        "published_at_ms": document.published_at_ms,
        "valid_until_ms": document.valid_until_ms,
        **encode_terms(line.terms),
        "held": held_of(line).as_json(line.terms.capacity),
        "holds": [[hold.start, hold.end, hold.until_ms] for hold in line.holds],
        "members": [_member_row(line, entry) for entry in line.entries],
    }


def _member_row(line: DestinationShares, entry: Entry) -> dict[str, object]:
    points = share_points(entry.intervals)
    return {
        "host": entry.host,
        "instance": entry.instance,
        "intervals": entry.intervals,
        "safe": entry.safe_points,
        "percent": points / _POINTS_OF_A_PERCENT,
        "permits": line.terms.capacity * points // POINTS,
    }
