"""From a real Kafka to a real PostgreSQL, with faults on the way."""

from __future__ import annotations

import asyncio
import gzip
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import asyncpg
from aiokafka.record.util import calc_crc32c

from balancer.adapters.kafka.topics import ensure_topics, has_log_append_time
from balancer.app import catalogue
from balancer.embedded import KafkaPart, KafkaServer, PostgresPart
from tests.support.report_line import WAIT_SECONDS, Line, body
from tests.support.waiting import until


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
                    # Within a transaction the answer stays the same until it is told to forget it.
                    await blocker.execute("SELECT pg_stat_clear_snapshot()")
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
