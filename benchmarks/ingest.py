"""``python -m benchmarks.ingest``: Kafka to PostgreSQL, beside COPY and ``executemany``.

Decides the fleet, and what is compared: the service's own reading, decoding, checking and storing
of reports that wait in Kafka, in one process, with both servers on the same cores. Beside it, on
the same servers: a plain consumer of the same reports; the bare COPY of the same accounts into a
table without a key, which nothing can beat; and the service's storing of some reports (accounts,
members, acknowledgements), two pieces at once as it does and one by itself, beside a
straightforward ``executemany`` upsert of the same: with a row for each acknowledgement, and in the
very rows that the service writes, which are fewer. Each round every member reports anew, as it does
each minute, so that every row is updated. A tuple is one member's account for one destination;
members and what they acknowledge are stored beside it, not counted.

``--minutes`` lets one reader go on for so long with nothing beside it, to see that memory stays
flat. ``--table`` leaves Kafka out and stores round after round, to see that updates stay in their
pages and tables do not grow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
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
from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate
from balancer.app import catalogue
from balancer.app.ingest import Ingest
from balancer.commands.process import prepare_process
from balancer.embedded import EmbeddedStack
from balancer.ports import AcceptedBatch, UsageRecord
from benchmarks.ingest_peer import consume, create_tables
from benchmarks.ingest_storing import DESTINATIONS, EPOCH_MOST, SEED, SHARDS, reports, storing
from worker_sdk.wire.usage import UsageBatch, encode_batch

PARTITIONS: Final = 8
TTL_MS: Final = 3_600_000
HOSTS, HOSTS_QUICK = 10_000, 2_000
ROUNDS, ROUNDS_QUICK = 12, 3
TABLE_ROUNDS: Final = 500
TABLE_DESTINATIONS: Final = 1
TABLE_SHOWN: Final = 25
ROUND_WAIT_SECONDS: Final = 300
SHOWN_SECONDS: Final = 30


class Freshly(KafkaUsageLog):
    """Takes what waits at start as having just arrived: the embedded broker tells no time."""

    has_read = False

    async def start(self) -> None:
        """See the port."""
        await super().start()
        self._backlog_ends = {}

    async def read(self, *, max_records: int, wait_ms: int) -> Sequence[UsageRecord]:
        """See the port."""
        found = await super().read(max_records=max_records, wait_ms=wait_ms)
        self.has_read = self.has_read or bool(found)
        return found


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


def servers_cpu_seconds() -> float:
    """Return what the servers, which are this process's children, have computed so far."""
    seconds = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            seconds += times.user + times.system
    return seconds


@dataclass(frozen=True, slots=True)
class Rates:
    """What was measured in one round: tuples or rows a second, and microseconds for each tuple."""

    ingest: float
    own_cpu_us: float
    servers_cpu_us: float
    peer: float
    copy: float
    store: float
    single: float
    many: float
    many_of_same: float


