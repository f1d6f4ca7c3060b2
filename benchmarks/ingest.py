"""``python -m benchmarks.ingest``: Kafka to PostgreSQL, beside COPY and ``executemany``.

Decides the fleet, and what is compared: the service's own reading, decoding, checking and storing
of reports that wait in Kafka, in one process, with both servers on the same cores; and on the same
server the bare COPY of the same accounts into a table without a key, which nothing can beat, and
a straightforward ``executemany`` upsert. Each round every member reports anew, as it does each
minute, so that every row is updated. A tuple is one member's account for one destination; what
members acknowledge is stored beside it and not counted.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

import asyncpg
import psutil
import zstandard
from aiokafka import AIOKafkaProducer

from balancer.adapters.clock import SystemClock
from balancer.adapters.kafka.compression import decode_record
from balancer.adapters.kafka.config import KafkaConfig
from balancer.adapters.kafka.topics import ensure_topics
from balancer.adapters.kafka.usage_log import KafkaUsageLog
from balancer.adapters.postgres import rows
from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate
from balancer.app import catalogue
from balancer.app.ingest import Ingest
from balancer.embedded import EmbeddedStack
from balancer.ports import AcceptedBatch, UsageRecord
from worker_sdk.wire.pointer import shard_of
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple, encode_batch

SEED: Final = 1
SHARDS: Final = 16
PARTITIONS: Final = 8
TTL_MS: Final = 3_600_000
DESTINATIONS: Final = 10
HOSTS, HOSTS_QUICK = 10_000, 2_000
ROUNDS, ROUNDS_QUICK = 12, 3
SAMPLE_ROWS: Final = 20_000
ROUND_WAIT_SECONDS: Final = 300

UPSERT: Final = """
INSERT INTO permit_usage AS stored VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)
ON CONFLICT (destination, host, instance) DO UPDATE
SET from_ms = excluded.from_ms, instant_ms = excluded.instant_ms, epoch = excluded.epoch,
    granted = excluded.granted, used = excluded.used, denied = excluded.denied,
    starved_ms = excluded.starved_ms, busy_ms = excluded.busy_ms, seen_ms = excluded.seen_ms
WHERE stored.instant_ms < excluded.instant_ms
"""
KEY: Final = ("destination", "host", "instance")
NUMBERS: Final = (
    *("from_ms", "instant_ms", "epoch", "granted", "used", "denied"),
    *("starved_ms", "busy_ms", "seen_ms"),
)


class Freshly(KafkaUsageLog):
    """Takes what waits at start as having just arrived: the embedded broker tells no time."""

    has_read = False

    async def read(self, *, max_records: int, wait_ms: int) -> Sequence[UsageRecord]:
        """See the port."""
        found = await super().read(max_records=max_records, wait_ms=wait_ms)
        self.has_read = self.has_read or bool(found)
        return [replace(record, backlog=False) for record in found]


class Counts:
    """Sums of counters; anything else is nobody's concern here."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}

    def count(self, name: str, amount: float = 1, labels: Mapping[str, str] | None = None) -> None:
        """Add to a sum."""
        self.sums[name] = self.sums.get(name, 0) + amount

    def gauge(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Take no note."""

    def observe(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Take no note."""

    def forget(self, name: str, labels: Mapping[str, str]) -> None:
        """Take no note."""


def reports(hosts: int, number: int, now_ms: int) -> list[UsageBatch]:
    """Return what every host reports in a round: an account for each destination."""
    rng = random.Random(SEED + number)
    names = [f"destination-{index}" for index in range(DESTINATIONS)]
    epochs = {shard_of(name, SHARDS): number + 1 for name in names}
    return [
        UsageBatch(
            f"host-{host:05d}",
            f"i{host:08x}",
            now_ms,
            MemberState.RUNNING,
            None,
            epochs,
            tuple(
                UsageTuple(
                    name,
                    now_ms - 60_000,
                    now_ms,
                    number + 1,
                    rng.randrange(900),
                    rng.randrange(900),
                    rng.randrange(50),
                    0,
                    rng.randrange(60_000),
                )
                for name in names
            ),
        )
        for host in range(hosts)
    ]


async def send(servers: str, topic: str, batches: Sequence[UsageBatch]) -> None:
    """Put reports on the topic, compressed as workers do."""
    packer = zstandard.ZstdCompressor(level=3)
    headers = [("content-encoding", b"zstd")]
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=20) as producer:
        sent = [
            await producer.send(
                topic,
                packer.compress(encode_batch(batch)),
                key=batch.host.encode(),
                headers=headers,
            )
            for batch in batches
        ]
        await asyncio.gather(*sent)


