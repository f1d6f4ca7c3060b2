"""What HTTP serves: the current documents, from memory.

Decides which documents answer for a host, and who is told that an answer has changed. Knows no
server. Documents are swapped whole, so that a reader sees one state or the next.

When a document comes, what it tells each host is rendered on a thread, for destinations that
somebody asks about (`balancer.app.rendering`); an answer is put together from such pieces in some
microseconds.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Final

from balancer.app.holds import held_of
from balancer.app.rendering import NOTHING, Shown, change, rows_of
from balancer.core.model import PERCENT_POINTS
from worker_sdk.wire.answers import encode_rows
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, encode_terms
from worker_sdk.wire.shares import POINTS, share_points
from worker_sdk.wire.strict import dump_json

KEPT_MAX_BYTES: Final = 256 * 1024 * 1024
"""At most so much is kept of answers, for hosts that ask again before anything changes."""

KEPT_EXTRA_BYTES: Final = 2560
"""What keeping an answer costs beside its body, at most about: two names are kept with it."""

WAKE_AT_ONCE: Final = 16
"""So many waiters wake in one turn of the loop: each of them makes and sends an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A body, the tag that names its content, and the version of the view that it is of."""

    body: bytes
    tag: str
    version: int = 0


class DistributionView:
    """The documents of all shards, newest first, and the answers made of them.

    Attributes:
        shards: number of shards of the layout; 0 while that is not known.
        follows: whether it is told what other processes publish; else it has the documents of
            shards that this one leads, and answers for no host.
        version: grows with each change.
    """

    def __init__(self, shards: int = 0, *, follows: bool = True) -> None:
        self.shards = shards
        self.follows = follows
        self.version = 0
        self._shards: dict[int, Shown] = {}
        self._shards_of: dict[str, tuple[int, ...]] = {}
        self._kept: OrderedDict[tuple[str, str | None], Answer] = OrderedDict()
        self._kept_bytes = 0
        self._turns = 0
        self._turn_of: dict[int, int] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._to_wake: deque[asyncio.Future[None]] = deque()

    @property
    def is_complete(self) -> bool:
        """Whether every shard was looked at once."""
        return self.shards > 0 and len(self._shards) >= self.shards

    async def show(self, shard: int, documents: Sequence[Document]) -> None:
        """Take a shard's current documents, as `publish`; a large one is indexed on a thread."""
        turn = self._next_turn()
        before = self._shards.get(shard, NOTHING)
        after, came, left = await asyncio.to_thread(change, documents, before)
        if self._turn_of.get(shard, 0) > turn:
            return  # documents that came later were indexed sooner, and stay
        if self._shards.get(shard, NOTHING) is not before:
            after, came, left = change(documents, self._shards.get(shard, NOTHING))
        self._turn_of[shard] = turn
        self._swap(shard, after, came, left)

    def publish(self, shard: int, documents: Sequence[Document]) -> None:
        """Take a shard's current documents; waiters wake if they differ from those known."""
        self._turn_of[shard] = self._next_turn()
        self._swap(shard, *change(documents, self._shards.get(shard, NOTHING)))

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _swap(self, shard: int, after: Shown, came: Set[str], left: Set[str]) -> None:
        before = self._shards.get(shard, NOTHING)
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
        return tuple(indexed.document for indexed in self._shards.get(shard, NOTHING).documents)

    def answer(self, host: str, instance: str | None = None) -> Answer | None:
        """Return what ``GET /distribution/<host>`` answers; None where the host has no entry."""
        kept = self._kept.get((host, instance))
        if kept is not None and kept.version == self.version:
            return kept
        rows: dict[str, list[bytes]] = {}
        for shard in self._shards_of.get(host, ()):
            rows.update(rows_of(self._shards[shard].documents, host, instance))
        if not rows:
            return None
        made = make_answer(encode_rows(host, self.shards, rows), self.version)
        self._keep((host, instance), made)
        return made

    def _keep(self, key: tuple[str, str | None], made: Answer) -> None:
        """Keep an answer for a host that asks again; the oldest are dropped when it is too much.

        Answers of an earlier version are not dropped at once, which would take too long: they are
        replaced when their host asks again.
        """
        before = self._kept.pop(key, None)
        if before is not None:
            self._kept_bytes -= len(before.body) + KEPT_EXTRA_BYTES
        self._kept[key] = made
        self._kept_bytes += len(made.body) + KEPT_EXTRA_BYTES
        while self._kept_bytes > KEPT_MAX_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest.body) + KEPT_EXTRA_BYTES

    def empty_answer(self, host: str) -> Answer:
        """Return the answer about a host that is known and has no entry."""
        return make_answer(dump_json({"host": host, "shards": self.shards, "destinations": {}}))

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


def destination_answer(name: str, shard: int, documents: Iterable[Document]) -> Answer | None:
    """Return the documents of one destination with every member; None where there is none.

    ``{"destination","shard","documents":[{epoch, dates, terms, "held","holds","members":
    [{"host","instance","intervals","safe","percent","permits"},…]},…]}``, newest first.
    """
    rows = [
        _destination_row(document, line)
        for document in documents
        for line in document.destinations
        if line.terms.destination == name
    ]
    if not rows:
        return None
    return make_answer(dump_json({"destination": name, "shard": shard, "documents": rows}))


def make_answer(body: bytes, version: int = 0) -> Answer:
    """Return a body with its tag."""
    return Answer(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', version)


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
        "percent": points / PERCENT_POINTS,
        "permits": line.terms.capacity * points // POINTS,
    }
