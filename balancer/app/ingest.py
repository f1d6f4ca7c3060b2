"""From the log to the repository: judge, store, and only then move the offset.

Decides what is read and stored at once, and what happens when storing fails. Knows no driver:
decoding, the log and the repository are given. Reads are decoded and stored in bounded pieces, two
of which are stored at once while the next is read and decoded; so memory is bounded whatever waits
in the log, and while the repository is away one piece more is read and no more. What is stored
twice changes nothing and an older account never takes a newer one's place, so that it does not
matter which of two is done first; offsets are committed in their order all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from balancer.app import catalogue
from balancer.app.judging import Decode, Judged, Refusal, judge
from balancer.core.learning import IngestView
from balancer.errors import BalancerError, RefusedError, UnavailableError
from balancer.ports import AcceptedBatch, Clock, Metrics, Repository, UsageLog, UsageRecord
from worker_sdk.errors import RejectReason
from worker_sdk.wire.usage import MemberState, UsageBatch

MAX_RECORDS: Final = 2_000
WAIT_MS: Final = 200
RETRY_FIRST_SECONDS: Final = 0.2
RETRY_MOST_SECONDS: Final = 5.0

PIECE_ROWS: Final = 20_000
"""A piece is stored once it has so many rows; the last message may take it to twice that."""

STORING_MOST: Final = 2
"""While the repository writes one piece, the next is made ready and sent to it."""

SILENT_LEAST_MS: Final = 5_000
"""An empty partition answers twice a second; one that says nothing for so long may hold reports."""

TURN_BYTES: Final = 8 * 1024
"""Whoever else has something to do has a turn after so much was decoded: a millisecond or two."""

_log = logging.getLogger("balancer.ingest")

Accepted = tuple[UsageRecord, AcceptedBatch]


def _rows(batch: UsageBatch) -> int:
    return 1 + len(batch.tuples) + len(batch.epochs) + len(batch.spent)


def _halves(accepted: Sequence[Accepted]) -> tuple[Sequence[Accepted], Sequence[Accepted]] | None:
    """Return what was refused in two parts: messages, then one message's tuples; None if whole."""
    if len(accepted) > 1:
        middle = len(accepted) // 2
        return accepted[:middle], accepted[middle:]
    record, entry = accepted[0]
    batch = entry.batch
    bare = not (batch.epochs or batch.spent)
    if not batch.tuples or (bare and len(batch.tuples) == 1):
        return None
    middle = len(batch.tuples) // 2
    first = replace(batch, tuples=batch.tuples[:middle])
    second = replace(batch, tuples=batch.tuples[middle:], epochs={}, spent={})
    return (
        [(record, replace(entry, batch=first))],
        [(record, replace(entry, batch=second))],
    )


def changed_destinations(accepted: Sequence[AcceptedBatch]) -> set[str]:
    """Return the destinations that a hello or a goodbye speaks of: they call for an early round."""
    changed: set[str] = set()
    for entry in accepted:
        if entry.batch.state is not MemberState.RUNNING:
            changed.update(account.destination for account in entry.batch.tuples)
            changed.update(entry.batch.spent)
    return changed


