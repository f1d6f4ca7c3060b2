"""``python -m benchmarks.round``: a whole round over many live accounts, part by part.

Decides the fleet and what is measured: one replica that leads every shard, with the accounts in
PostgreSQL and the documents in S3, both on this machine and its cores. Rounds alternate: one plans
shard after shard, so that the time of each part can be told; the next plans several at once, as the
service does, and only its whole can. Between rounds each member reports anew and acknowledges the
newest documents, which is not measured. A round ends where its last pointer is put; what is told of
it then (metrics, history) is shown apart. The largest memory is this process' own, servers not
counted. PostgreSQL may keep so much in memory as accounts take, which is not its default.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import asyncpg
import psutil

from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate
from balancer.adapters.s3.objects import S3Config
from balancer.adapters.s3.store import S3DocumentStore
from balancer.app import catalogue
from balancer.app.cycle import Cycle, CycleLimits, ShardState
from balancer.app.supervisor import ROUNDS_AT_ONCE
from balancer.app.view import DistributionView
from balancer.commands.process import prepare_process
from balancer.core.learning import IngestView
from balancer.core.model import Destination, RoundKind
from balancer.embedded import EmbeddedStack
from balancer.embedded.postgres import PostgresPart

SHARDS: Final = 16
SHARED_BUFFERS: Final = "1GB"
ROUND_MS: Final = 60_000
PLAN_AT_MS: Final = 38_000
LEASE_MS: Final = 3_600_000
ENTRIES, ENTRIES_QUICK = 100_000, 20_000
MEMBERS_MAX: Final = 1_000
ROUNDS: Final = 6
TIMED: Final = ("load", "read", "record", "publish", "serve")
PARTS: Final = ("load", "read", "plan", "record", "publish", "serve", "round", "tell", "all")

FILL: Final = (
    "DELETE FROM permit_usage",
    """
    INSERT INTO permit_usage (host, instance, destination, from_ms, instant_ms, epoch, granted,
        used, denied, starved_ms, busy_ms, seen_ms)
    SELECT 'host-' || m, 'i' || lpad(to_hex(m), 15, '0'), 'destination-' || d, $3::bigint - 60000,
        $3, 1, 150, (random() * 150)::bigint, (random() * 50)::bigint, 0, 0, $3
    FROM generate_series(1, $1::integer) AS m, generate_series(1, $2::integer) AS d
    """,
    """
    INSERT INTO permit_member (host, instance, instant_ms, seen_ms)
    SELECT 'host-' || m, 'i' || lpad(to_hex(m), 15, '0'), $2::bigint, $2
    FROM generate_series(1, $1::integer) AS m
    ON CONFLICT (host, instance) DO UPDATE SET instant_ms = $2, seen_ms = $2
    """,
    """
    INSERT INTO permit_member_epochs
    SELECT 'host-' || m, 'i' || lpad(to_hex(m), 15, '0'), shards, epochs,
        array_fill($2::bigint, ARRAY[cardinality(shards)]), epochs
    FROM generate_series(1, $1::integer) AS m,
        (SELECT array_agg(shard) AS shards, array_agg(epoch) AS epochs FROM permit_lease) AS leases
    ON CONFLICT (host, instance) DO UPDATE SET shards = excluded.shards, epochs = excluded.epochs,
        acknowledged_ms = excluded.acknowledged_ms, told_epochs = excluded.told_epochs
    """,
)


def now() -> tuple[float, float]:
    """Return the clocks that are compared: the wall's, and what this process has computed."""
    return time.perf_counter(), time.process_time()


class Stepped:
    """A clock that is set; lengths of time are real."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        """See `balancer.ports.Clock`."""
        return self.ms

    def monotonic_ms(self) -> int:
        """See `balancer.ports.Clock`."""
        return time.monotonic_ns() // 1_000_000


class Repository(PostgresRepository):
    """One whose server's clock is set too."""

    clock: Stepped

    async def now_ms(self) -> int:
        """See the port."""
        return self.clock.ms


