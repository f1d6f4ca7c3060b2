"""What replicas tell one another: who came or left, and how far behind each reader is.

Each replica keeps one row on the board: which partitions of the log it reads, and how far behind it
is. Beside that stands a number for each shard; a replica that reads a hello or goodbye for a shard
that it does not plan raises it, and the shard's leader sees that. Decides how far behind all
readers together are, and which shards a leader must look at. Knows no driver and no rule of
planning; the board is a part of the repository.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from balancer.core.learning import IngestView

LOOK_MAX_MS: Final = 1_000
LOOK_MIN_MS: Final = 100
LOOKS_A_ROUND: Final = 6

SILENT_LOOKS: Final = 4
SILENT_LEAST_MS: Final = 1_000

FORGET_MS: Final = 3_600_000
"""A replica not heard of for so long is forgotten: what it left unread is too old to count."""

READERS_MAX: Final = 1_000
"""So many readers are looked at, those heard of last."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One replica's account of its reading.

    Attributes:
        name: the replica's, unlike that of any other.
        heard_ms: when it said so.
        lag_ms: age of the oldest report that it had not stored then; 0 where all were.
        partitions: those of the log that it reads.
        caught_up: whether it has worked off what it found at its start.
    """

    name: str
    heard_ms: int
    lag_ms: int
    partitions: tuple[int, ...]
    caught_up: bool = True


@dataclass(frozen=True, slots=True)
class BoardState:
    """What stands on the board: the readers, and how often each shard was spoken of."""

    readers: tuple[Reader, ...]
    changes: Mapping[int, int]


class Board(Protocol):
    """Where replicas leave word for one another; every call is bounded and cheap."""

    async def exchange(self, reader: Reader, *, forget_before_ms: int, limit: int) -> BoardState:
        """Leave a reader's account and return what stands there, its own included.

        Readers that were last heard of before an instant are removed; at most ``limit`` are
        returned, those heard of last.
        """
        ...

    async def note_changes(self, shards: Collection[int]) -> None:
        """Raise the numbers of these shards: somebody came or left."""
        ...

    async def remove_reader(self, name: str) -> None:
        """Take away the account of a reader that leaves in order."""
        ...


def look_ms(round_ms: int) -> int:
    """Return how far apart two looks at the board are: a second, less where rounds are short."""
    return max(LOOK_MIN_MS, min(LOOK_MAX_MS, round_ms // LOOKS_A_ROUND))


def worst_lag_ms(readers: Sequence[Reader], now_ms: int, *, read_here: Collection[int]) -> int:
    """Return how far behind the other readers are: the worst of those who read something.

    An account ages: a reader that has said nothing since may be behind by so much more. It counts
    until each of its partitions is read by a reader heard of later, so that one that died counts as
    lagging until the consumer group has given its partitions away, and no longer. The replica that
    asks counts as heard of last, with ``read_here``.
    """
    worst_ms = 0
    read_later = set(read_here)
    for reader in sorted(readers, key=lambda entry: entry.heard_ms, reverse=True):
        if not read_later.issuperset(reader.partitions):
            worst_ms = max(worst_ms, reader.lag_ms + max(0, now_ms - reader.heard_ms))
        read_later.update(reader.partitions)
    return worst_ms


class Peers:
    """One replica's dealings with the board; `look` and `pause` are called in turn."""

    def __init__(self, board: Board, name: str, round_ms: int) -> None:
        self._board = board
        self._name = name
        self._look_ms = look_ms(round_ms)
        self._pending: set[int] = set()
        self._called = asyncio.Event()
        self._changes: Mapping[int, int] | None = None
        self._worst_lag_ms = 0
        self._replicas = 1
        self._others_read = False

    @property
    def replicas(self) -> int:
        """How many replicas were heard of lately, this one included; 1 before the first look."""
        return self._replicas

    def tell(self, shards: Collection[int]) -> None:
        """Tell whoever leads these shards, at once, that somebody came or left."""
        self._pending.update(shards)
        self._called.set()

    def view(self, own: IngestView) -> IngestView:
        """Return what this replica knows of ingest as that of all: the worst lag counts.

        Where another one reads and has caught up, what this one finds at start has waited for
        moments only; so one that was started again plans on while it joins the group. Where all
        were started at once, none speaks for another.
        """
        return replace(
            own,
            lag_ms=max(own.lag_ms, self._worst_lag_ms),
            caught_up=own.caught_up or self._others_read,
        )

    async def look(
        self,
        now_ms: int,
        own: IngestView,
        partitions: Collection[int],
        on_change: Callable[[Collection[int]], None],
    ) -> None:
        """Leave word, look, and tell ``on_change`` the shards spoken of since.

        ``now_ms`` is by a clock that all replicas share.

        Raises:
            UnavailableError: what was to be told is told the next time.
        """
        self._called.clear()
        await self._note()
        seen = await self._board.exchange(
            Reader(self._name, now_ms, own.lag_ms, tuple(sorted(partitions)), own.caught_up),
            forget_before_ms=now_ms - FORGET_MS,
            limit=READERS_MAX,
        )
        self._worst_lag_ms = worst_lag_ms(
            [reader for reader in seen.readers if reader.name != self._name],
            now_ms,
            read_here=partitions,
        )
        silent_ms = max(SILENT_LEAST_MS, SILENT_LOOKS * self._look_ms)
        others = [
            reader
            for reader in seen.readers
            if reader.name != self._name and now_ms - reader.heard_ms < silent_ms
        ]
        self._replicas = 1 + len(others)
        self._others_read = any(reader.partitions and reader.caught_up for reader in others)
        known, self._changes = self._changes, seen.changes
        if known is not None:
            spoken_of = {
                shard for shard, number in seen.changes.items() if number != known.get(shard, 0)
            }
            if spoken_of:
                on_change(spoken_of)

    async def pause(self) -> None:
        """Wait until the next look, or until something is to be told."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._look_ms / 1000):
                await self._called.wait()

    async def _note(self) -> None:
        pending, self._pending = self._pending, set()
        if pending:
            try:
                await self._board.note_changes(pending)
            except BaseException:
                self._pending |= pending
                raise

    async def leave(self) -> None:
        """Say goodbye: what it read is no longer this replica's to answer for."""
        await self._board.remove_reader(self._name)