@dataclass
class Bench:
    """Servers, and what is measured on them."""

    stack: EmbeddedStack
    repository: PostgresRepository
    sql: asyncpg.Connection[asyncpg.Record]
    kafka: KafkaConfig
    hosts: int

    async def round(self, number: int) -> tuple[float, float]:
        """Send a round's reports, then read and store them.

        Returns tuples a second, and microseconds of this process's own computing for each.
        """
        batches = reports(self.hosts, number, time.time_ns() // 1_000_000)
        await send(self.kafka.bootstrap_servers, self.kafka.usage_topic, batches)
        wanted, counts, stop = len(batches) * DESTINATIONS, Counts(), asyncio.Event()
        del batches
        log = Freshly(self.kafka)
        ingest = Ingest(
            log,
            self.repository,
            SystemClock(),
            counts,
            decode_record,
            ttl_ms=TTL_MS,
            on_change=_ignore,
        )
        running = asyncio.create_task(ingest.run(stop))
        first = last = 0.0
        began_cpu = time.process_time()
        async with asyncio.timeout(ROUND_WAIT_SECONDS):
            while (stored := counts.sums.get(catalogue.STORED, 0)) < wanted:
                await asyncio.sleep(0.002)
                if not first and log.has_read:
                    first = time.perf_counter()
                last = time.perf_counter()
                if running.done():
                    running.result()
        cpu = time.process_time() - began_cpu
        stop.set()
        await running
        return stored / (last - first), cpu / stored * 1e6

    async def bare(self) -> tuple[float, float]:
        """Return rows a second of COPY and of an ``executemany`` upsert, of the same accounts."""
        now_ms = time.time_ns() // 1_000_000
        accepted = [
            AcceptedBatch(batch, now_ms, now_ms)
            for batch in reports(self.hosts, 1_000, now_ms)[: SAMPLE_ROWS // DESTINATIONS]
        ]
        given, count = rows.usage_rows(accepted)
        await self.sql.execute(
            "CREATE TABLE IF NOT EXISTS bare AS SELECT * FROM permit_usage WITH NO DATA"
        )
        columns = [*KEY, *NUMBERS]
        began = time.perf_counter()
        await self.sql.copy_records_to_table("bare", records=given, columns=columns)
        copied = time.perf_counter()
        # The columns of permit_usage begin with host, instance, destination.
        ordered = [(row[1], row[2], row[0], *row[3:]) for row in given]
        ready = time.perf_counter()
        await self.sql.executemany(UPSERT, ordered)
        return count / (copied - began), count / (time.perf_counter() - ready)

    async def table(self) -> tuple[float, int]:
        """Return which part of the updates stayed in their page, and the table's size in bytes."""
        await self.sql.execute("SELECT pg_stat_force_next_flush()")
        await asyncio.sleep(1.5)  # the pool's connections tell their counts when idle
        row = await self.sql.fetchrow(
            "SELECT n_tup_hot_upd, n_tup_upd, pg_total_relation_size(relid) AS bytes "
            "FROM pg_stat_user_tables WHERE relname = 'permit_usage'"
        )
        assert row is not None
        return row["n_tup_hot_upd"] / max(1, row["n_tup_upd"]), row["bytes"]


def _ignore(_: Collection[str]) -> None: ...


async def measure(*, quick: bool) -> None:
    """Run and print the table."""
    hosts = HOSTS_QUICK if quick else HOSTS
    async with AsyncExitStack() as life:
        stack = life.enter_context(EmbeddedStack(parts=["kafka", "postgres"], report=print))
        await asyncio.to_thread(migrate, stack.postgres.dsn)
        repository = await PostgresRepository.open(stack.postgres.dsn)
        life.push_async_callback(repository.close)
        sql = await asyncpg.connect(stack.postgres.dsn)
        life.push_async_callback(sql.close)
        kafka = KafkaConfig(
            bootstrap_servers=stack.kafka.bootstrap_servers, session_timeout_ms=3000
        )
        await ensure_topics(kafka, partitions=PARTITIONS, retention_ms=3_600_000)
        bench = Bench(stack, repository, sql, kafka, hosts)
        print(f"seed {SEED}; {hosts} hosts x {DESTINATIONS} destinations a round, as one process")
        await rounds(bench, ROUNDS_QUICK if quick else ROUNDS)


async def rounds(bench: Bench, count: int) -> None:
    """Measure round by round; COPY and ``executemany`` after each, as the machine was then."""
    process = psutil.Process()
    titles = (
        "round",
        "tuples/s",
        "of COPY",
        "x executemany",
        "CPU us/tuple",
        "HOT %",
        "table MB",
        "RSS MB",
    )
    print(*(f"{title:>13}" for title in titles))
    rates: list[tuple[float, float, float]] = []
    for number in range(count):
        rate, cpu_us = await bench.round(number)
        copy, many = await bench.bare()
        rates.append((rate, copy, many))
        hot, size = await bench.table()
        values: tuple[Any, ...] = (
            number + 1,
            f"{rate:.0f}",
            f"{rate / copy:.2f}",
            f"{rate / many:.1f}",
            f"{cpu_us:.1f}",
            f"{hot * 100:.1f}",
            f"{size / 1e6:.1f}",
            f"{process.memory_info().rss / 1e6:.0f}",
        )
        print(*(f"{value:>13}" for value in values), flush=True)
    rate, copy, many = (median(column) for column in zip(*rates[1:], strict=True))
    print(
        f"median from the second round on: {rate:.0f} tuples/s, {rate / copy:.2f} of COPY "
        f"({copy:.0f}), {rate / many:.1f} x executemany ({many:.0f})"
    )


def main(*, quick: bool = False) -> None:
    """Run the benchmark."""
    asyncio.run(measure(quick=quick))


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
