"""One round of one shard: snapshot, plan, fence, publish, serve.

Decides the order of steps and what a fault means for the round: whatever goes wrong, what is in
force stays in force. Nothing is assumed of a put whose outcome is not known, since each round reads
the store anew. Knows no rule of planning, no driver, and not when rounds are due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from balancer.app import catalogue
from balancer.app.agenda import largest_epoch_by
from balancer.app.clock_check import check_clock
from balancer.app.destination_metrics import DestinationMetrics
from balancer.app.history import FinishedRound, RoundHistory
from balancer.app.view import DistributionView
from balancer.core.learning import (
    IngestView,
    Learning,
    ingest_is_current,
    next_learning,
    wait_for_lost_documents,
)
from balancer.core.memory import Memory
from balancer.core.model import Destination, MemberRecord, Plan, RoundKind, Snapshot
from balancer.core.planner import plan
from balancer.core.reservations import gives_until_ms
from balancer.errors import BalancerError, ConflictError
from balancer.ports import (
    Clock,
    DocumentStore,
    LeaseRecord,
    Metrics,
    Repository,
    ShardRows,
    StoredShard,
)
from worker_sdk.wire.distribution import Document
from worker_sdk.wire.pointer import shard_of

_log = logging.getLogger("balancer.rounds")


@dataclass(frozen=True, slots=True)
class CycleLimits:
    """Lengths that a round is planned with, in milliseconds."""

    round_ms: int
    ttl_ms: int

    def keep_ms(self, destinations: Iterable[Destination]) -> int:
        """Return how long a member stays on record: longer than any document may name it."""
        return 2 * self.ttl_ms + self.longest_valid_ms(destinations)

    def longest_valid_ms(self, destinations: Iterable[Destination]) -> int:
        """Return how long a document of these may be spent by, from its planning on."""
        longest_ms = 0
        for destination in destinations:
            policy, window_ms = destination.policy, destination.window_seconds * 1000
            begins_within_ms = 2 * max(self.round_ms, window_ms)
            valid_for_ms = policy.valid_for_ms(self.round_ms, window_ms)
            longest_ms = max(longest_ms, begins_within_ms + valid_for_ms + policy.on_expiry.for_ms)
        return longest_ms


@dataclass(slots=True)
class ShardState:
    """What the leader of a shard carries from round to round.

    Attributes:
        shard: its number.
        number: of the lease.
        memory: of the planner.
        epoch: largest epoch recorded, whether or not it was published.
        published_epoch: largest epoch that must be in the store.
        valid_until_ms: latest instant until which any recorded document gives permits.
        learning: whether shares are repeated.
        wait_until_ms: nothing is published before, since documents were lost.
        unreadable: epochs of files that were waited for already.
    """

    shard: int
    number: int
    memory: Memory
    epoch: int = 0
    published_epoch: int = 0
    valid_until_ms: int = 0
    learning: Learning = field(default_factory=Learning)
    wait_until_ms: int = 0
    unreadable: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, lease: LeaseRecord) -> ShardState:
        """Return the state of a shard whose lease was just taken."""
        return cls(
            shard=lease.shard,
            number=lease.number,
            memory=lease.memory,
            epoch=lease.epoch,
            published_epoch=lease.epoch,
            valid_until_ms=lease.valid_until_ms,
        )


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What came of a round: a word for counting, a sentence for people."""

    outcome: str
    sentence: str


