"""The repository and the document store, with a note of what comes of each write that is needed.

Decides which writes those are: reports, leases, epochs, what replicas tell one another, documents.
History is none of them, since nothing waits for it. Knows no table and no key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.s3.objects import S3Config
from balancer.adapters.s3.store import S3DocumentStore
from balancer.app.peers import BoardState, Reader
from balancer.app.readiness import Writes
from balancer.core.memory import Memory
from balancer.ports import AcceptedBatch, LeaseRecord, StoredCounts
from worker_sdk.wire.distribution import Document


class WatchedRepository(PostgresRepository):
    """`PostgresRepository`, watched."""

    writes: Writes

    @classmethod
    async def watched(cls, dsn: str, writes: Writes, *, pool_size: int) -> Self:
        """Connect, as `open` does; what comes of writes is noted in ``writes``.

        Raises:
            BalancerError: as `open` does.
        """
        repository = await cls.open(dsn, pool_size=pool_size)
        repository.writes = writes
        return repository

    async def store_batches(self, batches: Sequence[AcceptedBatch]) -> StoredCounts:
        """See the port."""
        with self.writes.noted("reports"):
            return await super().store_batches(batches)

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
        """See the port."""
        with self.writes.noted("leases"):
            return await super().acquire_leases(
                holder, shards, now_ms=now_ms, ttl_ms=ttl_ms, most=most, known=known
            )

    async def record_epoch(
        self, shard: int, number: int, epoch: int, *, valid_until_ms: int, memory: Memory
    ) -> bool:
        """See the port."""
        with self.writes.noted("epochs"):
            return await super().record_epoch(
                shard, number, epoch, valid_until_ms=valid_until_ms, memory=memory
            )

    async def exchange(self, reader: Reader, *, forget_before_ms: int, limit: int) -> BoardState:
        """See the board."""
        with self.writes.noted("readers"):
            return await super().exchange(reader, forget_before_ms=forget_before_ms, limit=limit)


class WatchedStore(S3DocumentStore):
    """`S3DocumentStore`, watched."""

    def __init__(self, config: S3Config, writes: Writes) -> None:
        super().__init__(config)
        self._writes = writes

    async def publish(self, document: Document, *, keep: Sequence[int], tag: str | None) -> str:
        """See the port."""
        with self._writes.noted("documents"):
            return await super().publish(document, keep=keep, tag=tag)
