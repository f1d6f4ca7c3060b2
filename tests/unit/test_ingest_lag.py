"""How far behind a reader says that it is: also where it cannot read what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from balancer.adapters.kafka.compression import decode_record
from balancer.app.ingest import SILENT_LEAST_MS, Ingest
from balancer.errors import UnavailableError
from balancer.ports import LogPosition, UsageRecord
from tests.support.fakes_repository import FakeRepository
from tests.support.fakes_usage_log import FakeTopic, FakeUsageLog
from tests.support.ingest_doubles import Counts
from tests.support.service_doubles import T0, ManualClock
from tests.support.waiting import until

WAIT_SECONDS = 10


class Stalling(FakeUsageLog):
    """Reads nothing though records wait, as long as it stalls; one partition may be silent."""

    stalls = False
    silent_ms = 0

    async def position(self) -> LogPosition:
        return replace(await super().position(), silent_ms=self.silent_ms)

    async def read(self, *, max_records: int, wait_ms: int) -> Sequence[UsageRecord]:
        if self.stalls:
            self.reads += 1
            await asyncio.sleep(0)
            return []
        return await super().read(max_records=max_records, wait_ms=wait_ms)


class Bench:
    def __init__(self, partitions: int = 1) -> None:
        self.topic = FakeTopic(partitions=partitions, clock_ms=T0)
        self.log = Stalling(self.topic)
        self.clock = ManualClock()
        self.stop = asyncio.Event()
        self.ingest = Ingest(
            self.log,
            FakeRepository(),
            self.clock,
            Counts(),
            decode_record,
            ttl_ms=180_000,
            on_change=lambda _: None,
        )

    async def look(self) -> int:
        """Return the lag after a few more reads."""
        reads = self.log.reads
        await until(lambda: self.log.reads > reads + 3, seconds=WAIT_SECONDS)
        return self.ingest.view().lag_ms


async def test_who_cannot_read_what_waits_is_behind_by_the_time_since_it_could() -> None:
    bench = Bench()
    running = asyncio.create_task(bench.ingest.run(bench.stop))
    assert await bench.look() == 0
    bench.clock.ms += 60_000  # nothing came in a minute: it is not behind
    assert await bench.look() == 0
    bench.log.stalls = True
    await bench.look()
    bench.topic.append(b"no report")
    bench.clock.ms += 7_000
    assert await bench.look() == 7_000
    bench.log.stalls = False
    assert await bench.look() == 0
    bench.stop.set()
    await running


async def test_who_hears_nothing_of_one_partition_is_behind_though_others_give_records() -> None:
    bench = Bench(partitions=2)
    running = asyncio.create_task(bench.ingest.run(bench.stop))
    bench.log.silent_ms = SILENT_LEAST_MS - 1  # a slow answer
    bench.topic.append(b"no report", partition=0)
    assert await bench.look() == 0
    bench.log.silent_ms = 70_000
    bench.topic.append(b"no report", partition=0)
    assert await bench.look() == 70_000
    bench.log.silent_ms = 0
    assert await bench.look() == 0
    bench.stop.set()
    await running


async def test_who_lost_the_log_is_behind_for_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(partitions=2)
    running = asyncio.create_task(bench.ingest.run(bench.stop))
    await bench.look()

    async def fail(**_: object) -> Sequence[UsageRecord]:
        raise UnavailableError("no broker")

    monkeypatch.setattr(bench.log, "read", fail)
    with pytest.raises(UnavailableError):
        await running
    bench.clock.ms += 9_000
    assert bench.ingest.partitions == (0, 1)
    assert bench.ingest.view().lag_ms == 9_000


async def test_a_reader_without_a_partition_is_not_behind() -> None:
    bench = Bench(partitions=0)
    running = asyncio.create_task(bench.ingest.run(bench.stop))
    await bench.look()
    bench.clock.ms += 60_000
    assert bench.ingest.view().lag_ms == 0
    bench.stop.set()
    await running
