"""Two pieces are stored at once, the next is read ahead and no more; offsets never overtake."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from balancer.adapters.kafka.compression import decode_record
from balancer.app import ingest as ingest_module
from balancer.app.ingest import Ingest
from balancer.errors import UnavailableError
from balancer.ports import AcceptedBatch, StoredCounts
from tests.support.fakes_repository import FakeRepository
from tests.support.fakes_usage_log import FakeTopic, FakeUsageLog
from tests.support.ingest_doubles import Counts
from tests.support.service_doubles import T0, ManualClock
from tests.support.waiting import until
from worker_sdk.wire.usage import MemberState, UsageBatch, encode_batch


class Gated(FakeRepository):
    """Stores only what it is let: one call for each release of ``gate``, or of the host's own."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Semaphore(0)
        self.gates: dict[str, asyncio.Semaphore] = {}
        self.begun = 0

    async def store_batches(self, batches: Sequence[AcceptedBatch]) -> StoredCounts:
        self.begun += 1
        host = batches[0].batch.host
        await self.gates.get(host, self.gate).acquire()
        return await super().store_batches(batches)


class Bench:
    def __init__(self) -> None:
        self.topic = FakeTopic(clock_ms=T0)
        self.log = FakeUsageLog(self.topic)
        self.repository = Gated()
        self.clock = ManualClock()
        self.stop = asyncio.Event()
        self.ingest = Ingest(
            self.log,
            self.repository,
            self.clock,
            Counts(),
            decode_record,
            ttl_ms=180_000,
            on_change=lambda _: None,
        )
        self.running = asyncio.create_task(self.ingest.run(self.stop))

    def append(self, host: str) -> None:
        batch = UsageBatch(host, "i", T0, MemberState.RUNNING)
        self.topic.append(encode_batch(batch))

    async def read_two(self) -> None:
        """Bring it to where one piece is being stored and one was read ahead."""
        self.append("a")
        await until(lambda: self.repository.begun == 1)
        self.append("b")
        reads = self.log.reads
        await asyncio.sleep(0.05)
        assert self.log.reads <= reads + 1


async def test_one_piece_is_read_ahead_and_offsets_follow_what_is_stored() -> None:
    bench = Bench()
    await bench.read_two()
    assert (bench.repository.begun, bench.topic.committed) == (1, {})
    bench.repository.gate.release()
    await until(lambda: bench.repository.begun == 2)
    assert bench.topic.committed == {0: 1}
    bench.repository.gate.release()
    await until(lambda: bench.topic.committed == {0: 2})
    bench.stop.set()
    await bench.running


async def read_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch, hosts: str) -> None:
    """Bring it to where it reads them all at once, a piece each, and can store none of them."""
    monkeypatch.setattr(ingest_module, "PIECE_ROWS", 1)
    bench.repository.gates = {host: asyncio.Semaphore(0) for host in hosts}
    for host in hosts:
        bench.append(host)
    await until(lambda: bench.repository.begun == 2)
    reads = bench.log.reads
    await asyncio.sleep(0.05)
    assert (bench.log.reads, bench.repository.begun) == (reads, 2)


async def test_two_pieces_are_stored_at_once_and_the_later_is_committed_after_the_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    await read_at_once(bench, monkeypatch, "abc")
    bench.repository.gates["b"].release()
    await until(lambda: len(bench.repository.stored) == 1)
    await asyncio.sleep(0.05)
    assert (bench.repository.begun, bench.topic.committed) == (2, {})  # the third waits, too
    bench.repository.gates["a"].release()
    await until(lambda: bench.topic.committed == {0: 2})
    bench.repository.gates["c"].release()
    await until(lambda: bench.topic.committed == {0: 3})
    bench.stop.set()
    await bench.running


async def test_told_to_stop_nothing_is_committed_behind_a_piece_that_could_not_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    await read_at_once(bench, monkeypatch, "ab")
    bench.repository.gates["b"].release()
    await until(lambda: len(bench.repository.stored) == 1)
    bench.repository.failures = [UnavailableError("away")] * 1000
    bench.stop.set()
    bench.repository.gates["a"].release()
    await bench.running
    assert bench.topic.committed == {}


async def test_lag_counts_from_the_piece_that_is_being_stored() -> None:
    bench = Bench()
    await bench.read_two()
    bench.clock.ms += 5_000
    assert bench.ingest.view().lag_ms == 5_000
    bench.repository.gate.release()
    bench.repository.gate.release()
    await until(lambda: bench.ingest.view().lag_ms == 0)
    bench.stop.set()
    await bench.running


async def test_told_to_stop_it_stores_what_is_in_hand_and_commits_it() -> None:
    bench = Bench()
    await bench.read_two()
    bench.stop.set()
    for _ in range(2):
        bench.repository.gate.release()
    await bench.running
    stored = sum(len(batches) for batches in bench.repository.stored)
    assert bench.topic.committed == {0: stored}


async def test_cut_short_it_commits_nothing_of_what_was_not_stored() -> None:
    bench = Bench()
    await bench.read_two()
    bench.running.cancel()
    await asyncio.gather(bench.running, return_exceptions=True)
    assert bench.topic.committed == {}
    assert bench.repository.stored == []


async def test_a_log_that_is_lost_while_a_piece_is_stored_commits_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    await bench.read_two()

    async def fail(_: object) -> None:
        raise UnavailableError("no broker")

    monkeypatch.setattr(bench.log, "commit", fail)
    bench.repository.gate.release()
    outcome = await asyncio.gather(bench.running, return_exceptions=True)
    assert isinstance(outcome[0], UnavailableError)
    assert bench.topic.committed == {}
