"""A topic, a database and an ingest between them, all real, that tests can run and ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from balancer.adapters.kafka.compression import decode_record
from balancer.adapters.kafka.config import KafkaConfig
from balancer.adapters.kafka.topics import ensure_topics
from balancer.adapters.kafka.usage_log import KafkaUsageLog
from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate
from balancer.app import catalogue
from balancer.app.ingest import Ingest
from balancer.app.judging import Decode
from balancer.embedded import KafkaServer
from balancer.ports import Clock
from tests.support.ingest_doubles import Counts, SystemClock
from tests.support.waiting import until
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple, encode_batch

TTL_MS = 180_000
WAIT_SECONDS = 40


def body(host: str, used: int = 5, *, age_ms: int = 0) -> bytes:
    now_ms = SystemClock().now_ms() - age_ms
    entry = UsageTuple("db", now_ms - 1000, now_ms, 1, 10, used, 0, 0, 0)
    return encode_batch(UsageBatch(host, "i", now_ms, MemberState.RUNNING, None, {0: 7}, (entry,)))


class Line:
    """A topic with one partition, a database, and an ingest between them that can be run."""

    def __init__(self, config: KafkaConfig, dsn: str, producer: AIOKafkaProducer) -> None:
        self.config = config
        self.dsn = dsn
        self.producer = producer
        self.metrics = Counts()

    async def send(self, message: bytes | None, **headers: str) -> None:
        named = [(name.replace("_", "-"), text.encode()) for name, text in headers.items()]
        await self.producer.send_and_wait(
            self.config.usage_topic, message, key=b"host", headers=named
        )

    @asynccontextmanager
    async def running(
        self,
        config: KafkaConfig | None = None,
        *,
        clock: Clock | None = None,
        decode: Decode = decode_record,
    ) -> AsyncIterator[PostgresRepository]:
        """Run an ingest, from when it has caught up."""
        repository = await PostgresRepository.open(self.dsn, pool_size=2)
        log = KafkaUsageLog(config or self.config)
        ingest = Ingest(
            log,
            repository,
            clock or SystemClock(),
            self.metrics,
            decode,
            ttl_ms=TTL_MS,
            on_change=lambda _: None,
        )
        stop = asyncio.Event()
        task = asyncio.create_task(ingest.run(stop))
        try:
            await until(lambda: ingest.view().caught_up or task.done(), seconds=WAIT_SECONDS)
            yield repository
        finally:
            stop.set()
            async with asyncio.timeout(WAIT_SECONDS):
                await task
            await repository.close()

    async def fetch(self, query: str) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.dsn, timeout=10)
        try:
            return list(await connection.fetch(query, timeout=10))
        finally:
            await connection.close(timeout=5)

    async def hosts(self) -> dict[str, int]:
        rows = await self.fetch("SELECT host, used FROM permit_usage")
        return {row["host"]: row["used"] for row in rows}

    async def until_hosts(self, wanted: dict[str, int]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.hosts() != wanted:  # noqa: ASYNC110 - asked of the database
                await asyncio.sleep(0.05)

    async def committed(self) -> int:
        """Return how many records of partition 0 are committed; reads the group from outside."""
        place = TopicPartition(self.config.usage_topic, 0)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.config.bootstrap_servers,
            group_id=self.config.group_id,
            enable_auto_commit=False,
        )
        consumer.assign([place])  # it does not join the group
        await consumer.start()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await consumer.committed(place) or 0
        finally:
            await consumer.stop()

    async def until_committed(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.committed() < count:  # noqa: ASYNC110 - asked of the broker
                await asyncio.sleep(0.05)

    async def kept_aside(self, count: int) -> list[tuple[bytes, str]]:
        """Return (body, reason) of what was refused, in the order of the rejected topic."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.config.bootstrap_servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            place = TopicPartition(self.config.rejected_topic, 0)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            async with asyncio.timeout(WAIT_SECONDS):
                records = [await consumer.getone(place) for _ in range(count)]
        finally:
            await consumer.stop()
        return [
            (record.value or b"", dict(record.headers)["reason"].decode()) for record in records
        ]

    async def rejected(self, count: int) -> list[str]:
        return [reason for _, reason in await self.kept_aside(count)]

    def refused_by_reason(self) -> dict[str, int]:
        """Return how many messages and tuples were counted, by reason."""
        start = f"{catalogue.REJECTED}:"
        return {
            name.removeprefix(start): int(count)
            for name, count in self.metrics.counts.items()
            if name.startswith(start)
        }


@pytest.fixture
async def line(
    kafka: KafkaServer, postgres_dsn: str, fresh_name: Callable[[str], str]
) -> AsyncIterator[Line]:
    config = KafkaConfig(
        kafka.bootstrap_servers,
        group_id=fresh_name("group"),
        usage_topic=fresh_name("usage"),
        rejected_topic=fresh_name("rejected"),
        session_timeout_ms=6_000,
    )
    await ensure_topics(config, partitions=1, retention_ms=3_600_000)
    await asyncio.to_thread(migrate, postgres_dsn)
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, max_request_size=2_000_000
    )
    await producer.start()
    yield Line(config, postgres_dsn, producer)
    await producer.stop()
