"""Faults that reports meet on their way: poison, doubles, deadlocks, a database that is away."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
import zstandard

from balancer.adapters.s3.objects import S3Config
from balancer.adapters.s3.store import S3DocumentStore
from balancer.app import catalogue
from balancer.app.cycle import Cycle, CycleLimits, ShardState
from balancer.app.view import DistributionView
from balancer.core.learning import IngestView
from balancer.core.model import Destination, RoundKind
from balancer.embedded import PostgresPart, S3Part
from tests.support.ingest_doubles import SystemClock
from tests.support.real_clients import s3_client
from tests.support.report_line import TTL_MS, WAIT_SECONDS, Line, body
from tests.support.service_doubles import CountingMetrics
from tests.support.waiting import until
from worker_sdk.wire.pointer import document_key

MIB = 1024 * 1024


def zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(content)


def zstd_streamed(content: bytes) -> bytes:
    """A frame without a content size in its header."""
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(content) + stream.flush()


def halves(content: bytes, pack: Callable[[bytes], bytes]) -> bytes:
    return pack(content[:40]) + pack(content[40:])


def one_bad_of_three() -> bytes:
    value = json.loads(body("partly"))
    good = value["tuples"][0]
    bad = [*good[:5], -1, *good[6:]]
    value["tuples"] = [good, ["second", *bad[1:]], ["third", *good[1:]]]
    return zstd(json.dumps(value).encode())


def poison() -> list[tuple[bytes | None, str | None, str]]:
    """Each body with its encoding and the reason by which it is counted."""
    whole = body("poison")
    return [
        (None, None, "empty"),
        (b"", None, "empty"),
        (b"", "zstd", "empty"),
        (b"\x28\xb5\x2f\xfd", "zstd", "bad_compression"),
        (gzip.compress(whole)[:10], "gzip", "bad_compression"),
        (zstd(b"[]"), "zstd", "bad_field"),
        (gzip.compress(b"[]"), "gzip", "bad_field"),
        (zstd(b'{"v":99}'), "zstd", "bad_version"),
        (gzip.compress(b'{"v":99}'), "gzip", "bad_version"),
        (zstd(b"no JSON at all"), "zstd", "bad_json"),
        (one_bad_of_three(), "zstd", "bad_number"),
        (zstd(whole)[:-1], "zstd", "bad_compression"),
        (zstd_streamed(whole)[:-1], "zstd", "bad_compression"),
        (gzip.compress(whole)[:-1], "gzip", "bad_compression"),
        (zstd(whole) + b"JUNK", "zstd", "bad_compression"),
        (gzip.compress(whole) + b"JUNK", "gzip", "bad_compression"),
        (zstd(bytes(64 * MIB)), "zstd", "too_large"),
        (gzip.compress(bytes(64 * MIB)), "gzip", "too_large"),
        (gzip.compress(gzip.compress(bytes(64 * MIB))), "gzip", "bad_json"),
        (zstd(bytes(64 * 1024)) * 1000, "zstd", "too_large"),
        (gzip.compress(bytes(64 * 1024)) * 1000, "gzip", "too_large"),
    ]


async def test_poison_of_every_kind_is_counted_kept_aside_and_passed_over(line: Line) -> None:
    bad = poison()
    good = {
        "streamed": (zstd_streamed(body("streamed")), "zstd"),
        "joined": (halves(body("joined"), zstd), "zstd"),
        "joined-streams": (halves(body("joined-streams"), zstd_streamed), "zstd"),
        "joined-members": (halves(body("joined-members"), gzip.compress), "gzip"),
    }
    nothing = [(zstd(b""), "zstd"), (zstd_streamed(b""), "zstd"), (gzip.compress(b""), "gzip")]
    async with line.running():
        for message, encoding, _ in bad:
            await line.send(message, **({} if encoding is None else {"content_encoding": encoding}))
        for message, encoding in [*good.values(), *nothing]:
            await line.send(message, content_encoding=encoding)
        await line.send(body("next"))
        await line.until_hosts(dict.fromkeys([*good, "partly", "next"], 5))
        await line.until_committed(len(bad) + len(good) + len(nothing) + 1)
        kept = await line.kept_aside(len(bad))
    assert line.refused_by_reason() == Counter(reason for _, _, reason in bad)
    assert Counter(kept) == Counter((message or b"", reason) for message, _, reason in bad)
    assert catalogue.REJECTED_NOT_KEPT not in line.metrics.counts
    assert catalogue.STORE_RETRIES not in line.metrics.counts
    stored = await line.fetch("SELECT destination FROM permit_usage WHERE host = 'partly'")
    assert {row["destination"] for row in stored} == {"db", "third"}


async def test_of_five_hundred_reports_four_bad_ones_are_counted_before_the_database(
    line: Line,
) -> None:
    def changed(number: int, old: bytes, new: bytes) -> bytes:
        whole = body(f"h{number}")
        assert old in whole
        return whole.replace(old, new)

    messages = [body(f"h{number}") for number in range(500)]
    messages[3] = changed(3, b'"h3"', rb'"h\u0000"')
    messages[77] = changed(77, b'"h77"', rb'"h\ud800"')
    messages[250] = changed(250, b",10,5,0,", b",10,%d,0," % 2**63)
    messages[499] = changed(499, b",10,5,0,", b",10,NaN,0,")
    async with line.running():
        for message in messages:
            await line.producer.send(line.config.usage_topic, message)
        await line.producer.flush()
        wanted = {f"h{number}": 5 for number in range(500) if number not in (3, 77, 250, 499)}
        assert len(wanted) == 496
        await line.until_hosts(wanted)
        await line.until_committed(500)
    # What the database refuses is counted as inconsistent.
    assert line.refused_by_reason() == {"bad_name": 2, "bad_number": 2}
    assert catalogue.STORE_RETRIES not in line.metrics.counts


class Later(SystemClock):
    """The machine's clock, some time on."""

    def __init__(self, by_ms: int) -> None:
        self._by_ms = by_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._by_ms


