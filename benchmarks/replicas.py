"""``python -m benchmarks.replicas``: what a second replica brings, a core each.

Decides the fleet and what is compared. Each replica is a process on a core of its own, and does in
each round what the service does, by the same code: it reads, decodes, checks and folds the reports
of its half of the members; plans its half of the shards and packs the documents; reads what the
other replica has published; and indexes all documents to answer by, where nobody asks over HTTP.
The last two are what a second replica adds to, or does not take away, so that the ratio is told
with them and without. The repository is a stub that takes all: `benchmarks.replicas_real` is for
real servers. One replica is measured on one core, in turns with two; a round has ended when both
replicas are done. Beside the wall's clock stands the processor's, which others on the machine
disturb less: of two replicas that of the busier one.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from statistics import median
from typing import Any, Final, cast

import zstandard

from balancer.adapters.kafka.compression import decode_record
from balancer.adapters.postgres import rows
from balancer.app.ingest import Ingest
from balancer.app.view import DistributionView
from balancer.commands.process import prepare_process
from balancer.core.entry_columns import EntryColumns
from balancer.core.planner import plan
from balancer.ports import AcceptedBatch, LogPosition, Repository, StoredCounts, UsageRecord
from benchmarks.ingest import Counts
from benchmarks.ingest_storing import reports
from benchmarks.planning import DOCUMENTS, PLAN_AT_MS, ROUND_MS, SEED, START_MS, Fleet
from worker_sdk.errors import RejectReason
from worker_sdk.wire.distribution import Document, decode_document, encode_document
from worker_sdk.wire.usage import encode_batch

MEMBERS: Final = 1_000
SHARDS: Final = 8
DESTINATIONS_A_SHARD: Final = 4
TUPLES: Final = MEMBERS * SHARDS * DESTINATIONS_A_SHARD
ROUNDS, ROUNDS_QUICK = 6, 3
FIRST: Final = 1
"""The first round of each is not counted: everything is new in it."""

POINTED: Final = 2
"""So many documents of a shard are served: of the present window, and of the next."""

TURNS, TURNS_QUICK = 3, 1
TURN_SECONDS: Final = 600
DIVIDED: Final = ("ingest", "plan", "pack")
PARTS: Final = (*DIVIDED, "read others", "index")
WALL, PROCESSOR = 0, 1

Seconds = tuple[float, float]
"""By the wall's clock, and by the processor's."""


@dataclass(slots=True)
class Watch:
    """Seconds by part of a round."""

    parts: dict[str, Seconds] = field(default_factory=dict)
    _began: Seconds = (0.0, 0.0)

    def start(self) -> None:
        """Begin to measure."""
        self._began = time.perf_counter(), time.process_time()

    def note(self, part: str) -> None:
        """Add the time since the beginning, or the last note, to a part's."""
        before, self._began = self._began, (time.perf_counter(), time.process_time())
        wall, processor = self.parts.get(part, (0.0, 0.0))
        self.parts[part] = (
            wall + self._began[0] - before[0],
            processor + self._began[1] - before[1],
        )


class Stub:
    """A repository that folds batches into rows and keeps none of them."""

    async def store_batches(self, batches: Sequence[AcceptedBatch]) -> StoredCounts:
        """See the port."""
        found, _ = rows.usage_rows(batches)
        rows.member_rows(batches, {})
        return StoredCounts(len(found), 0)


class Waiting:
    """`balancer.ports.UsageLog` of what lies in memory; says stop when all of it was read."""

    def __init__(self, records: Sequence[UsageRecord], stop: asyncio.Event) -> None:
        self._records = records
        self._next = 0
        self._stop = stop

    async def start(self) -> None:
        """See the port."""

    async def read(self, *, max_records: int, wait_ms: int) -> Sequence[UsageRecord]:
        """See the port."""
        found = self._records[self._next : self._next + max_records]
        self._next += len(found)
        return found

    async def commit(self, records: Sequence[UsageRecord]) -> None:
        """See the port."""

    async def position(self) -> LogPosition:
        """See the port."""
        left = len(self._records) - self._next
        if left == 0:
            self._stop.set()
        return LogPosition((0,), left, is_assigned=True)

    async def reject(self, record: UsageRecord, reason: RejectReason, detail: str) -> None:
        """See the port."""
        raise RuntimeError(detail)

    async def stop(self) -> None:
        """See the port."""


class Fixed:
    """A clock that stands still."""

    def __init__(self, ms: int) -> None:
        self._ms = ms

    def now_ms(self) -> int:
        """See the port."""
        return self._ms

    def monotonic_ms(self) -> int:
        """See the port."""
        return self._ms


