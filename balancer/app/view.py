"""What HTTP serves: the current documents, from memory.

Decides which documents answer for a host, and when an answer has changed. Knows no server.
Documents are swapped whole, so that a reader sees one state or the next.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from balancer.app.safety import held_of
from worker_sdk.wire.answers import encode_host_answer
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, encode_terms
from worker_sdk.wire.pointer import shard_of
from worker_sdk.wire.shares import POINTS, share_points
from worker_sdk.wire.strict import dump_json

ANSWERS_MAX: Final = 200_000
"""So many answers are kept of one version; whoever asks for more makes them anew."""

_POINTS_OF_A_PERCENT: Final = POINTS // 100


@dataclass(frozen=True, slots=True)
class Answer:
    """A body and the tag that names its content."""

    body: bytes
    tag: str


@dataclass(frozen=True, slots=True)
class Indexed:
    """A document, and where in it each host and each destination is."""

    document: Document
    lines: Mapping[str, int]
    hosts: Mapping[str, Sequence[tuple[int, Entry]]]


def index_document(document: Document) -> Indexed:
    """Return the document with an index of its destinations and hosts."""
    hosts: dict[str, list[tuple[int, Entry]]] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(document.destinations):
        lines[line.terms.destination] = number
        for entry in line.entries:
            hosts.setdefault(entry.host, []).append((number, entry))
    return Indexed(document, lines, hosts)


class DistributionView:
    """The documents of all shards, newest first, and the answers made of them.

    Attributes:
        shards: number of shards of the layout; 0 while that is not known.
        version: grows with each change.
    """

    def __init__(self, shards: int = 0) -> None:
        self.shards = shards
        self.version = 0
        self._shards: dict[int, tuple[Indexed, ...]] = {}
        self._answers: dict[tuple[str, str | None], Answer] = {}
        self._changed = asyncio.Event()

    @property
    def is_complete(self) -> bool:
        """Whether every shard was looked at once."""
        return self.shards > 0 and len(self._shards) >= self.shards

    async def show(self, shard: int, documents: Sequence[Document]) -> None:
        """Take a shard's current documents, as `publish`; a large one is indexed on a thread."""
        known = {indexed.document.epoch for indexed in self._shards.get(shard, ())}
        new = [document for document in documents if document.epoch not in known]
        indexed = {
            document.epoch: await asyncio.to_thread(index_document, document) for document in new
        }
        self._swap(shard, documents, indexed)

    def publish(self, shard: int, documents: Sequence[Document]) -> None:
        """Take a shard's current documents; waiters wake if they differ from those known."""
        self._swap(shard, documents, {})

    def _swap(
        self, shard: int, documents: Sequence[Document], ready: Mapping[int, Indexed]
    ) -> None:
        before = self._shards.get(shard)
        known = {indexed.document.epoch: indexed for indexed in before or ()} | dict(ready)
        after = tuple(
            known.get(document.epoch) or index_document(document) for document in documents
        )
        self._shards[shard] = after
        if [indexed.document.epoch for indexed in before or ()] == [
            indexed.document.epoch for indexed in after
        ]:
            return
        self._answers = {}
        self.version += 1
        self.wake()

    def wake(self) -> None:
        """Wake every waiter, changed or not."""
        self._changed.set()
        self._changed = asyncio.Event()

    def documents_of(self, shard: int) -> tuple[Document, ...]:
        """Return a shard's documents, newest first."""
        return tuple(indexed.document for indexed in self._shards.get(shard, ()))

    def host_answer(self, host: str, instance: str | None = None) -> bytes | None:
        """Return the body of ``GET /distribution/<host>``; None where the host has no entry."""
        answer = self.answer(host, instance)
        return None if answer is None else answer.body

    def answer(self, host: str, instance: str | None = None) -> Answer | None:
        """Return the answer about a host; None where it has no entry."""
        key = (host, instance)
        kept = self._answers.get(key)
        if kept is not None:
            return kept
        documents: list[Document] = []
        names: set[str] = set()
        for shard in self._shards.values():
            found = _names_of(shard, host)
            if found:
                names |= found
                documents.extend(_part_of(indexed, host, found) for indexed in shard)
        body = encode_host_answer(host, self.shards, documents, names, instance)
        if not names or body is None:
            return None
        if len(self._answers) >= ANSWERS_MAX:
            self._answers = {}
        made = make_answer(body)
        self._answers[key] = made
        return made

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
        for indexed in self._shards.get(shard, ()):
            number = indexed.lines.get(name)
            if number is not None:
                line = indexed.document.destinations[number]
                rows.append(_destination_row(indexed.document, line))
        if not rows:
            return None
        return make_answer(dump_json({"destination": name, "shard": shard, "documents": rows}))

    async def wait_changed(self, version: int, timeout_seconds: float) -> int:
        """Wait until the version is no longer ``version``, or the time is over; return it."""
        changed = self._changed
        if self.version == version:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await changed.wait()
            except TimeoutError:
                pass
        return self.version


def make_answer(body: bytes) -> Answer:
    """Return a body with its tag."""
    return Answer(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _names_of(shard: Sequence[Indexed], host: str) -> set[str]:
    return {
        indexed.document.destinations[number].terms.destination
        for indexed in shard
        for number, _ in indexed.hosts.get(host, ())
    }


def _part_of(indexed: Indexed, host: str, names: Collection[str]) -> Document:
    """Return the document with some destinations and the entries of one host alone."""
    own: dict[int, list[Entry]] = {}
    for number, entry in indexed.hosts.get(host, ()):
        own.setdefault(number, []).append(entry)
    numbers = sorted(indexed.lines[name] for name in names if name in indexed.lines)
    lines = indexed.document.destinations
    return replace(
        indexed.document,
        destinations=tuple(
            DestinationShares(lines[number].terms, (), tuple(own.get(number, ())))
            for number in numbers
        ),
    )


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
