"""``python -m benchmarks.replicas_real``: two replicas that read beside one, with real servers.

Decides the fleet, and tells which part is the limit. Reports wait in Kafka; one process, then two
of one group, read and store them in PostgreSQL by the service's own code. Beside the rate stands
how much of a core each part used meanwhile: where all of them together use what the machine has,
another replica on it brings nothing, and the part that used most is what to give cores to.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from statistics import median
from typing import Any, Final

import asyncpg
import psutil

from balancer.adapters.clock import SystemClock
from balancer.adapters.kafka.compression import decode_record
from balancer.adapters.kafka.config import KafkaConfig
from balancer.adapters.kafka.topics import ensure_topics
from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate
from balancer.app import catalogue
from balancer.app.ingest import Ingest
from balancer.commands.process import prepare_process
from balancer.embedded import EmbeddedStack
from balancer.ports import UsageRecord
from benchmarks.ingest import PARTITIONS, TTL_MS, Counts, Freshly, send
from benchmarks.ingest_storing import DESTINATIONS, SEED, SHARDS, reports

HOSTS, HOSTS_QUICK = 10_000, 2_000
TURNS, TURNS_QUICK = 4, 1
EPOCHS: Final = 1_000_000
"""On record of each shard, so that what is reported to be held is believed."""

TOLD_SECONDS: Final = 0.02
JOIN_SECONDS: Final = 60
ROUND_SECONDS: Final = 300


class Held(Freshly):
    """Reads nothing before it may, so that every replica begins at once."""

    def __init__(self, config: KafkaConfig, may_read: Event) -> None:
        super().__init__(config)
        self._may_read = may_read

    async def read(self, *, max_records: int, wait_ms: int) -> Sequence[UsageRecord]:
        """See the port."""
        if not self._may_read.is_set():
            await asyncio.sleep(TOLD_SECONDS)
            return []
        return await super().read(max_records=max_records, wait_ms=wait_ms)


@dataclass(frozen=True, slots=True)
class Told:
    """What a replica says of itself: how many partitions it reads, what it stored and computed."""

    partitions: int
    stored: float
    cpu_seconds: float


def replica(kafka: KafkaConfig, dsn: str, may_read: Event, told: Connection) -> None:
    """Read and store until told to end."""
    prepare_process()
    asyncio.run(_replica(kafka, dsn, may_read, told))


async def _replica(kafka: KafkaConfig, dsn: str, may_read: Event, told: Connection) -> None:
    repository = await PostgresRepository.open(dsn)
    counts, stop = Counts(), asyncio.Event()
    ingest = Ingest(
        Held(kafka, may_read),
        repository,
        SystemClock(),
        counts,
        decode_record,
        ttl_ms=TTL_MS,
        on_change=lambda _: None,
    )
    running = asyncio.create_task(ingest.run(stop))
    while not told.poll():
        stored = counts.sums.get(catalogue.STORED, 0)
        told.send(Told(len(ingest.partitions), stored, time.process_time()))
        await asyncio.sleep(TOLD_SECONDS)
        if running.done():
            break
    stop.set()
    await running
    await repository.close()


class Replicas:
    """Processes of one group, and what each said last."""

    def __init__(self, count: int, kafka: KafkaConfig, dsn: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.may_read = context.Event()
        self._pipes: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        self.told = [Told(0, 0, 0.0)] * count
        for _ in range(count):
            here, there = context.Pipe()
            given: tuple[Any, ...] = (kafka, dsn, self.may_read, there)
            process = context.Process(target=replica, args=given, daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def look(self) -> Sequence[Told]:
        """Return what each said last."""
        for number, pipe in enumerate(self._pipes):
            while pipe.poll():
                self.told[number] = pipe.recv()
        return self.told

    async def joined(self) -> None:
        """Wait until each reads as many partitions as the others."""
        wanted = [PARTITIONS // len(self.told)] * len(self.told)
        async with asyncio.timeout(JOIN_SECONDS):
            while [told.partitions for told in self.look()] != wanted:  # noqa: ASYNC110 - pipes
                await asyncio.sleep(TOLD_SECONDS)

    def end(self) -> None:
        """End all of them."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            with contextlib.suppress(OSError):
                pipe.send(None)
            process.join(JOIN_SECONDS)
            pipe.close()


