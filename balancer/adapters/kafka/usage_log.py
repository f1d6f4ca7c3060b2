"""The usage log on Kafka: a consumer group read by hand, and the topic of what was refused.

Decides which offsets may be committed: only of partitions that are still this member's. Knows
nothing of what records mean.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from balancer.adapters.kafka.config import KafkaConfig
from balancer.errors import UnavailableError
from balancer.ports import LogPosition, UsageRecord
from worker_sdk.errors import RejectReason

START_SECONDS: Final = 30
CALL_SECONDS: Final = 15
STOP_SECONDS: Final = 5
FETCH_MAX_BYTES: Final = 8 * 1024 * 1024
LOG_APPEND_TIME: Final = 1
DETAIL_MAX: Final = 500


@asynccontextmanager
async def _bounded(what: str, seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except (KafkaError, OSError, TimeoutError) as error:
        raise UnavailableError(f"Kafka could not {what}: {error!r}") from error


class KafkaUsageLog:
    """`balancer.ports.UsageLog` on aiokafka."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._consumer: AIOKafkaConsumer | None = None
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """See the port."""
        options = self._config.client_options()
        consumer = AIOKafkaConsumer(
            self._config.usage_topic,
            **options,
            group_id=self._config.group_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH_MAX_BYTES,
            max_partition_fetch_bytes=FETCH_MAX_BYTES // 4,
            session_timeout_ms=self._config.session_timeout_ms,
            heartbeat_interval_ms=max(500, self._config.session_timeout_ms // 4),
        )
        producer = AIOKafkaProducer(**options, enable_idempotence=False, acks="all")
        self._consumer, self._producer = consumer, producer
        try:
            async with _bounded("be joined", START_SECONDS):
                await consumer.start()
                await producer.start()
        except UnavailableError:
            await self.stop()
            raise

    def _started(self) -> tuple[AIOKafkaConsumer, AIOKafkaProducer]:
        if self._consumer is None or self._producer is None:
            raise UnavailableError("the usage log is not started")
        return self._consumer, self._producer

    async def read(self, *, max_records: int, wait_ms: int) -> Sequence[UsageRecord]:
        """See the port."""
        consumer, _ = self._started()
        async with _bounded("be read", CALL_SECONDS + wait_ms / 1000):
            found = await consumer.getmany(timeout_ms=wait_ms, max_records=max_records)
        return [
            UsageRecord(
                partition=record.partition,
                offset=record.offset,
                body=record.value,
                headers={name.lower(): value for name, value in record.headers},
                appended_ms=(
                    record.timestamp if record.timestamp_type == LOG_APPEND_TIME else None
                ),
            )
            for records in found.values()
            for record in records
        ]

    async def commit(self, records: Sequence[UsageRecord]) -> None:
        """See the port."""
        consumer, _ = self._started()
        assigned = consumer.assignment()
        offsets: dict[TopicPartition, int] = {}
        for record in records:
            place = TopicPartition(self._config.usage_topic, record.partition)
            if place in assigned:
                offsets[place] = max(offsets.get(place, 0), record.offset + 1)
        if not offsets:
            return
        # A rebalance took the partitions: whoever has them now reads the records again.
        async with _bounded("take a commit", CALL_SECONDS):
            with contextlib.suppress(CommitFailedError, IllegalStateError):
                await consumer.commit(offsets)

    async def position(self) -> LogPosition:
        """See the port."""
        consumer, _ = self._started()
        lag = 0
        assigned = consumer.assignment()
        async with _bounded("tell the lag", CALL_SECONDS):
            for place in assigned:
                end = consumer.highwater(place)
                # Not fetched yet: nobody knows, so it counts as behind.
                lag += 1 if end is None else max(0, end - await consumer.position(place))
        return LogPosition(assigned_partitions=len(assigned), lag_records=lag)

    async def reject(self, record: UsageRecord, reason: RejectReason, detail: str) -> None:
        """See the port."""
        _, producer = self._started()
        headers = [
            *record.headers.items(),
            ("reason", reason.value.encode()),
            ("detail", detail[:DETAIL_MAX].encode(errors="replace")),
            ("source", f"{record.partition}/{record.offset}".encode()),
        ]
        async with _bounded("keep a rejected record", CALL_SECONDS):
            await producer.send_and_wait(
                self._config.rejected_topic, record.body or b"", headers=headers
            )

    async def stop(self) -> None:
        """See the port."""
        for client in (self._consumer, self._producer):
            if client is not None:
                with contextlib.suppress(UnavailableError):
                    async with _bounded("be left", STOP_SECONDS):
                        await client.stop()
        self._consumer = self._producer = None