@dataclass
class Bench:
    """Servers, and what is measured on them."""

    stack: EmbeddedStack
    repository: PostgresRepository
    sql: asyncpg.Connection[asyncpg.Record]
    kafka: KafkaConfig
    hosts: int

    def ingest(self, log: Freshly, counts: Counts) -> Ingest:
        """Return the service's own reading and storing."""
        return Ingest(
            log,
            self.repository,
            SystemClock(),
            counts,
            decode_record,
            ttl_ms=TTL_MS,
            on_change=_ignore,
        )

    async def round(self, number: int) -> Rates:
        """Send a round's reports, then read and store them; then measure what is beside it."""
        batches = reports(self.hosts, number, time.time_ns() // 1_000_000)
        await send(self.kafka.bootstrap_servers, self.kafka.usage_topic, batches)
        wanted, counts, stop = len(batches) * DESTINATIONS, Counts(), asyncio.Event()
        del batches
        log = Freshly(self.kafka)
        running = asyncio.create_task(self.ingest(log, counts).run(stop))
        first = last = 0.0
        own_cpu, servers_cpu = time.process_time(), servers_cpu_seconds()
        async with asyncio.timeout(ROUND_WAIT_SECONDS):
            while (stored := counts.sums.get(catalogue.STORED, 0)) < wanted:
                await asyncio.sleep(0.005)
                if not first and log.has_read:
                    first = time.perf_counter()
                last = time.perf_counter()
                if running.done():
                    running.result()
        own_cpu, servers_cpu = time.process_time() - own_cpu, servers_cpu_seconds() - servers_cpu
        stop.set()
        await running
        rate = stored / (last - first)
        peer = await consume(self.kafka, self.sql, wanted)
        cpu = own_cpu / stored * 1e6, servers_cpu / stored * 1e6
        alone = await storing(self.repository, self.sql, self.hosts, number)
        return Rates(rate, *cpu, peer, *alone)

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


async def measure(options: argparse.Namespace) -> None:
    """Run and print the table asked for."""
    async with AsyncExitStack() as life:
        parts = ["postgres"] if options.table else ["kafka", "postgres"]
        stack = life.enter_context(EmbeddedStack(parts=parts, report=print))
        await asyncio.to_thread(migrate, stack.postgres.dsn)
        repository = await PostgresRepository.open(stack.postgres.dsn)
        life.push_async_callback(repository.close)
        sql = await asyncpg.connect(stack.postgres.dsn)
        life.push_async_callback(sql.close)
        servers = "" if options.table else stack.kafka.bootstrap_servers
        kafka = KafkaConfig(bootstrap_servers=servers, session_timeout_ms=3000)
        await sql.execute(
            "INSERT INTO permit_lease (shard, number, holder, expires_ms, epoch) "
            "SELECT shard, 1, '', 0, $1 FROM generate_series(0, $2) AS shard",
            EPOCH_MOST,
            SHARDS - 1,
        )
        bench = Bench(stack, repository, sql, kafka, options.hosts)
        if options.table:
            await table_rounds(bench, options.rounds)
            return
        await create_tables(sql)
        await ensure_topics(kafka, partitions=PARTITIONS, retention_ms=3_600_000)
        print(f"seed {SEED}; {options.hosts} hosts x {DESTINATIONS} destinations a round")
        if options.minutes:
            await steady_rounds(bench, options.minutes)
        else:
            await rounds(bench, options.rounds)


async def table_rounds(bench: Bench, count: int) -> None:
    """Store round after round, without Kafka, and show what becomes of the table."""
    print(*(f"{title:>13}" for title in ("rounds", "HOT %", "table MB", "RSS MB")))
    process = psutil.Process()
    for number in range(count):
        now_ms = time.time_ns() // 1_000_000
        batches = reports(bench.hosts, number, now_ms, TABLE_DESTINATIONS)
        await bench.repository.store_batches(
            [AcceptedBatch(batch, now_ms, now_ms) for batch in batches]
        )
        if (number + 1) % TABLE_SHOWN == 0:
            hot, size = await bench.table()
            rss = process.memory_info().rss / 1e6
            shown = (f"{number + 1}", f"{hot * 100:.1f}", f"{size / 1e6:.1f}", f"{rss:.0f}")
            print(*(f"{value:>13}" for value in shown), flush=True)


async def steady_rounds(bench: Bench, minutes: float) -> None:
    """Let one reader read and store round after round, and show what becomes of its memory."""
    titles = ("minute", "tuples", "HOT %", "table MB", "RSS MB")
    print(*(f"{title:>13}" for title in titles))
    counts, stop, process = Counts(), asyncio.Event(), psutil.Process()
    running = asyncio.create_task(bench.ingest(Freshly(bench.kafka), counts).run(stop))
    began = shown = time.monotonic()
    number = wanted = 0
    while time.monotonic() < began + minutes * 60:
        batches = reports(bench.hosts, number, time.time_ns() // 1_000_000)
        await send(bench.kafka.bootstrap_servers, bench.kafka.usage_topic, batches)
        number, wanted = number + 1, wanted + len(batches) * DESTINATIONS
        async with asyncio.timeout(ROUND_WAIT_SECONDS):
            while counts.sums.get(catalogue.STORED, 0) < wanted:
                await asyncio.sleep(0.05)
                if running.done():
                    running.result()
        if time.monotonic() >= shown + SHOWN_SECONDS:
            shown = time.monotonic()
            hot, size = await bench.table()
            values = (
                f"{(shown - began) / 60:.1f}",
                f"{wanted}",
                f"{hot * 100:.1f}",
                f"{size / 1e6:.1f}",
                f"{process.memory_info().rss / 1e6:.0f}",
            )
            print(*(f"{value:>13}" for value in values), flush=True)
    stop.set()
    await running


async def rounds(bench: Bench, count: int) -> None:
    """Measure round by round; COPY and ``executemany`` after each, as the machine was then."""
    process = psutil.Process()
    titles = (
        "round",
        "tuples/s",
        "of COPY",
        "x consumer",
        "two x many",
        "one x many",
        "two x same",
        "own us/tuple",
        "servers us",
        "HOT %",
        "table MB",
        "RSS MB",
    )
    print(*(f"{title:>13}" for title in titles))
    measured: list[Rates] = []
    while len(measured) < count:
        rates = await bench.round(len(measured))
        measured.append(rates)
        hot, size = await bench.table()
        values: tuple[Any, ...] = (
            len(measured),
            f"{rates.ingest:.0f}",
            f"{rates.ingest / rates.copy:.2f}",
            f"{rates.ingest / rates.peer:.1f}",
            f"{rates.store / rates.many:.1f}",
            f"{rates.single / rates.many:.1f}",
            f"{rates.store / rates.many_of_same:.1f}",
            f"{rates.own_cpu_us:.1f}",
            f"{rates.servers_cpu_us:.1f}",
            f"{hot * 100:.1f}",
            f"{size / 1e6:.1f}",
            f"{process.memory_info().rss / 1e6:.0f}",
        )
        print(*(f"{value:>13}" for value in values), flush=True)
    tell(measured[1:] or measured)


def tell(measured: Sequence[Rates]) -> None:
    """Print what it comes to: medians, each ratio of two figures of one round."""
    rates = [each.ingest for each in measured]
    of_copy = median(each.ingest / each.copy for each in measured)
    of_peer = median(each.ingest / each.peer for each in measured)
    two = median(each.store / each.many for each in measured)
    one = median(each.single / each.many for each in measured)
    same = median(each.store / each.many_of_same for each in measured)
    print(
        f"median from the second round on: {median(rates):.0f} tuples/s (best {max(rates):.0f}), "
        f"{of_copy:.2f} of COPY, {of_peer:.1f} x a plain consumer; storing alone is {two:.1f} x "
        f"executemany, {one:.1f} x with one piece at a time, {same:.1f} x executemany of our rows"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--hosts", type=int, help="members that report in each round")
    parser.add_argument("--rounds", type=int, help="how many rounds there are at least")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="one reader for so long, and its memory"
    )
    parser.add_argument("--table", action="store_true", help="what becomes of the table, no Kafka")
    options = parser.parse_args(arguments)
    options.hosts = options.hosts or (HOSTS_QUICK if options.quick else HOSTS)
    usual = TABLE_ROUNDS if options.table else ROUNDS
    options.rounds = options.rounds or (ROUNDS_QUICK if options.quick else usual)
    prepare_process()  # as `serve` does
    asyncio.run(measure(options))


if __name__ == "__main__":
    main()
