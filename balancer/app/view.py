"""What HTTP serves: the current documents, from memory.

Decides which documents answer for a host, and who is told that an answer has changed. Knows no
server. Documents are swapped whole, so that a reader sees one state or the next.

Answers are made when they are asked for, in a few microseconds: each is mostly asked for once a
round, so that making all of them beforehand would cost as much and stall the loop.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from balancer.app.safety import held_of
from worker_sdk.wire.answers import encode_row, encode_row_head, encode_rows
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, encode_terms
from worker_sdk.wire.pointer import shard_of
from worker_sdk.wire.shares import POINTS, share_points
from worker_sdk.wire.strict import dump_json

KEPT_MAX_BYTES: Final = 256 * 1024 * 1024
"""So much is kept of the answers to one version; what is asked for beyond is made anew."""

KEPT_EXTRA_BYTES: Final = 512
"""What keeping an answer costs beside its body, about."""

WAKE_AT_ONCE: Final = 64
"""So many waiters wake in one turn of the loop: each of them makes and sends an answer."""

_POINTS_OF_A_PERCENT: Final = POINTS // 100


@dataclass(frozen=True, slots=True)
class Answer:
    """A body and the tag that names its content."""

    body: bytes
    tag: str


@dataclass(frozen=True, slots=True)
class Line:
    """A destination in a document, and how every host's row of it begins."""

    shares: DestinationShares
    name: str
    capacity: int
    head: str


@dataclass(frozen=True, slots=True)
class Indexed:
    """A document, and where in it each destination and each host is; a host's in their order."""

    document: Document
    lines: Mapping[str, Line]
    hosts: Mapping[str, Sequence[tuple[Line, Entry]]]


def index_document(document: Document) -> Indexed:
    """Return the document with an index of its destinations and hosts."""
    hosts: dict[str, list[tuple[Line, Entry]]] = {}
    lines: dict[str, Line] = {}
    for shares in document.destinations:
        terms = shares.terms
        head = encode_row_head(document, terms)
        line = Line(shares, terms.destination, terms.capacity, head)
        lines[line.name] = line
        for entry in shares.entries:
            hosts.setdefault(entry.host, []).append((line, entry))
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
        self._kept: dict[tuple[str, str | None], Answer] = {}
        self._kept_bytes = 0
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._to_wake: deque[asyncio.Future[None]] = deque()

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
        self._forget_kept()
        self.version += 1
        changed = [indexed.hosts for indexed in (*(before or ()), *after)]
        self._wake(lambda host: any(host in hosts for hosts in changed))

    def _forget_kept(self) -> None:
        self._kept = {}
        self._kept_bytes = 0

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
        return tuple(indexed.document for indexed in self._shards.get(shard, ()))

    def host_answer(self, host: str, instance: str | None = None) -> bytes | None:
        """Return the body of ``GET /distribution/<host>``; None where the host has no entry."""
        answer = self.answer(host, instance)
        return None if answer is None else answer.body

    def answer(self, host: str, instance: str | None = None) -> Answer | None:
        """Return the answer about a host; None where it has no entry."""
        key = (host, instance)
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        rows: dict[str, list[str]] = {}
        for shard in self._shards.values():
            for indexed in shard:
                if host in indexed.hosts:
                    _add_rows(rows, shard, host, instance)
                    break
        if not rows:
            return None
        made = make_answer(encode_rows(host, self.shards, rows))
        self._kept_bytes += len(made.body) + KEPT_EXTRA_BYTES
        if self._kept_bytes > KEPT_MAX_BYTES:
            self._forget_kept()
        else:
            self._kept[key] = made
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
            known = indexed.lines.get(name)
            if known is not None:
                rows.append(_destination_row(indexed.document, known.shares))
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


def _add_rows(
    rows: dict[str, list[str]], shard: Sequence[Indexed], host: str, instance: str | None
) -> None:
    """Add the rows of every destination in which the host has an entry in any of the documents."""
    owns: list[dict[str, list[Entry]]] = []
    names: dict[str, None] = {}
    for indexed in shard:
        own: dict[str, list[Entry]] = {}
        for line, entry in indexed.hosts.get(host, ()):
            if line.name in own:
                own[line.name].append(entry)
            else:
                own[line.name] = [entry]
                names[line.name] = None
        owns.append(own)
    for name in names:
        rows[name] = [
            encode_row(known.head, known.capacity, own.get(name, ()), instance)
            for indexed, own in zip(shard, owns, strict=True)
            if (known := indexed.lines.get(name)) is not None
        ]


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