class Measured:
    """Whatever is called here takes time that is noted by part.

    Attributes:
        wall: seconds by part.
        processor: what this process computed meanwhile, in seconds by part.
    """

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.processor: dict[str, float] = {}
        self.began = self.published = now()

    def shares(self) -> list[tuple[str, dict[str, float]]]:
        """Return the seconds by part, of the wall's clock and of the processor's."""
        told = []
        for name, seconds in (("wall", self.wall), ("processor", self.processor)):
            known = dict.fromkeys(TIMED, 0.0) | seconds
            known["plan"] = known["round"] - sum(known[part] for part in TIMED)
            known["tell"] = known["all"] - known["round"]
            told.append((name, known))
        return told

    def whole(self) -> list[tuple[str, dict[str, float]]]:
        """Return the seconds of shards that were planned at once, from the first to the last."""
        return [
            (name, {"round": last - first, "all": end - first, "tell": end - last})
            for name, first, last, end in zip(
                ("at once", "processor"), self.began, self.published, now(), strict=True
            )
        ]

    def count(self, name: str, amount: float = 1, labels: Mapping[str, str] | None = None) -> None:
        """Take no note."""

    def gauge(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Take no note."""

    def observe(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Take note of the instant at which a round was published."""
        if name == catalogue.ROUND_SECONDS:
            self.end_round()

    def end_round(self) -> None:
        """Take note of the instant at which a shard's round was at its end."""
        self.published = now()
        self.add("round", self.began)

    def forget(self, name: str, labels: Mapping[str, str]) -> None:
        """Take no note."""

    def add(self, part: str, began: tuple[float, float]) -> None:
        """Add the time since it began to a part's."""
        wall, processor = now()
        self.wall[part] = self.wall.get(part, 0.0) + wall - began[0]
        self.processor[part] = self.processor.get(part, 0.0) + processor - began[1]

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Return ``call``, with its time noted."""

        async def timed(*given: Any, **named: Any) -> Any:
            began = now()
            try:
                return await call(*given, **named)
            finally:
                self.add(part, began)

        return timed


class Replica:
    """A repository, a store and a cycle as the service joins them, every call of them timed."""

    def __init__(self, repository: Repository, config: S3Config, clock: Stepped) -> None:
        repository.clock = clock
        self.measured = Measured()
        self.repository, self.store, view = repository, S3DocumentStore(config), DistributionView()
        view.shards = SHARDS
        timed: Sequence[tuple[object, str, str]] = (
            (self.store, "load", "load"),
            (repository, "load_shard", "read"),
            (repository, "record_epoch", "record"),
            (self.store, "publish", "publish"),
            (view, "show", "serve"),
        )
        for part, name, word in timed:
            setattr(part, name, self.measured.timed(word, getattr(part, name)))
        self.cycle = Cycle(
            repository,
            self.store,
            view,
            clock,
            self.measured,
            CycleLimits(ROUND_MS, 3 * ROUND_MS),
        )
        self.states: list[ShardState] = []

    async def take(self, now_ms: int) -> None:
        """Take the lease of every shard."""
        leases = await self.repository.acquire_leases(
            "benchmark", range(SHARDS), now_ms=now_ms, ttl_ms=LEASE_MS
        )
        self.states = [ShardState.of(lease) for lease in leases]

    async def round(self, now_ms: int, at_once: int) -> list[tuple[str, dict[str, float]]]:
        """Run a round of every shard, so many at once; return the seconds by part."""
        measured = self.measured
        measured.wall, measured.processor = {}, {}
        ingest = IngestView(now_ms, 0, caught_up=True)
        run = measured.timed("all", self.cycle.run)
        turns = asyncio.Semaphore(at_once)

        async def take_turn(state: ShardState) -> None:
            async with turns:
                if at_once == 1:
                    measured.began = now()
                told = await run(state, RoundKind.REGULAR, ingest)
                if told.outcome == "nothing":  # of a shard without destinations
                    measured.end_round()
                elif told.outcome != "published":
                    raise RuntimeError(told.sentence)

        measured.began = now()
        await asyncio.gather(*map(take_turn, self.states))
        return measured.shares() if at_once == 1 else measured.whole()


async def fill(sql: asyncpg.Connection[asyncpg.Record], size: tuple[int, int], now_ms: int) -> None:
    """Let every member report anew, and acknowledge what was published last."""
    members, destinations = size
    given = ((), (members, destinations, now_ms), (members, now_ms), (members, now_ms))
    for statement, values in zip(FILL, given, strict=True):
        await sql.execute(statement, *values, timeout=600)
    await sql.execute("VACUUM (ANALYZE) permit_usage", timeout=600)


async def prepare(postgres: PostgresPart) -> None:
    """Set the server's memory, and make the tables."""
    sql = await asyncpg.connect(postgres.dsn)
    await sql.execute(f"ALTER SYSTEM SET shared_buffers = '{SHARED_BUFFERS}'")
    await sql.close()
    await asyncio.to_thread(postgres.restart)
    await asyncio.to_thread(migrate, postgres.dsn)


def servers_seconds() -> float:
    """Return how long the servers, which are this process' children, have computed so far."""
    seconds = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def peak_mib() -> float:
    """Return the most memory that this process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure(entries: int, rounds: int) -> None:
    """Run rounds and print a table."""
    members = min(entries, MEMBERS_MAX)
    size = members, max(1, entries // members)
    async with AsyncExitStack() as life:
        stack = life.enter_context(EmbeddedStack(parts=["postgres", "s3"], report=print))
        os.environ.update(
            {name: value for name, value in stack.environment().items() if name.startswith("AWS_")}
        )
        await prepare(stack.postgres)
        repository = await Repository.open(stack.postgres.dsn)
        life.push_async_callback(repository.close)
        sql = await asyncpg.connect(stack.postgres.dsn)
        life.push_async_callback(sql.close)
        for number in range(1, size[1] + 1):
            await repository.put_destination(Destination(f"destination-{number}", 100 * members))
        clock = Stepped()
        s3 = stack.s3
        replica = Replica(repository, S3Config(s3.bucket, "", s3.endpoint_url, s3.region), clock)
        print(f"{size[0]} members x {size[1]} destinations in {SHARDS} shards; seconds by part")
        print("load: documents from S3; read: accounts; plan: with the check; record: the memory;")
        print("publish: encode and put; serve: render answers; round: all these; tell: history")
        print("servers: what both computed in that time; peak: MiB")
        print(*(f"{title:>9}" for title in ("", *PARTS, "servers", "peak", "load")))
        start_ms = time.time_ns() // 1_000_000 // ROUND_MS * ROUND_MS
        for number in range(rounds):
            clock.ms = start_ms + number * ROUND_MS + PLAN_AT_MS
            if not number:
                await replica.take(clock.ms)
            await fill(sql, size, clock.ms - 20_000)
            before = servers_seconds()
            told = await replica.round(clock.ms, (1, ROUNDS_AT_ONCE)[number % 2])
            servers = servers_seconds() - before
            for name, seconds in told:
                shown = [f"{seconds[part]:.2f}" if part in seconds else "" for part in PARTS]
                shown += [f"{servers:.2f}", f"{peak_mib():.0f}", f"{os.getloadavg()[0]:.1f}"]
                print(*(f"{value:>9}" for value in (name, *shown)), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.round", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--entries", type=int, help="live accounts, of up to 1,000 members")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how many rounds there are")
    options = parser.parse_args(arguments)
    usual = ENTRIES_QUICK if options.quick else ENTRIES
    prepare_process()
    asyncio.run(measure(options.entries or usual, options.rounds))


if __name__ == "__main__":
    main()