class Replica:
    """The work of one of so many replicas, round after round."""

    def __init__(self, number: int, replicas: int) -> None:
        self._members = MEMBERS // replicas
        self._led = [Fleet(MEMBERS, DESTINATIONS_A_SHARD) for _ in range(SHARDS // replicas)]
        self._memories = [fleet.memory() for fleet in self._led]
        self._documents: list[list[Document]] = [[] for _ in range(SHARDS)]
        self._view = DistributionView(SHARDS)
        self._pack = zstandard.ZstdCompressor(level=3).compress

    def round(self, number: int) -> dict[str, Seconds]:
        """Do a round; return what each part took. What is only the benchmark's is not measured."""
        now_ms = START_MS + number * ROUND_MS + PLAN_AT_MS
        waiting, watch = self._reports(number, now_ms), Watch()
        snapshots = []
        for fleet, documents in zip(self._led, self._documents, strict=False):
            fleet.change(now_ms, documents[0].epoch if documents else 0)
            snapshots.append(fleet.snapshot(documents, now_ms))
        gc.collect()
        watch.start()
        asyncio.run(self._ingest(waiting, now_ms))
        watch.note("ingest")
        bodies = []
        for place, given in enumerate(snapshots):
            outcome = plan(given, self._memories[place], now_ms)
            if outcome.document is None or outcome.broken:
                raise RuntimeError(outcome.sentence)
            self._memories[place] = outcome.memory
            watch.note("plan")
            bodies.append(encode_document(outcome.document))
            watch.note("pack")
            self._show(place, outcome.document)
            watch.note("index")
        for place in range(len(self._led), SHARDS):
            # Another replica's: as large as one's own.
            gather = partial(EntryColumns.of, known={})
            document = decode_document(bodies[place % len(bodies)], gather=gather)
            watch.note("read others")
            self._show(place, document)
            watch.note("index")
        return watch.parts

    def _show(self, shard: int, document: Document) -> None:
        self._documents[shard] = [document, *self._documents[shard]][:DOCUMENTS]
        self._view.publish(shard, self._documents[shard][:POINTED])

    def _reports(self, number: int, now_ms: int) -> list[UsageRecord]:
        batches = reports(self._members, number, now_ms, SHARDS * DESTINATIONS_A_SHARD)
        headers = {"content-encoding": b"zstd"}
        return [
            UsageRecord(0, place, self._pack(encode_batch(batch)), headers, now_ms)
            for place, batch in enumerate(batches)
        ]

    async def _ingest(self, waiting: Sequence[UsageRecord], now_ms: int) -> None:
        stop = asyncio.Event()
        ingest = Ingest(
            Waiting(waiting, stop),
            cast("Repository", Stub()),  # no more of it is asked for
            Fixed(now_ms),
            Counts(),
            decode_record,
            ttl_ms=3 * ROUND_MS,
            on_change=lambda _: None,
        )
        await ingest.run(stop)


def work(
    number: int, replicas: int, rounds: int, core: int, start: Barrier, told: Connection
) -> None:
    """Do rounds on a core, each of them when all replicas are ready; tell what they took."""
    os.sched_setaffinity(0, {core})
    prepare_process()
    replica = Replica(number, replicas)
    for count in range(rounds + FIRST):
        start.wait(TURN_SECONDS)
        told.send(replica.round(count))


def turn(cores: Sequence[int], rounds: int) -> list[list[dict[str, Seconds]]]:
    """Run a replica on each of these cores; return for each round what each of them told."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(len(cores))
    pipes, processes = [], []
    for number, core in enumerate(cores):
        here, there = context.Pipe(duplex=False)
        given: tuple[Any, ...] = (number, len(cores), rounds, core, start, there)
        process = context.Process(target=work, args=given, daemon=True)
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    told = [[pipe.recv() for pipe in pipes] for _ in range(rounds + FIRST)]
    for process in processes:
        process.join(TURN_SECONDS)
    return told[FIRST:]


Told = Sequence[Sequence[dict[str, Seconds]]]


def took(told: Told, clock: int, parts: Sequence[str] = PARTS) -> float:
    """Return how long these parts of a round took, the median: as long as its slower replica's."""
    return median(
        max(sum(each.get(part, (0.0, 0.0))[clock] for part in parts) for each in given)
        for given in told
    )


def line(word: str, told: Told) -> str:
    """Return a line of the table; parts are by the processor's clock."""
    seconds = [took(told, clock) for clock in (WALL, PROCESSOR)]
    seconds += [took(told, PROCESSOR, [part]) for part in PARTS]
    return " ".join(f"{value:>12}" for value in (word, *(f"{each * 1000:.0f}" for each in seconds)))


def main(*, quick: bool = False) -> int:
    """Print the table and the ratio; return the exit code."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        print("two cores are needed")
        return 1
    rounds, turns = (ROUNDS_QUICK, TURNS_QUICK) if quick else (ROUNDS, TURNS)
    print(
        f"seed {SEED}; {TUPLES} tuples in {SHARDS} shards a round; milliseconds, of the slower "
        f"replica; load {os.getloadavg()[0]:.1f}"
    )
    print(" ".join(f"{title:>12}" for title in ("replicas", "wall", "processor", *PARTS)))
    ratios: dict[tuple[Sequence[str], int], list[float]] = {}
    for _ in range(turns):
        one, two = turn(cores[:1], rounds), turn(cores, rounds)
        print(line("one", one), line("two", two), sep="\n", flush=True)
        for parts in (DIVIDED, PARTS):
            for clock in (WALL, PROCESSOR):
                ratio = took(one, clock, parts) / took(two, clock, parts)
                ratios.setdefault((parts, clock), []).append(ratio)
    for word, parts in (("ingest and rounds", DIVIDED), ("all of it", PARTS)):
        wall, processor = (median(ratios[parts, clock]) for clock in (WALL, PROCESSOR))
        print(f"{word}: two replicas do {wall:.2f} x one ({processor:.2f} x by processor time)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