async def test_a_report_delivered_again_after_170_seconds_lives_no_longer(
    line: Line, fresh_name: Callable[[str], str]
) -> None:
    message = body("h")
    async with line.running(clock=Later(1_000)):
        await line.send(message)
        await line.until_hosts({"h": 5})
    (first,) = await line.fetch("SELECT seen_ms FROM permit_usage")
    # Another group reads the same record, and a double of it as a producer's retry makes it.
    again = replace(line.config, group_id=fresh_name("group"))
    async with line.running(again, clock=Later(170_000)) as repository:
        await line.send(message)
        await until(lambda: line.metrics.counts.get(catalogue.STALE, 0) >= 1, seconds=WAIT_SECONDS)
        (second,) = await line.fetch("SELECT seen_ms FROM permit_usage")
        assert second == first
        for age_ms, live in ((TTL_MS - 1, ["h"]), (TTL_MS, [])):
            now_ms = first["seen_ms"] + age_ms
            rows = await repository.load_shard(
                0, ["db"], now_ms=now_ms, ttl_ms=TTL_MS, keep_ms=2 * TTL_MS
            )
            assert [row.host for row in rows.usage] == live
            assert [member.seen_ms for member in rows.members] == [first["seen_ms"]]


@asynccontextmanager
async def holding(line: Line, *statements: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A transaction of somebody else that holds locks; it is undone at the end if still open."""
    connection = await asyncpg.connect(line.dsn, timeout=10)
    transaction = connection.transaction()
    try:
        await transaction.start()
        for statement in statements:
            await connection.execute(statement, timeout=10)
        yield connection
        if connection.is_in_transaction():
            await transaction.rollback()
    finally:
        await connection.close(timeout=5)


async def until_waiting(connection: asyncpg.Connection[Any], count: int) -> None:
    """Wait until so many statements of the same database wait for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with asyncio.timeout(WAIT_SECONDS):
        while await connection.fetchval(query) < count:
            # Within a transaction the answer stays the same until it is told to forget it.
            await connection.execute("SELECT pg_stat_clear_snapshot()")
            await asyncio.sleep(0.01)


def two_accounts(used: int) -> bytes:
    value = json.loads(body("h", used))
    (row,) = value["tuples"]
    value["tuples"] = [["d1", *row[1:]], ["d2", *row[1:]]]
    return json.dumps(value).encode()


async def test_a_deadlock_with_somebody_else_is_tried_again(line: Line) -> None:
    async with line.running():
        await line.send(two_accounts(1))
        await line.until_hosts({"h": 1})
        touch = "UPDATE permit_usage SET busy_ms = busy_ms WHERE destination = "
        # The other waits with more patience, so that the balancer's statement is the victim.
        async with holding(line, "SET LOCAL deadlock_timeout = '60s'", f"{touch} 'd2'") as other:
            await line.send(two_accounts(2))
            await until_waiting(other, 1)
            await other.execute(f"{touch} 'd1'", timeout=WAIT_SECONDS)
            await other.execute("COMMIT")
        await line.until_hosts({"h": 2})
        await line.until_committed(2)
    assert line.metrics.counts[catalogue.STORE_RETRIES] >= 1
    assert line.refused_by_reason() == {}


async def test_a_killed_connection_and_a_restart_commit_nothing_early_and_leave_the_pool_whole(
    line: Line, postgres: PostgresPart
) -> None:
    async with line.running() as repository:
        async with holding(line, "LOCK TABLE permit_usage IN EXCLUSIVE MODE") as other:
            await line.send(body("first"))
            await until_waiting(other, 1)
            await other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            await until(
                lambda: line.metrics.counts.get(catalogue.STORE_RETRIES, 0) >= 1,
                seconds=WAIT_SECONDS,
            )
            assert await line.committed() == 0
        await line.until_hosts({"first": 5})
        await line.until_committed(1)
        postgres.kill()
        try:
            retries = line.metrics.counts[catalogue.STORE_RETRIES]
            await line.send(body("second"))
            await until(
                lambda: line.metrics.counts[catalogue.STORE_RETRIES] >= retries + 3,
                seconds=WAIT_SECONDS,
            )
            assert await line.committed() == 1
        finally:
            await asyncio.to_thread(postgres.start)
        await line.until_hosts({"first": 5, "second": 5})
        await line.until_committed(2)
        # Its two connections work at once: each question holds one for a while.
        async with holding(line, "LOCK TABLE permit_member IN ACCESS EXCLUSIVE MODE") as other:
            asked = [asyncio.create_task(repository.known_host(name)) for name in "ab"]
            await until_waiting(other, 2)
        assert await asyncio.gather(*asked) == [False, False]


def padded(number: int) -> bytes:
    return body(f"h{number}")[:-1] + b',"pad":"' + os.urandom(4_000).hex().encode() + b'"}'


async def test_while_the_database_is_stalled_memory_stays_flat_and_all_is_stored_afterwards(
    line: Line,
) -> None:
    count, waiting_bytes = 6_000, 6_000 * 8_000
    async with line.running():
        tracemalloc.start()
        try:
            async with holding(line, "LOCK TABLE permit_usage IN EXCLUSIVE MODE") as other:
                for start in range(0, count, 500):
                    for number in range(start, start + 500):
                        await line.producer.send(line.config.usage_topic, padded(number))
                    await line.producer.flush()
                await until_waiting(other, 1)
                held_bytes, _ = tracemalloc.get_traced_memory()
                assert await line.committed() == 0
        finally:
            tracemalloc.stop()
        await line.until_committed(count)
    assert held_bytes < waiting_bytes / 2
    (row,) = await line.fetch("SELECT count(*) AS stored FROM permit_usage")
    assert row["stored"] == count
    assert line.refused_by_reason() == {}


async def test_a_reader_beyond_the_number_of_partitions_is_ready_and_takes_over(
    line: Line,
) -> None:
    async with line.running():
        await line.send(body("first"))
        await line.until_hosts({"first": 5})
        spare = Line(line.config, line.dsn, line.producer)
        async with spare.running():  # it counts as caught up
            await line.send(body("second"))
            await line.until_hosts({"first": 5, "second": 5})
            both = Counter(line.metrics.counts) + Counter(spare.metrics.counts)
            assert both[catalogue.STORED] == 2


AMOUNTS = ["NaN", "Infinity", "-Infinity", "1e999", "-5", "true", '"3"', "null"]


def refuse_constant(text: str) -> float:
    raise AssertionError(f"{text} is no JSON")


@pytest.mark.usefixtures("aws_environment")
async def test_an_amount_that_is_no_number_is_refused_and_the_file_is_strict_json(
    line: Line, s3: S3Part, s3_prefix: str
) -> None:
    clock = SystemClock()
    config = S3Config(s3.bucket, s3_prefix, s3.endpoint_url, s3.region)
    view = DistributionView(1)
    view.shards = 1
    async with line.running() as repository:
        await repository.put_destination(Destination("db", 1000))
        for number, amount in enumerate(AMOUNTS):
            message = body(f"bad{number}").replace(b",10,5,0,", b",10,%s,0," % amount.encode())
            message = message.replace(b'"epochs":{"0":7}', b'"epochs":{}')
            await line.send(message)
        # It holds nothing: nothing was ever published.
        await line.send(body("good").replace(b'"epochs":{"0":7}', b'"epochs":{}'))
        await line.until_hosts({"good": 5})
        await line.until_committed(len(AMOUNTS) + 1)
        assert line.refused_by_reason() == {"bad_number": len(AMOUNTS)}
        store = S3DocumentStore(config)
        cycle = Cycle(
            repository, store, view, clock, CountingMetrics(), CycleLimits(60_000, TTL_MS)
        )
        (lease,) = await repository.acquire_leases("one", [0], now_ms=clock.now_ms(), ttl_ms=60_000)
        told = await cycle.run(
            ShardState.of(lease), RoundKind.EARLY, IngestView(clock.now_ms(), 0, caught_up=True)
        )
        store.close()
    assert told.outcome == "published"
    (document,) = view.documents_of(0)
    key = f"{s3_prefix}/{document_key(0, document.epoch)}"
    answer = s3_client(s3).get_object(Bucket=s3.bucket, Key=key)
    lines = gzip.decompress(answer["Body"].read()).splitlines()
    values = [json.loads(text, parse_constant=refuse_constant) for text in lines]
    assert [value[0] for value in values if isinstance(value, list)] == ["good"]
    sums = await line.fetch("SELECT sum(used) AS used, max(used) AS most FROM permit_usage")
    assert (sums[0]["used"], sums[0]["most"]) == (5, 5)
