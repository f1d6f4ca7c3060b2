"""From a real Kafka to a real PostgreSQL, with faults on the way."""

from __future__ import annotations

import asyncio
import gzip
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.record.util import calc_crc32c

from balancer.adapters.kafka.compression import decode_record
from balancer.adapters.kafka.config import KafkaConfig
from balancer.adapters.kafka.topics import ensure_topics, has_log_append_time
from balancer.adapters.kafka.usage_log import KafkaUsageLog
from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate
from balancer.app import catalogue
from balancer.app.ingest import Ingest
from balancer.embedded import KafkaPart, KafkaServer, PostgresPart
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
    """A topic, a database and an ingest between them that can be run."""

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
    async def running(self, config: KafkaConfig | None = None) -> AsyncIterator[PostgresRepository]:
        repository = await PostgresRepository.open(self.dsn, pool_size=2)
        log = KafkaUsageLog(config or self.config)
        ingest = Ingest(
            log,
            repository,
            SystemClock(),
            self.metrics,
            decode_record,
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

    async def hosts(self) -> dict[str, int]:
        connection = await asyncpg.connect(self.dsn, timeout=10)
        try:
            rows = await connection.fetch("SELECT host, used FROM permit_usage", timeout=10)
        finally:
            await connection.close(timeout=5)
        return {row["host"]: row["used"] for row in rows}

    async def until_hosts(self, wanted: dict[str, int]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.hosts() != wanted:  # noqa: ASYNC110 - asked of the database
                await asyncio.sleep(0.05)

    async def rejected(self, count: int) -> list[str]:
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
        return [dict(record.headers)["reason"].decode() for record in records]


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


async def test_poison_of_every_kind_is_kept_aside_and_the_good_is_stored(line: Line) -> None:
    packed = gzip.compress(body("packed"), mtime=0)
    async with line.running():
        await line.send(None)
        await line.send(b"")
        await line.send(b"\x28\xb5\x2f\xfd", content_encoding="zstd")
        await line.send(packed[:-1], content_encoding="gzip")
        await line.send(packed + b"JUNK", content_encoding="gzip")
        await line.send(b"[]")
        await line.send(b'{"v":99}')
        await line.send(b"hello", content_type="text/plain")
        await line.send(gzip.compress(b""), content_encoding="gzip")
        await line.send(body("bomb")[:-1] + b"," + b" " * 950_000 + b'"x":1}')
        await line.send(packed, content_encoding="gzip")
        await line.send(body("plain"))
        await line.until_hosts({"packed": 5, "plain": 5})
        reasons = await line.rejected(9)
    wanted = {"empty": 2, "bad_compression": 3, "bad_field": 1, "bad_version": 1}
    assert Counter(reasons) == wanted | {"bad_content_type": 1, "too_large": 1}


async def send_with_a_header_that_is_not_utf8(line: Line, message: bytes) -> None:
    """The client refuses to write such a thing, so the bytes it made are changed."""
    batch = line.producer.create_batch()
    batch.append(timestamp=None, key=None, value=message, headers=[("ZZZZ", b"1")])
    made = bytearray(batch._build())
    place = made.index(b"ZZZZ")
    made[place : place + 4] = b"\xff" * 4
    made[17:21] = struct.pack(">I", calc_crc32c(bytes(made[21:])))  # its checksum stands there
    batch._buffer = made
    await (await line.producer.send_batch(batch, line.config.usage_topic, partition=0))


async def test_a_record_that_the_client_cannot_take_apart_costs_one_record(line: Line) -> None:
    async with line.running():
        await line.producer.send_and_wait(line.config.usage_topic, body("before"))
        await send_with_a_header_that_is_not_utf8(line, body("bad"))
        await line.send(body("after"))
        await line.until_hosts({"before": 5, "after": 5})
    assert line.metrics.counts[f"{catalogue.REJECTED}:bad_compression"] == 1


async def test_a_connection_killed_in_the_middle_costs_nothing(line: Line) -> None:
    async with line.running():
        blocker = await asyncpg.connect(line.dsn, timeout=10)
        try:
            transaction = blocker.transaction()
            await transaction.start()
            await blocker.execute("LOCK TABLE permit_usage IN EXCLUSIVE MODE", timeout=10)
            await line.send(body("h"))
            killed = 0
            async with asyncio.timeout(WAIT_SECONDS):
                while not killed:
                    killed = await blocker.fetchval(
                        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
                    )
                    await asyncio.sleep(0.02)
            await transaction.rollback()
        finally:
            await blocker.close(timeout=5)
        await line.until_hosts({"h": 5})
    assert line.metrics.counts[catalogue.STORE_RETRIES] >= 1


async def test_while_postgresql_is_away_nothing_is_lost_or_committed(
    line: Line, postgres: PostgresPart
) -> None:
    async with line.running():
        await line.send(body("before"))
        await line.until_hosts({"before": 5})
        postgres.kill()
        try:
            await line.send(body("during"))
            await until(
                lambda: line.metrics.counts.get(catalogue.STORE_RETRIES, 0) >= 2,
                seconds=WAIT_SECONDS,
            )
        finally:
            await asyncio.to_thread(postgres.start)
        await line.until_hosts({"before": 5, "during": 5})


async def test_two_readers_share_the_partitions_and_store_every_record(
    line: Line, fresh_name: Callable[[str], str]
) -> None:
    config = replace(line.config, usage_topic=fresh_name("usage"))
    await ensure_topics(config, partitions=4, retention_ms=3_600_000)
    line.config = config
    hosts = {f"h{number}": 5 for number in range(40)}

    async def send(names: list[str]) -> None:
        for number, name in enumerate(names):
            await line.producer.send_and_wait(config.usage_topic, body(name), partition=number % 4)

    # What a reader finds at its start is skipped where nobody tells how old it is.
    while_joining = await has_log_append_time(config)
    other = Line(config, line.dsn, line.producer)
    async with line.running():
        await send(list(hosts)[:20])
        await line.until_hosts(dict.fromkeys(list(hosts)[:20], 5))
        sending = asyncio.create_task(send(list(hosts)[20:] if while_joining else []))
        async with other.running():
            await sending
            if not while_joining:
                await send(list(hosts)[20:])
            await line.until_hosts(hosts)


async def test_a_reader_that_comes_back_goes_on_where_it_had_stored(line: Line) -> None:
    async with line.running():
        await line.send(body("first"))
        await line.until_hosts({"first": 5})
    line.metrics.counts.clear()
    async with line.running():
        await line.send(body("second"))
        await line.until_hosts({"first": 5, "second": 5})
    assert line.metrics.counts[catalogue.STORED] == 1
    assert catalogue.STALE not in line.metrics.counts or not line.metrics.counts[catalogue.STALE]


async def test_the_check_tells_whose_time_a_topic_has_and_topics_are_made_once(
    line: Line, kafka: KafkaServer
) -> None:
    assert await ensure_topics(line.config, partitions=1, retention_ms=3_600_000) == []
    assert await has_log_append_time(line.config) is not isinstance(kafka, KafkaPart)
