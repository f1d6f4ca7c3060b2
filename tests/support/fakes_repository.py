"""The repository in memory: the contract suite holds it to what the real one does."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from balancer.app.agenda import largest_epoch_by
from balancer.app.peers import BoardState, Reader
from balancer.core.memory import Memory
from balancer.core.model import Destination, MemberRecord, Usage
from balancer.errors import BalancerError, ConflictError
from balancer.ports import (
    AcceptedBatch,
    LeaseRecord,
    ShardRows,
    StoredCounts,
)
from tests.support.fakes_history import FakeHistory
from worker_sdk.wire.distribution import Member
from worker_sdk.wire.usage import MemberState


@dataclass
class _Lease:
    number: int
    holder: str
    expires_ms: int
    epoch: int = 0
    valid_until_ms: int = 0
    memory: Memory = field(default_factory=Memory)


class FakeRepository(FakeHistory):
    """Everything in dictionaries; ``refuse`` and ``failures`` play a database's faults."""

    def __init__(self) -> None:
        super().__init__()
        self.clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        self.failures: list[BalancerError] = []
        self.refuse: Callable[[AcceptedBatch], BalancerError | None] = lambda _: None
        self.stored: list[Sequence[AcceptedBatch]] = []
        self._usage: dict[tuple[str, str, str], Usage] = {}
        self._members: dict[Member, MemberRecord] = {}
        self._acknowledged: dict[tuple[int, str, str], tuple[int, int]] = {}
        self._told: dict[tuple[int, str, str], int] = {}
        self._destinations: dict[str, Destination] = {}
        self._leases: dict[int, _Lease] = {}
        self._readers: dict[str, Reader] = {}
        self._changes: dict[int, int] = {}

    async def check_schema(self) -> None:
        return

    async def store_batches(self, batches: Sequence[AcceptedBatch]) -> StoredCounts:
        if self.failures:
            raise self.failures.pop(0)
        for accepted in batches:
            if (fault := self.refuse(accepted)) is not None:
                raise fault
        self.stored.append(batches)
        given = 0
        written: set[tuple[str, str, str]] = set()
        for accepted in batches:
            given += len(accepted.batch.tuples)
            self._store_member(accepted)
            written |= self._store_usage(accepted)
        return StoredCounts(written=len(written), stale=given - len(written))

    def _store_member(self, accepted: AcceptedBatch) -> None:
        batch = accepted.batch
        leaves = batch.state is MemberState.LEAVING
        known = self._members.get((batch.host, batch.instance))
        if known is None or (
            known.left_ms is None and (leaves or known.instant_ms < batch.sent_at_ms)
        ):
            self._members[batch.host, batch.instance] = MemberRecord(
                batch.host,
                batch.instance,
                batch.group,
                batch.sent_at_ms,
                accepted.seen_ms,
                left_ms=accepted.arrived_ms if leaves else None,
                spent=dict(batch.spent),
            )
        for shard, epoch in batch.epochs.items():
            key = (shard, batch.host, batch.instance)
            self._told[key] = max(epoch, self._told.get(key, 0))
            lease = self._leases.get(shard)
            is_recorded = lease is not None and epoch <= lease.epoch
            if is_recorded and self._acknowledged.get(key, (0, 0))[0] < epoch:
                self._acknowledged[key] = (epoch, accepted.arrived_ms)

    def _store_usage(self, accepted: AcceptedBatch) -> set[tuple[str, str, str]]:
        batch = accepted.batch
        written = set()
        for entry in batch.tuples:
            key = (entry.destination, batch.host, batch.instance)
            known = self._usage.get(key)
            if known is None or known.instant_ms < entry.instant_ms:
                written.add(key)
                member = (batch.host, batch.instance)
                self._usage[key] = Usage.of(member, entry, accepted.seen_ms)
        return written

    async def load_shard(
        self, shard: int, destinations: Sequence[str], *, now_ms: int, ttl_ms: int, keep_ms: int
    ) -> ShardRows:
        members = []
        for (host, instance), record in self._members.items():
            if now_ms - record.seen_ms < keep_ms:
                epoch, at_ms = self._acknowledged.get((shard, host, instance), (0, 0))
                members.append(replace(record, acknowledged_epoch=epoch, acknowledged_ms=at_ms))
        return ShardRows(
            members=tuple(members),
            usage=tuple(
                entry
                for entry in self._usage.values()
                if entry.destination in destinations and now_ms - entry.seen_ms < ttl_ms
            ),
            largest_reported_epoch=max(
                (
                    epoch
                    for key, told in self._told.items()
                    for epoch in (told, self._acknowledged.get(key, (0, 0))[0])
                    if key[0] == shard and epoch <= largest_epoch_by(now_ms)
                ),
                default=0,
            ),
        )

    async def known_host(self, host: str) -> bool:
        return any(known == host for known, _ in self._members)

    async def remove_expired(self, *, now_ms: int, ttl_ms: int, keep_ms: int, limit: int) -> int:
        old = [key for key, entry in self._usage.items() if now_ms - entry.seen_ms >= ttl_ms]
        for key in old[:limit]:
            del self._usage[key]
        left = limit - len(old[:limit])
        gone = [key for key, entry in self._members.items() if now_ms - entry.seen_ms >= keep_ms]
        for member in gone[:left]:
            del self._members[member]
            for known in [key for key in self._told if key[1:] == member]:
                del self._told[known]
                self._acknowledged.pop(known, None)
        return len(old[:limit]) + len(gone[:left])

    async def list_destinations(self, *, include_removed: bool = False) -> Sequence[Destination]:
        found = sorted(self._destinations.items())
        return [entry for _, entry in found if include_removed or not entry.removed]

    async def put_destination(self, destination: Destination) -> bool:
        known = self._destinations.get(destination.name)
        if known is not None and known.window_seconds != destination.window_seconds:
            raise ConflictError("window_seconds is fixed")
        self._destinations[destination.name] = destination
        return known is None

    async def remove_destination(self, name: str, *, now_ms: int) -> bool:
        known = self._destinations.get(name)
        if known is None or known.removed:
            return False
        self._destinations[name] = replace(known, removed=True, changed_at_ms=now_ms)
        return True

    async def forget_destination(self, name: str) -> None:
        if name in self._destinations and self._destinations[name].removed:
            del self._destinations[name]

    async def now_ms(self) -> int:
        return self.clock_ms()

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
        for shard in shards:
            self._leases.setdefault(shard, _Lease(0, "", now_ms))
        asked = {shard: self._leases[shard] for shard in sorted(shards)}
        mine = [lease for lease in asked.values() if lease.holder == holder]
        free = [
            lease
            for _, lease in sorted(asked.items(), key=lambda item: (item[1].expires_ms, item[0]))
            if lease.holder != holder and lease.expires_ms <= now_ms
        ]
        room = len(asked) if most is None else most - len(mine)
        for lease in mine:
            lease.expires_ms = now_ms + ttl_ms
        untaken = sum(lease.expires_ms <= now_ms - ttl_ms for lease in free)
        for lease in free[: max(0, room, untaken)]:
            lease.number += 1
            lease.holder, lease.expires_ms = holder, now_ms + ttl_ms
        records = []
        for shard, lease in asked.items():
            held = lease.holder == holder
            is_new = held and (known or {}).get(shard) != lease.number
            records.append(
                LeaseRecord(
                    shard,
                    lease.number,
                    held,
                    lease.epoch,
                    lease.valid_until_ms,
                    lease.memory if is_new else Memory(),
                )
            )
        return records

    async def record_epoch(
        self, shard: int, number: int, epoch: int, *, valid_until_ms: int, memory: Memory
    ) -> bool:
        lease = self._leases.get(shard)
        if lease is None or lease.number != number or lease.epoch >= epoch:
            return False
        lease.epoch, lease.memory = epoch, memory
        lease.valid_until_ms = max(lease.valid_until_ms, valid_until_ms)
        return True

    async def exchange(self, reader: Reader, *, forget_before_ms: int, limit: int) -> BoardState:
        self._readers[reader.name] = reader
        self._readers = {
            name: entry
            for name, entry in self._readers.items()
            if entry.heard_ms >= forget_before_ms
        }
        found = sorted(self._readers.values(), key=lambda entry: entry.heard_ms, reverse=True)
        return BoardState(tuple(found[:limit]), dict(self._changes))

    async def note_changes(self, shards: Collection[int]) -> None:
        for shard in set(shards):
            self._changes[shard] = self._changes.get(shard, 0) + 1

    async def remove_reader(self, name: str) -> None:
        self._readers.pop(name, None)

    async def release_leases(self, holder: str, shards: Collection[int] | None = None) -> None:
        now_ms = await self.now_ms()
        for shard, lease in self._leases.items():
            if lease.holder == holder and (shards is None or shard in shards):
                lease.holder, lease.expires_ms = "", min(lease.expires_ms, now_ms)