class Ingest:
    """The loop; `run` ends when ``stop`` is set, after the piece in hand.

    ``jitter`` gives factors from 0 to 1 for the pauses between attempts to store.
    """

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
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._usage_log = log
        self._repository = repository
        self._clock = clock
        self._metrics = metrics
        self._decode = decode
        self._ttl_ms = ttl_ms
        self._on_change = on_change
        self._jitter = jitter
        self._last_batch_ms: int | None = None
        self._oldest_waiting_ms: int | None = None
        self._current_ms: int | None = None
        self._unheard_ms: int | None = None
        self._partitions: tuple[int, ...] = ()
        self._caught_up = False
        self._told_arrival_time = False
        self._storing: deque[tuple[asyncio.Task[bool], int]] = deque()

    def view(self) -> IngestView:
        """Return what learning is decided from.

        Who has partitions and neither reads from them nor finds them empty is behind by that time,
        and so is who hears nothing of one of them for long, whatever the others give.
        """
        current_ms = self._current_ms if self._partitions else None
        since_ms = [self._oldest_waiting_ms, current_ms, self._unheard_ms]
        now_ms = self._clock.now_ms()
        oldest_ms = min((at_ms for at_ms in since_ms if at_ms is not None), default=now_ms)
        return IngestView(self._last_batch_ms, max(0, now_ms - oldest_ms), self._caught_up)

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that it read when it last looked."""
        return self._partitions

    async def run(self, stop: asyncio.Event) -> None:
        """Read and store until told to stop.

        Raises:
            UnavailableError: where the log is lost; what was not committed is read again.
        """
        await self._usage_log.start()
        self._current_ms = self._clock.now_ms()
        try:
            while not stop.is_set():
                asked_ms = self._clock.now_ms()
                records = await self._usage_log.read(max_records=MAX_RECORDS, wait_ms=WAIT_MS)
                if records and not await self._take(records, stop):
                    break
                if not records and not await self._stored():
                    break
                await self._look_at_lag(asked_ms, empty=not records)
            await self._stored()
        finally:
            self._caught_up = False
            storing = [task for task, _ in self._storing]
            self._storing.clear()
            for task in storing:  # cut short: nothing of it is committed
                task.cancel()
            await asyncio.gather(*storing, return_exceptions=True)
            await self._usage_log.stop()

    async def _take(self, records: Sequence[UsageRecord], stop: asyncio.Event) -> bool:
        """Store a read piece by piece; False if told to stop before all of it was."""
        now_ms = self._clock.now_ms()
        appended = [record.appended_ms for record in records if record.appended_ms is not None]
        oldest_ms = min(appended, default=now_ms)
        self._oldest_waiting_ms = min([oldest_ms, *(since_ms for _, since_ms in self._storing)])
        if not appended and not self._told_arrival_time:
            self._told_arrival_time = True
            _log.warning(
                "the topic has no LogAppendTime: records live from their arrival here, "
                "and those found at start are skipped",
                extra={"action": "arrival_time"},
            )
        piece: list[tuple[UsageRecord, Judged]] = []
        rows = decoded_bytes = 0
        for record in records:
            judged = judge(record, self._decode, now_ms=now_ms, ttl_ms=self._ttl_ms)
            piece.append((record, judged))
            rows += 0 if judged.accepted is None else _rows(judged.accepted.batch)
            if rows >= PIECE_ROWS:
                if not await self._hand_over(piece, oldest_ms, stop):
                    return False
                piece, rows = [], 0
            decoded_bytes += len(record.body or b"")
            if decoded_bytes >= TURN_BYTES:
                decoded_bytes = 0
                await asyncio.sleep(0)
        return not piece or await self._hand_over(piece, oldest_ms, stop)

    async def _hand_over(
        self, piece: Sequence[tuple[UsageRecord, Judged]], oldest_ms: int, stop: asyncio.Event
    ) -> bool:
        """Begin to store a piece once there is room for it; False if one before is not stored."""
        if not await self._stored(leave=STORING_MOST - 1):
            return False
        before = self._storing[-1][0] if self._storing else None
        task = asyncio.create_task(self._finish(piece, before, stop))
        self._storing.append((task, oldest_ms))
        return True

    async def _stored(self, *, leave: int = 0) -> bool:
        """Wait until so many pieces are left; False if told to stop while one was not stored."""
        while len(self._storing) > leave:
            task, _ = self._storing[0]
            await asyncio.wait([task])  # whoever is cancelled here leaves it to `run`
            self._storing.popleft()
            if not task.result():
                return False
        return True

    async def _finish(
        self,
        piece: Sequence[tuple[UsageRecord, Judged]],
        before: asyncio.Task[bool] | None,
        stop: asyncio.Event,
    ) -> bool:
        """Store, keep what was refused, commit; False if told to stop while not yet stored.

        What follows the storing begins once all of that is done for the piece before, if at all.
        """
        accepted = [
            (record, judged.accepted) for record, judged in piece if judged.accepted is not None
        ]
        refused: list[tuple[UsageRecord, Refusal]] = []
        if accepted and not await self._store(accepted, refused, stop):
            return False  # nothing is committed: whoever comes next reads it again
        if before is not None:
            await asyncio.wait([before])
            if before.cancelled() or before.exception() is not None or not before.result():
                return False
        for record, judged in piece:
            self._count(judged)
            refused.extend((record, refusal) for refusal in judged.refused)
        await self._keep(refused)
        await self._usage_log.commit([record for record, _ in piece])
        if accepted:
            self._last_batch_ms = self._clock.now_ms()
        changed = changed_destinations([entry for _, entry in accepted])
        if changed:
            self._on_change(changed)
        return True

    def _count(self, judged: Judged) -> None:
        for name, amount in (
            (catalogue.CLAMPED, judged.clamped),
            (catalogue.EXPIRED, judged.expired),
            (catalogue.SKIPPED, int(judged.skipped)),
        ):
            if amount:
                self._metrics.count(name, amount)

    async def _keep(self, refused: Sequence[tuple[UsageRecord, Refusal]]) -> None:
        """Count every refusal; keep each message concerned once, with its first reason."""
        first: dict[tuple[int, int], tuple[UsageRecord, Refusal]] = {}
        for record, refusal in refused:
            self._metrics.count(catalogue.REJECTED, 1, {"reason": refusal.reason.value})
            first.setdefault((record.partition, record.offset), (record, refusal))
        await asyncio.gather(*(self._reject(*entry) for entry in first.values()))

    async def _reject(self, record: UsageRecord, refusal: Refusal) -> None:
        try:
            await self._usage_log.reject(record, refusal.reason, refusal.detail)
        except Exception as error:  # keeping poison must not become poison itself
            self._metrics.count(catalogue.REJECTED_NOT_KEPT)
            _log.warning("a refused message is not kept: %r", error, extra={"action": "reject"})

    async def _store(
        self,
        accepted: Sequence[Accepted],
        refused: list[tuple[UsageRecord, Refusal]],
        stop: asyncio.Event,
    ) -> bool:
        """Store batches, again and again while that fails; False if told to stop.

        Only a value that the repository refuses is given up, and alone: what holds it is halved
        until it stands by itself. Any other failure (a right or a table missing) is waited out.
        """
        pause_seconds = RETRY_FIRST_SECONDS
        while True:
            try:
                counts = await self._repository.store_batches([entry for _, entry in accepted])
            except RefusedError as error:
                halves = _halves(accepted)
                if halves is None:
                    refused.append((accepted[0][0], Refusal(RejectReason.INCONSISTENT, str(error))))
                    return True
                return await self._store(halves[0], refused, stop) and await self._store(
                    halves[1], refused, stop
                )
            except BalancerError as error:
                action = "store" if isinstance(error, UnavailableError) else "store_fault"
                _log.warning("%s; trying again", error, extra={"action": action})
                self._metrics.count(catalogue.STORE_RETRIES)
            else:
                self._metrics.count(catalogue.STORED, counts.written)
                self._metrics.count(catalogue.STALE, counts.stale)
                return True
            try:
                await asyncio.wait_for(stop.wait(), pause_seconds * (0.5 + self._jitter() / 2))
            except TimeoutError:
                pause_seconds = min(RETRY_MOST_SECONDS, pause_seconds * 2)
            else:
                return False

    async def _look_at_lag(self, asked_ms: int, *, empty: bool) -> None:
        position = await self._usage_log.position()
        self._partitions = position.partitions
        is_silent = position.silent_ms >= SILENT_LEAST_MS
        self._unheard_ms = self._clock.now_ms() - position.silent_ms if is_silent else None
        if position.lag_records == 0 or not empty:
            self._current_ms = asked_ms
        self._metrics.gauge(catalogue.LAG_RECORDS, position.lag_records)
        if position.lag_records == 0 and not self._storing:
            self._oldest_waiting_ms = None
            # Without a partition it has nothing to read, and is not behind: others read them all.
            if empty and position.is_assigned:
                self._caught_up = True
