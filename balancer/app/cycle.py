"""One round of one shard: snapshot, plan, fence, publish, serve.

Decides the order of steps and what a fault means for the round: whatever goes wrong, what is in
force stays in force, and nothing is assumed of a put whose outcome is not known. Knows no rule of
planning and no driver.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from balancer.app import catalogue
from balancer.app.view import DistributionView
from balancer.core.learning import wait_for_lost_documents
from balancer.core.model import Destination, Plan, RoundKind, Snapshot
from balancer.core.planner import plan
from balancer.errors import BalancerError, ConflictError
from balancer.ports import Clock, DocumentStore, LeaseRecord, Metrics, Repository, StoredShard
from worker_sdk.wire.distribution import Document
from worker_sdk.wire.pointer import shard_of

KEEP_TTLS: Final = 4
"""Members stay on record for so many TTLs, and longer while a document that names them is valid."""

_log = logging.getLogger("balancer.cycle")


@dataclass(frozen=True, slots=True)
class CycleLimits:
    """Lengths that a round is planned with, in milliseconds."""

    round_ms: int
    ttl_ms: int

    @property
    def keep_ms(self) -> int:
        """How long a member stays on record."""
        return KEEP_TTLS * self.ttl_ms


class Cycle:
    """Runs rounds; holds nothing that is not in the repository or the store."""

    def __init__(
        self,
        repository: Repository,
        store: DocumentStore,
        view: DistributionView,
        clock: Clock,
        metrics: Metrics,
        limits: CycleLimits,
    ) -> None:
        self._repository = repository
        self._store = store
        self._view = view
        self._clock = clock
        self._metrics = metrics
        self._limits = limits

    async def run(self, lease: LeaseRecord, kind: RoundKind, *, learning: bool) -> str:
        """Run one round of the lease's shard; return what came of it in one sentence.

        Args:
            lease: of the shard, held by the caller.
            kind: regular or early.
            learning: whether ingest is not current, so that shares are repeated.

        Raises:
            UnavailableError: where repository or store do not answer.
            ConflictError: where somebody else publishes this shard.
        """
        shard = lease.shard
        started_ms = self._clock.monotonic_ms()
        now_ms = self._clock.now_ms()
        stored = await self._store.load(shard, now_ms=now_ms)
        self._serve(shard, stored, now_ms)
        lost = wait_for_lost_documents(
            recorded_epoch=lease.epoch,
            largest_stored_epoch=stored.largest_epoch,
            recorded_valid_until_ms=lease.valid_until_ms,
        )
        if lost.active(now_ms) or stored.unreadable_epochs:
            return self._outcome(f"shard {shard}: waits, published documents are missing", "waits")
        snapshot = await self._snapshot(lease, kind, stored, now_ms, learning=learning)
        outcome = plan(snapshot, lease.memory, now_ms)
        if outcome.broken:
            self._metrics.count(catalogue.BROKEN)
            _log.error("%s", outcome.sentence, extra={"action": "broken"})
            return self._outcome(outcome.sentence, "broken")
        if outcome.document is None:
            await self._forget(outcome)
            return self._outcome(outcome.sentence, "nothing")
        await self._publish(lease, outcome, outcome.document, stored, now_ms)
        await self._repository.store_reasons(shard, outcome.document.epoch, outcome.reasons)
        await self._forget(outcome)
        took_ms = self._clock.monotonic_ms() - started_ms
        self._metrics.observe(catalogue.ROUND_SECONDS, took_ms / 1000)
        self._metrics.gauge(catalogue.EPOCH, outcome.document.epoch, {"shard": str(shard)})
        return self._outcome(outcome.sentence, "published")

    def _outcome(self, sentence: str, outcome: str) -> str:
        self._metrics.count(catalogue.ROUNDS, 1, {"outcome": outcome})
        _log.info("%s", sentence, extra={"action": outcome})
        return sentence

    async def _snapshot(
        self,
        lease: LeaseRecord,
        kind: RoundKind,
        stored: StoredShard,
        now_ms: int,
        *,
        learning: bool,
    ) -> Snapshot:
        known = await self._repository.list_destinations(include_removed=True)
        mine: tuple[Destination, ...] = tuple(
            destination
            for destination in known
            if shard_of(destination.name, self._view.shards) == lease.shard
        )
        longest_ms = max((doc.valid_until_ms - now_ms for doc in stored.documents), default=0)
        rows = await self._repository.load_shard(
            lease.shard,
            [destination.name for destination in mine],
            now_ms=now_ms,
            ttl_ms=self._limits.ttl_ms,
            keep_ms=self._limits.keep_ms + max(0, longest_ms),
        )
        return Snapshot(
            shard=lease.shard,
            kind=kind,
            round_ms=self._limits.round_ms,
            ttl_ms=self._limits.ttl_ms,
            destinations=mine,
            members=rows.members,
            usage=rows.usage,
            documents=stored.documents,
            current_epoch=max(stored.pointed_epochs, default=0),
            epoch_floor=max(lease.epoch, stored.largest_epoch, rows.largest_reported_epoch),
            learning=learning,
        )

    async def _publish(
        self,
        lease: LeaseRecord,
        outcome: Plan,
        document: Document,
        stored: StoredShard,
        now_ms: int,
    ) -> None:
        extension_ms = max(
            (line.terms.on_expiry.for_ms for line in document.destinations), default=0
        )
        # First the record, fenced: whoever lost the lease stops here, before any put.
        if not await self._repository.record_epoch(
            lease.shard,
            lease.number,
            document.epoch,
            valid_until_ms=document.valid_until_ms + extension_ms,
            memory=outcome.memory,
        ):
            raise ConflictError(f"the lease of shard {lease.shard} was taken over")
        in_use = documents_in_use(stored, now_ms)
        await self._store.publish(document, keep=[kept.epoch for kept in in_use], tag=stored.tag)
        self._view.publish(lease.shard, [document, *in_use])

    def _serve(self, shard: int, stored: StoredShard, now_ms: int) -> None:
        self._view.publish(shard, documents_in_use(stored, now_ms))

    async def follow(self, shard: int) -> None:
        """Take what another process has published, to serve it."""
        now_ms = self._clock.now_ms()
        self._serve(shard, await self._store.load(shard, now_ms=now_ms), now_ms)

    async def _forget(self, outcome: Plan) -> None:
        for name in outcome.forget:
            try:
                await self._repository.forget_destination(name)
            except BalancerError as error:
                _log.warning("%s", error, extra={"action": "forget"})


def documents_in_use(stored: StoredShard, now_ms: int) -> list[Document]:
    """Return the pointed documents, newest first, as far back as one covers the present window."""
    pointed = set(stored.pointed_epochs)
    documents = [document for document in stored.documents if document.epoch in pointed]
    last = 0
    for number, document in enumerate(documents):
        if any(
            line.terms.covers(now_ms // (line.terms.window_seconds * 1000))
            for line in document.destinations
        ):
            last = number
    return documents[: last + 1]
