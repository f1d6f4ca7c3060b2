"""What the use cases need of the outside, as protocols.

Decides nothing. One contract suite a port runs over adapters and fakes. Every call that waits is
bounded by its adapter and fails with a `BalancerError` (`UnavailableError` where trying again later
can help). Instants are Unix milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from balancer.core.memory import Memory
from balancer.core.model import Destination, MemberRecord, Reason, Usage
from balancer.core.record import DestinationRecord, DetailRecord, History, Recorded, SpanRecord
from worker_sdk.errors import RejectReason
from worker_sdk.wire.distribution import Document
from worker_sdk.wire.usage import UsageBatch


class Clock(Protocol):
    """The time; only the outermost loops ask."""

    def now_ms(self) -> int:
        """Return the Unix instant in milliseconds."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds of a clock that never steps."""
        ...


# ---------------------------------------------------------------- usage log


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """One message as read: nothing of its content is trusted.

    ``appended_ms`` is the broker's own time of appending, None where the topic does not tell.
    ``key`` is the host as the producer set it; ``headers`` by lower-case name. ``backlog`` says
    that it lay in the log already when this reader started; ``unreadable`` that the log's client
    could not take it apart, so that there is no body.
    """

    partition: int
    offset: int
    body: bytes | None
    headers: Mapping[str, bytes]
    appended_ms: int | None
    key: bytes | None = None
    backlog: bool = False
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far behind the log this reader is.

    Attributes:
        partitions: which it reads.
        lag_records: how many records wait in those.
        is_assigned: whether the group has told it which; with more readers than partitions, none.
        silent_ms: for how long the most silent of them has not answered, be it with nothing.
    """

    partitions: tuple[int, ...]
    lag_records: int
    is_assigned: bool
    silent_ms: int = 0


class UsageLog(Protocol):
    """The topic of usage batches, read by a consumer group."""

    async def start(self) -> None:
        """Join the group.

        Raises:
            UnavailableError: where no broker answers in time.
        """
        ...

    async def read(self, *, max_records: int, wait_ms: int) -> Sequence[UsageRecord]:
        """Return the next records, perhaps none; memory is bounded whatever waits in the log."""
        ...

    async def commit(self, records: Sequence[UsageRecord]) -> None:
        """Commit behind these records, for partitions that are still assigned."""
        ...

    async def position(self) -> LogPosition:
        """Return the lag of the assigned partitions."""
        ...

    async def reject(self, record: UsageRecord, reason: RejectReason, detail: str) -> None:
        """Keep what cannot be accepted on the rejected topic, with the reason in a header."""
        ...

    async def stop(self) -> None:
        """Leave the group, within a bound."""
        ...


# ---------------------------------------------------------------- repository

REASONS_MAX: Final = 1_000  # are read at once where nobody says how many


@dataclass(frozen=True, slots=True)
class AcceptedBatch:
    """A batch that passed validation.

    ``seen_ms`` is the trusted clock's instant (appending, else arrival) from which life runs;
    ``arrived_ms`` the balancer's own, from which releases count.
    """

    batch: UsageBatch
    seen_ms: int
    arrived_ms: int


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """What storing did: rows written, and tuples that changed nothing (older or equal)."""

    written: int
    stale: int


@dataclass(frozen=True, slots=True)
class ShardRows:
    """What the repository knows of one shard for a round."""

    members: tuple[MemberRecord, ...]
    usage: Sequence[Usage]
    largest_reported_epoch: int


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The right to plan a shard, and what its holders have published.

    Attributes:
        shard: its number.
        number: grows with each take-over; fences the others out.
        held: whether the asker holds it now.
        epoch: largest epoch recorded.
        valid_until_ms: latest instant until which any recorded document gives permits (validity and
            on_expiry included); 0 for none.
        memory: the planner's as of that epoch; empty where it is not held, or known already.
    """

    shard: int
    number: int
    held: bool
    epoch: int
    valid_until_ms: int
    memory: Memory