class Cycle:
    """Runs rounds."""

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
        self._destination_metrics = DestinationMetrics(metrics)
        self._history = RoundHistory(repository, clock, metrics, limits.round_ms)
        # Of several shards at once one is planned while others are read and published: threads that
        # compute would take turns anyway, and each needs memory meanwhile.
        self._planning = asyncio.Lock()

    def forget(self, shard: int) -> None:
        """Measure nothing of a shard any more: somebody else plans it."""
        self._destination_metrics.forget(shard)

    async def run(
        self,
        state: ShardState,
        kind: RoundKind,
        ingest: IngestView,
        *,
        may_publish: Callable[[], bool] = lambda: True,
    ) -> RoundResult:
        """Run one round of a shard.

        Args:
            state: of the shard; updated by what came of the round.
            kind: regular or early.
            ingest: what is known of ingest.
            may_publish: whether the lease is still held, by a clock that never steps.

        Raises:
            UnavailableError: where repository or store do not answer.
            ConflictError: where somebody else publishes this shard.
        """
        started_ms = self._clock.monotonic_ms()
        now_ms = self._clock.now_ms()
        stored = await self._store.load(state.shard, now_ms=now_ms)
        await self._view.show(state.shard, pointed_documents(stored))
        self._note_losses(state, stored, now_ms)
        if now_ms < state.wait_until_ms:
            return await self._waits(state, kind, now_ms)
        destinations = await self._destinations(state.shard)
        rows = await self._rows(state.shard, destinations, now_ms)
        self._note_total_loss(state, stored, rows, destinations, now_ms)
        if now_ms < state.wait_until_ms:
            return await self._waits(state, kind, now_ms)
        self._learn(state, ingest, stored, rows, now_ms)
        snapshot = self._snapshot(state, kind, stored, destinations, rows, now_ms)
        async with self._planning:
            planned_ms = self._clock.now_ms()
            outcome = await asyncio.to_thread(plan, snapshot, state.memory, planned_ms)
        if outcome.broken:
            self._metrics.count(catalogue.BROKEN)
            broken = FinishedRound(state.shard, kind, "broken", now_ms, sentence=outcome.sentence)
            await self._history.keep(broken)
            return self._result("broken", outcome.sentence)
        if outcome.document is None:
            await self._forget(outcome)
            return self._result("nothing", outcome.sentence)
        if not may_publish():
            raise ConflictError(f"the lease of shard {state.shard} has run out")
        await check_clock(self._repository, self._clock, self._limits.round_ms)
        await self._publish(state, outcome, outcome.document, stored)
        took_ms = self._clock.monotonic_ms() - started_ms
        sentence = f"{outcome.sentence}, published in {took_ms} ms"
        await self._measure(outcome, outcome.document, destinations, took_ms)
        await self._history.keep(
            FinishedRound(
                state.shard,
                kind,
                "published",
                planned_ms,
                took_ms=took_ms,
                sentence=sentence,
                document=outcome.document,
                before=pointed_documents(stored),
                reasons=outcome.reasons,
                members=rows.members,
            )
        )
        await self._forget(outcome)
        return self._result("published", sentence)

    async def _waits(self, state: ShardState, kind: RoundKind, now_ms: int) -> RoundResult:
        seconds = (state.wait_until_ms - now_ms) // 1000 + 1
        sentence = (
            f"shard {state.shard}: published documents are lost; waits {seconds} s until none "
            "can be in force"
        )
        await self._history.keep(
            FinishedRound(state.shard, kind, "waits", now_ms, sentence=sentence)
        )
        return self._result("waits", sentence)

    def _result(self, outcome: str, sentence: str) -> RoundResult:
        """Count and log what came of a round."""
        self._metrics.count(catalogue.ROUNDS, 1, {"outcome": outcome})
        level = {"broken": logging.ERROR, "waits": logging.WARNING, "nothing": logging.DEBUG}
        _log.log(level.get(outcome, logging.INFO), "%s", sentence, extra={"action": outcome})
        return RoundResult(outcome, sentence)

    async def _measure(
        self, outcome: Plan, document: Document, destinations: Sequence[Destination], took_ms: int
    ) -> None:
        shard = document.shard
        self._metrics.observe(catalogue.ROUND_SECONDS, took_ms / 1000)
        self._metrics.gauge(catalogue.EPOCH, document.epoch, {"shard": str(shard)})
        await self._destination_metrics.show(shard, document, destinations, outcome.reasons)

    def _note_losses(self, state: ShardState, stored: StoredShard, now_ms: int) -> None:
        """Wait out what was published and cannot be read; each loss is waited for once."""
        lost = wait_for_lost_documents(
            recorded_epoch=state.published_epoch,
            largest_stored_epoch=stored.largest_epoch,
            recorded_valid_until_ms=state.valid_until_ms,
        )
        state.published_epoch = min(state.published_epoch, stored.largest_epoch)
        if not state.unreadable.issuperset(stored.unreadable_epochs):
            lost = Learning(state.valid_until_ms)
        state.unreadable = set(stored.unreadable_epochs)
        if lost.active(now_ms):
            state.wait_until_ms = max(state.wait_until_ms, lost.until_ms)

    def _note_total_loss(
        self,
        state: ShardState,
        stored: StoredShard,
        rows: ShardRows,
        destinations: Sequence[Destination],
        now_ms: int,
    ) -> None:
        """Wait once where members hold epochs of which neither record nor store knows any."""
        nothing_known = state.epoch == 0 and stored.largest_epoch == 0 and state.wait_until_ms == 0
        longest_ms = self._limits.longest_valid_ms(destinations)
        is_recent = any(now_ms - member.seen_ms < longest_ms for member in rows.members)
        if nothing_known and is_recent and rows.largest_reported_epoch > 0:
            state.wait_until_ms = now_ms + longest_ms

    def _learn(
        self,
        state: ShardState,
        ingest: IngestView,
        stored: StoredShard,
        rows: ShardRows,
        now_ms: int,
    ) -> None:
        # A report in the repository shows that ingest works, whichever replica stored it.
        newest_ms = max((member.seen_ms for member in rows.members), default=0)
        heard_ms = max(ingest.last_batch_ms or 0, min(newest_ms, now_ms)) or None
        current = ingest_is_current(
            replace(ingest, last_batch_ms=heard_ms), now_ms, self._limits.round_ms
        )
        # Older ones are not what would be repeated: holds keep what they promise.
        newest = max((known.epoch for known in pointed_documents(stored)), default=0)
        in_use = [known for known in stored.documents if known.epoch >= newest]
        state.learning = next_learning(
            state.learning,
            current=current,
            ever_published=anybody_may_be_spending(in_use, rows.members),
            now_ms=now_ms,
            ttl_ms=self._limits.ttl_ms,
        )

    async def _destinations(self, shard: int) -> tuple[Destination, ...]:
        known = await self._repository.list_destinations(include_removed=True)
        return tuple(
            destination
            for destination in known
            if shard_of(destination.name, self._view.shards) == shard
        )

    async def _rows(
        self, shard: int, destinations: Sequence[Destination], now_ms: int
    ) -> ShardRows:
        return await self._repository.load_shard(
            shard,
            [destination.name for destination in destinations],
            now_ms=now_ms,
            ttl_ms=self._limits.ttl_ms,
            keep_ms=self._limits.keep_ms(destinations),
        )

    def _snapshot(
        self,
        state: ShardState,
        kind: RoundKind,
        stored: StoredShard,
        destinations: tuple[Destination, ...],
        rows: ShardRows,
        now_ms: int,
    ) -> Snapshot:
        # Lease and listing may both have been set back: then members hold epochs above them.
        reported = rows.largest_reported_epoch
        if reported > largest_epoch_by(now_ms):
            reported = 0
        floor = max(state.epoch, stored.largest_epoch, reported)
        return Snapshot(
            shard=state.shard,
            kind=kind,
            round_ms=self._limits.round_ms,
            ttl_ms=self._limits.ttl_ms,
            destinations=destinations,
            members=rows.members,
            usage=rows.usage,
            documents=stored.documents,
            current_epoch=max(stored.pointed_epochs, default=0),
            epoch_floor=floor,
            learning=state.learning.active(now_ms),
            pointed_epochs=stored.pointed_epochs,
        )

    async def _publish(
        self, state: ShardState, outcome: Plan, document: Document, stored: StoredShard
    ) -> None:
        valid_until_ms = gives_until_ms(document)
        state.epoch = document.epoch
        # First the record, fenced: whoever lost the lease stops here, before any put.
        if not await self._repository.record_epoch(
            state.shard,
            state.number,
            document.epoch,
            valid_until_ms=valid_until_ms,
            memory=outcome.memory,
        ):
            raise ConflictError(f"the lease of shard {state.shard} was taken over")
        state.valid_until_ms = max(state.valid_until_ms, valid_until_ms)
        await self._store.publish(document, keep=outcome.keep, tag=stored.tag)
        state.published_epoch = document.epoch
        state.memory = outcome.memory
        kept = [known for known in stored.documents if known.epoch in outcome.keep]
        await self._view.show(state.shard, [document, *kept])

    async def _forget(self, outcome: Plan) -> None:
        for name in outcome.forget:
            try:
                await self._repository.forget_destination(name)
            except BalancerError as error:
                _log.warning("%s", error, extra={"action": "forget"})

    async def clean(self, shard: int, *, keep_files_ms: int) -> int:
        """Remove the shard's files that nobody needs and that are old; return how many."""
        now_ms = self._clock.now_ms()
        stored = await self._store.load(shard, now_ms=now_ms)
        needed = {document.epoch for document in stored.documents}
        needed.update(stored.pointed_epochs, stored.unreadable_epochs)
        return await self._store.remove_older(
            shard, before_ms=now_ms - keep_files_ms, keep=sorted(needed)
        )


def pointed_documents(stored: StoredShard) -> list[Document]:
    """Return the documents that the pointer names, newest first."""
    pointed = set(stored.pointed_epochs)
    return [document for document in stored.documents if document.epoch in pointed]


def anybody_may_be_spending(documents: Iterable[Document], members: Iterable[MemberRecord]) -> bool:
    """Say whether a document gives a share to a member that has not said goodbye.

    Where none does there is nobody whose silence could be misread, and nothing to repeat.
    """
    left = {record.member for record in members if record.left_ms is not None}
    return any(
        entry.member not in left
        for document in documents
        for line in document.destinations
        for entry in line.entries
    )
