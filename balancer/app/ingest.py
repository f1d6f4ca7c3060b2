"""From the log to the repository: validate, store, and only then move the offset.

Decides what is accepted of each message and what happens when storing fails. Knows no driver:
decoding, the log and the repository are given. At most one batch of records is in hand, so memory
is bounded whatever waits in the log, and nothing is read while the repository is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from balancer.app import catalogue
from balancer.core.learning import IngestView
from balancer.errors import BalancerError, UnavailableError
from balancer.ports import AcceptedBatch, Clock, Metrics, Repository, UsageLog, UsageRecord
from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.usage import DecodedBatch, MemberState, UsageBatch

MAX_RECORDS: Final = 500
WAIT_MS: Final = 200
FUTURE_MAX_MS: Final = 10_000
RETRY_FIRST_SECONDS: Final = 0.2
RETRY_MOST_SECONDS: Final = 5.0

_log = logging.getLogger("balancer.ingest")

Decode = Callable[[UsageRecord], DecodedBatch | None]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message, or a tuple of one, that is not stored."""

    reason: RejectReason
    detail: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one message: what of it is stored, and what is refused."""

    accepted: AcceptedBatch | None
    refused: tuple[Refusal, ...] = ()
    clamped: int = 0
    expired: int = 0


def judge(record: UsageRecord, decode: Decode, *, now_ms: int, ttl_ms: int) -> Judged:
    """Decide what of one message is stored.

    Instants more than ten seconds ahead of the trusted clock are set back to it. A message past
    the TTL still says goodbye or acknowledges, but its accounts are out of date and left out.
    """
    try:
        decoded = decode(record)
    except WireError as error:
        return Judged(None, (Refusal(error.reason, str(error)),))
    if decoded is None:
        return Judged(None)
    seen_ms = now_ms if record.appended_ms is None else record.appended_ms
    latest_ms = seen_ms + FUTURE_MAX_MS
    batch, clamped = _clamp(decoded.batch, latest_ms, seen_ms)
    expired = 0
    if now_ms - seen_ms >= ttl_ms:
        expired = len(batch.tuples)
        batch = replace(batch, tuples=())
    refused = tuple(Refusal(bad.reason, bad.message) for bad in decoded.rejected)
    return Judged(AcceptedBatch(batch, seen_ms, now_ms), refused, clamped, expired)


def _clamp(batch: UsageBatch, latest_ms: int, seen_ms: int) -> tuple[UsageBatch, int]:
    late = sum(entry.instant_ms > latest_ms for entry in batch.tuples)
    late += batch.sent_at_ms > latest_ms
    if not late:
        return batch, 0
    tuples = tuple(
        replace(
            entry,
            instant_ms=seen_ms,
            from_ms=seen_ms - (entry.instant_ms - entry.from_ms),
        )
        if entry.instant_ms > latest_ms
        else entry
        for entry in batch.tuples
    )
    sent_at_ms = seen_ms if batch.sent_at_ms > latest_ms else batch.sent_at_ms
    return replace(batch, tuples=tuples, sent_at_ms=sent_at_ms), late


class Ingest:
    """The loop; `run` ends when ``stop`` is set, after the batch in hand."""

    def __init__(
        self,
        log: UsageLog,
        repository: Repository,
        clock: Clock,
        metrics: Metrics,
        decode: Decode,
        *,
        ttl_ms: int,
        on_change: Callable[[Collection[str]], None],
    ) -> None:
        self._usage_log = log
        self._repository = repository
        self._clock = clock
        self._metrics = metrics
        self._decode = decode
        self._ttl_ms = ttl_ms
        self._on_change = on_change
        self._last_batch_ms: int | None = None
        self._oldest_waiting_ms: int | None = None
        self._caught_up = False
        self._told_arrival_time = False

    def view(self) -> IngestView:
        """Return what learning is decided from."""
        waiting = self._oldest_waiting_ms
        lag_ms = 0 if waiting is None else max(0, self._clock.now_ms() - waiting)
        return IngestView(self._last_batch_ms, lag_ms, self._caught_up)

    async def run(self, stop: asyncio.Event) -> None:
        """Read and store until told to stop.

        Raises:
            UnavailableError: where the log is lost; what was not committed is read again.
        """
        await self._usage_log.start()
        try:
            while not stop.is_set():
                records = await self._usage_log.read(max_records=MAX_RECORDS, wait_ms=WAIT_MS)
                if records:
                    await self._take(records, stop)
                await self._look_at_lag(empty=not records)
        finally:
            self._caught_up = False
            await self._usage_log.stop()

    async def _take(self, records: Sequence[UsageRecord], stop: asyncio.Event) -> None:
        now_ms = self._clock.now_ms()
        appended = [record.appended_ms for record in records if record.appended_ms is not None]
        self._oldest_waiting_ms = min(appended, default=now_ms)
        if not appended and not self._told_arrival_time:
            self._told_arrival_time = True
            _log.warning(
                "the topic has no LogAppendTime: records live from their arrival here",
                extra={"action": "arrival_time"},
            )
        accepted: list[tuple[UsageRecord, AcceptedBatch]] = []
        for record in records:
            judged = judge(record, self._decode, now_ms=now_ms, ttl_ms=self._ttl_ms)
            await self._account(record, judged)
            if judged.accepted is not None:
                accepted.append((record, judged.accepted))
        if not await self._store(accepted, stop):
            return  # told to stop before it could be stored: nothing is committed
        await self._usage_log.commit(records)
        if accepted:
            self._last_batch_ms = self._clock.now_ms()
        changed = {
            entry.destination
            for _, done in accepted
            if done.batch.state is not MemberState.RUNNING
            for entry in done.batch.tuples
        } | {name for _, done in accepted for name in done.batch.spent}
        if changed:
            self._on_change(changed)

    async def _account(self, record: UsageRecord, judged: Judged) -> None:
        for refusal in judged.refused:
            self._metrics.count(catalogue.REJECTED, 1, {"reason": refusal.reason.value})
        if judged.clamped:
            self._metrics.count(catalogue.CLAMPED, judged.clamped)
        if judged.expired:
            self._metrics.count(catalogue.EXPIRED, judged.expired)
        if judged.refused:
            first = judged.refused[0]
            try:
                await self._usage_log.reject(record, first.reason, first.detail)
            except UnavailableError as error:
                self._metrics.count(catalogue.REJECTED_NOT_KEPT)
                _log.warning("%s", error, extra={"action": "reject"})

    async def _store(
        self, accepted: Sequence[tuple[UsageRecord, AcceptedBatch]], stop: asyncio.Event
    ) -> bool:
        """Store batches, again and again while the repository is away; False if told to stop."""
        if not accepted:
            return True
        pause_seconds = RETRY_FIRST_SECONDS
        while True:
            try:
                counts = await self._repository.store_batches([batch for _, batch in accepted])
            except UnavailableError as error:
                _log.warning("%s; trying again", error, extra={"action": "store"})
                self._metrics.count(catalogue.STORE_RETRIES)
            except BalancerError as error:
                return await self._store_halves(accepted, error, stop)
            else:
                self._metrics.count(catalogue.STORED, counts.written)
                self._metrics.count(catalogue.STALE, counts.stale)
                return True
            try:
                await asyncio.wait_for(stop.wait(), pause_seconds)
            except TimeoutError:
                pause_seconds = min(RETRY_MOST_SECONDS, pause_seconds * 2)
            else:
                return False

    async def _store_halves(
        self,
        accepted: Sequence[tuple[UsageRecord, AcceptedBatch]],
        error: BalancerError,
        stop: asyncio.Event,
    ) -> bool:
        """Find the message that the repository refuses; it is rejected alone."""
        if len(accepted) == 1:
            record, _ = accepted[0]
            refusal = Refusal(RejectReason.INCONSISTENT, str(error))
            await self._account(record, Judged(None, (refusal,)))
            return True
        middle = len(accepted) // 2
        return await self._store(accepted[:middle], stop) and await self._store(
            accepted[middle:], stop
        )

    async def _look_at_lag(self, *, empty: bool) -> None:
        position = await self._usage_log.position()
        self._metrics.gauge(catalogue.LAG_RECORDS, position.lag_records)
        if position.lag_records == 0:
            self._oldest_waiting_ms = None
            if empty and position.assigned_partitions:
                self._caught_up = True