class Repository(Protocol):
    """Postgres: members, accounts, destinations, leases, history."""

    async def check_schema(self) -> None:
        """Check that the schema is the one this version works on.

        Raises:
            SchemaError: older or newer; says what to run.
        """
        ...

    async def store_batches(self, batches: Sequence[AcceptedBatch]) -> StoredCounts:
        """Upsert accounts, members and acknowledgements in one transaction.

        Writes only where the stored instant is older; equal instants change nothing. Who said
        goodbye stays gone, whatever comes after. Epochs not on record acknowledge nothing.

        Raises:
            UnavailableError: nothing is known to be stored; the same may be stored again later.
            RefusedError: a value in them can never be stored; nothing was.
        """
        ...

    async def load_shard(
        self, shard: int, destinations: Sequence[str], *, now_ms: int, ttl_ms: int, keep_ms: int
    ) -> ShardRows:
        """Return accounts younger than the TTL (age < ttl) and members younger than ``keep_ms``."""
        ...

    async def known_host(self, host: str) -> bool:
        """Say whether any member under this host name is on record."""
        ...

    async def remove_expired(self, *, now_ms: int, ttl_ms: int, keep_ms: int, limit: int) -> int:
        """Remove accounts past the TTL and members past ``keep_ms``, at most ``limit`` rows."""
        ...

    async def list_destinations(self, *, include_removed: bool = False) -> Sequence[Destination]:
        """Return all destinations, in ascending order of name."""
        ...

    async def put_destination(self, destination: Destination) -> bool:
        """Create or change a destination; True where it is new.

        Raises:
            ConflictError: where window_seconds differs from the stored one.
        """
        ...

    async def remove_destination(self, name: str, *, now_ms: int) -> bool:
        """Mark a destination removed; False where there is none."""
        ...

    async def forget_destination(self, name: str) -> None:
        """Delete a removed destination once no document gives permits of it."""
        ...

    async def now_ms(self) -> int:
        """Return the repository's time in Unix milliseconds, the same for whoever asks."""
        ...

    async def acquire_leases(
        self,
        holder: str,
        shards: Sequence[int],
        *,
        now_ms: int,
        ttl_ms: int,
        most: int | None = None,
        known: Mapping[int, int] | None = None,
    ) -> Sequence[LeaseRecord]:
        """Renew held leases, take what is free or expired up to ``most``; return one a shard.

        What nobody took for ``ttl_ms`` is taken beyond. Under ``known`` numbers no memory is read.
        """
        ...

    async def record_epoch(
        self, shard: int, number: int, epoch: int, *, valid_until_ms: int, memory: Memory
    ) -> bool:
        """Record an epoch and the memory before its document is put; False where fenced out."""
        ...

    async def release_leases(self, holder: str, shards: Collection[int] | None = None) -> None:
        """Let go of the leases held of these shards, or of every one."""
        ...

    async def store_round(self, record: Recorded) -> None:
        """Keep a round: as a whole, each destination, and their members; once, however often."""
        ...

    async def load_in_force(
        self, destination: str, *, host: str | None = None, at_ms: int | None = None
    ) -> Sequence[DetailRecord]:
        """Return what members' shares at an instant came from: `balancer.core.record.in_force`."""
        ...

    async def load_reasons(
        self,
        destination: str,
        host: str | None = None,
        *,
        limit: int = REASONS_MAX,
        at_ms: int | None = None,
    ) -> Sequence[tuple[int, Reason]]:
        """Return (epoch, reason) of the last round: of a host's members, or of all.

        The largest shares first, of equal ones by name. With an instant: what was then in force.
        """
        ...

    async def load_details(
        self,
        destination: str,
        *,
        from_ms: int,
        until_ms: int,
        limit: int,
        host: str | None = None,
    ) -> Sequence[DetailRecord]:
        """Return members round by round, planned from an instant to before another, ascending."""
        ...

    async def load_history(
        self, destination: str, *, from_ms: int, until_ms: int, limit: int
    ) -> History:
        """Return a destination's past, planned from an instant to before another, ascending.

        Of each kind of record at most ``limit``. Ten minutes belong to it that overlap it.
        """
        ...

    async def load_history_at(
        self, destination: str, at_ms: int
    ) -> DestinationRecord | SpanRecord | None:
        """Return the round, or ten minutes, whose shares were in force at an instant, or last."""
        ...

    async def clean_history(
        self, *, roll_up_before_ms: int, before_ms: int, details_before_ms: int, limit: int
    ) -> int:
        """Do one step of each, at most ``limit`` rows of a kind; return how many rows went.

        What was planned before ``roll_up_before_ms`` is summed up; rounds and sums of before
        ``before_ms`` go, and members whose windows ended before ``details_before_ms``.
        """
        ...


# ---------------------------------------------------------------- document store


@dataclass(frozen=True, slots=True)
class StoredShard:
    """What the store holds of a shard.

    Attributes:
        documents: every file that is unexpired or covers a window not yet past, newest first.
        pointed_epochs: the epochs that the pointer names, newest first.
        tag: of the pointer, for the conditional put; None where there is no pointer.
        largest_epoch: largest epoch in the listing, expired files included; 0 for none.
        unreadable_epochs: files that could not be read or parsed (their points count as lost).
    """

    documents: tuple[Document, ...]
    pointed_epochs: tuple[int, ...]
    tag: str | None
    largest_epoch: int
    unreadable_epochs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CurrentShard:
    """The documents that a shard's pointer names, newest first, and the pointer's tag."""

    documents: tuple[Document, ...]
    tag: str | None


class DocumentStore(Protocol):
    """S3: layout, documents and pointers."""

    async def check(self) -> None:
        """Check that the store can be used.

        Raises:
            UnavailableError: where it does not answer.
            BalancerError: where it refuses; names the setting.
        """
        ...

    async def open_layout(self, shards: int, *, create: bool = True) -> tuple[int, bool]:
        """Return (number of shards in force, whether this call created the layout)."""
        ...

    async def load(self, shard: int, *, now_ms: int) -> StoredShard:
        """Read a shard from the store, what was read before excepted."""
        ...

    async def current(self, shard: int, *, tag: str | None) -> CurrentShard | None:
        """Read what the pointer names; None where it is still the one tagged."""
        ...

    async def publish(self, document: Document, *, keep: Sequence[int], tag: str | None) -> str:
        """Put the file, then the pointer to it and to the ``keep`` epochs; return the new tag.

        Raises:
            ConflictError: where the pointer is no longer the one ``tag`` names, or the file exists.
            UnavailableError: where the outcome is not known.
        """
        ...

    async def remove_older(self, shard: int, *, before_ms: int, keep: Sequence[int]) -> int:
        """Remove files last changed before an instant, but for ``keep``; return how many."""
        ...


# ---------------------------------------------------------------- metrics


class Metrics(Protocol):
    """Counts and measures by the names of the catalogue in `balancer.app.catalogue`."""

    def count(self, name: str, amount: float = 1, labels: Mapping[str, str] | None = None) -> None:
        """Add to a counter."""
        ...

    def gauge(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Set a gauge."""
        ...

    def observe(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Add to a histogram."""
        ...

    def forget(self, name: str, labels: Mapping[str, str]) -> None:
        """Take away a gauge with these labels, if there is one: there is nothing to measure."""
        ...