def cpu_seconds(parts: Mapping[str, str]) -> dict[str, float]:
    """Return what the processes in each server's folder have computed so far."""
    found = dict.fromkeys(parts, 0.0)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times, folder = child.cpu_times(), child.cwd()
            for part, home in parts.items():
                if folder.startswith(home):
                    found[part] += times.user + times.system
    return found


async def turn(count: int, number: int, stack: EmbeddedStack, hosts: int) -> dict[str, float]:
    """Let so many replicas read a round's reports; return tuples a second, and cores used."""
    kafka = KafkaConfig(stack.kafka.bootstrap_servers, session_timeout_ms=3_000)
    homes = {name: str(part.home) for name, part in stack.parts.items()}
    replicas = Replicas(count, kafka, stack.postgres.dsn)
    try:
        await replicas.joined()
        batches = reports(hosts, number, time.time_ns() // 1_000_000)
        await send(kafka.bootstrap_servers, kafka.usage_topic, batches)
        wanted = hosts * DESTINATIONS
        own = sum(told.cpu_seconds for told in replicas.look())
        servers, began = cpu_seconds(homes), time.perf_counter()
        replicas.may_read.set()
        async with asyncio.timeout(ROUND_SECONDS):
            while sum(told.stored for told in replicas.look()) < wanted:  # noqa: ASYNC110 - pipes
                await asyncio.sleep(TOLD_SECONDS)
        seconds = time.perf_counter() - began
        used = {name: at - servers[name] for name, at in cpu_seconds(homes).items()}
        used["replicas"] = sum(told.cpu_seconds for told in replicas.look()) - own
        cores = {name: spent / seconds for name, spent in used.items()}
        return {"rate": wanted / seconds, **cores, "all": sum(cores.values())}
    finally:
        await asyncio.to_thread(replicas.end)


async def measure(hosts: int, turns: int) -> None:
    """Measure one and two in turns, and print the table."""
    async with AsyncExitStack() as life:
        stack = life.enter_context(EmbeddedStack(parts=["kafka", "postgres"], report=print))
        await asyncio.to_thread(migrate, stack.postgres.dsn)
        sql = await asyncpg.connect(stack.postgres.dsn)
        life.push_async_callback(sql.close)
        await sql.execute(
            "INSERT INTO permit_lease (shard, number, holder, expires_ms, epoch) "
            "SELECT shard, 1, '', 0, $1 FROM generate_series(0, $2) AS shard",
            EPOCHS,
            SHARDS - 1,
        )
        kafka = KafkaConfig(stack.kafka.bootstrap_servers, session_timeout_ms=3_000)
        await ensure_topics(kafka, partitions=PARTITIONS, retention_ms=3_600_000)
        cores = len(os.sched_getaffinity(0))
        print(f"seed {SEED}; {hosts} hosts x {DESTINATIONS} destinations a turn; {cores} cores")
        titles = ("replicas", "tuples/s", "replicas'", "postgres", "kafka", "all cores")
        print(*(f"{title:>10}" for title in titles))
        rates: dict[int, list[dict[str, float]]] = {1: [], 2: []}
        for number in range(2 * turns + 1):
            count = 1 + number % 2
            found = await turn(count, number, stack, hosts)
            if number > 0:  # in the first one every row is new
                rates[count].append(found)
                shown = [found[part] for part in ("replicas", "postgres", "kafka", "all")]
                values = (f"{count}", f"{found['rate']:.0f}", *(f"{used:.2f}" for used in shown))
                print(*(f"{value:>10}" for value in values), flush=True)
        one, two = (median(found["rate"] for found in rates[count]) for count in (1, 2))
        used = median(found["all"] for found in rates[2])
        most = max(("replicas", "postgres", "kafka"), key=lambda part: rates[2][-1][part])
        print(f"two replicas store {two / one:.2f} x what one does; of {cores} cores all parts")
        print(f"together used {used:.2f}, most of it {most}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replicas_real", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    options = parser.parse_args(arguments)
    asyncio.run(
        measure(HOSTS_QUICK if options.quick else HOSTS, TURNS_QUICK if options.quick else TURNS)
    )


if __name__ == "__main__":
    main()
