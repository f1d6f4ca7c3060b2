"""What ingest accepts of each message, and what it does when storing or keeping fails."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest

from balancer.adapters.kafka.compression import decode_record
from balancer.app import catalogue
from balancer.app import ingest as ingest_module
from balancer.app.agenda import largest_epoch_by
from balancer.app.ingest import Ingest
from balancer.app.judging import judge
from balancer.errors import BalancerError, RefusedError, SchemaError, UnavailableError
from balancer.ports import AcceptedBatch, UsageRecord
from tests.support.fakes_repository import FakeRepository
from tests.support.fakes_usage_log import FakeTopic, FakeUsageLog
from tests.support.ingest_doubles import Counts
from tests.support.service_doubles import T0, ManualClock
from tests.support.waiting import until
from worker_sdk.errors import RejectReason
from worker_sdk.wire.limits import EPOCH_MAX
from worker_sdk.wire.usage import DecodedBatch, MemberState, UsageBatch, UsageTuple, encode_batch

TTL_MS = 180_000
WAIT_SECONDS = 10


def account(destination: str = "db", instant_ms: int = T0, used: int = 5) -> UsageTuple:
    return UsageTuple(destination, instant_ms - 1000, instant_ms, 1, 10, used, 0, 0, 0)


def report(
    host: str = "h", *tuples: UsageTuple, state: MemberState = MemberState.RUNNING
) -> UsageBatch:
    return UsageBatch(host, "i", T0, state, None, {0: 7}, tuples)


def record(batch: UsageBatch, *, appended_ms: int | None = T0) -> UsageRecord:
    return UsageRecord(0, 0, encode_batch(batch), {}, appended_ms)


class Bench:
    """An ingest between a topic and a repository in memory."""

    def __init__(self, clock_ms: int | None = T0) -> None:
        self.topic = FakeTopic(clock_ms=clock_ms)
        self.log = FakeUsageLog(self.topic)
        self.repository = FakeRepository()
        self.clock = ManualClock()
        self.metrics = Counts()
        self.changed: list[set[str]] = []
        self.stop = asyncio.Event()
        self.ingest = Ingest(
            self.log,
            self.repository,
            self.clock,
            self.metrics,
            decode_record,
            ttl_ms=TTL_MS,
            on_change=self._note,
            jitter=lambda: 0.0,
        )

    def _note(self, names: Collection[str]) -> None:
        self.changed.append(set(names))

    async def run_until_committed(self, offset: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            running = asyncio.create_task(self.ingest.run(self.stop))
            await until(lambda: self.topic.committed.get(0, 0) >= offset or running.done())
            self.stop.set()
            await running
        self.stop.clear()

    async def told(self, shard: int) -> int:
        rows = await self.repository.load_shard(
            shard, [], now_ms=self.clock.ms, ttl_ms=TTL_MS, keep_ms=TTL_MS
        )
        return rows.largest_reported_epoch

    async def used(self) -> dict[str, int]:
        rows = await self.repository.load_shard(
            0, ["db"], now_ms=self.clock.ms, ttl_ms=TTL_MS, keep_ms=TTL_MS
        )
        return {row.host: row.used for row in rows.usage}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "RETRY_FIRST_SECONDS", 0.001)


@pytest.mark.parametrize("ahead_ms", [10_001, 3_600_000])
def test_an_instant_too_far_ahead_is_set_back_with_its_length_kept(ahead_ms: int) -> None:
    judged = judge(
        record(report("h", account(instant_ms=T0 + ahead_ms))),
        decode_record,
        now_ms=T0,
        ttl_ms=TTL_MS,
    )
    assert judged.accepted is not None
    (entry,) = judged.accepted.batch.tuples
    assert (entry.instant_ms, entry.from_ms) == (T0, T0 - 1000)
    assert judged.clamped == 1


def test_an_instant_ten_seconds_ahead_is_left_as_it_is() -> None:
    judged = judge(
        record(report("h", account(instant_ms=T0 + 10_000))),
        decode_record,
        now_ms=T0,
        ttl_ms=TTL_MS,
    )
    assert judged.accepted is not None
    assert judged.accepted.batch.tuples[0].instant_ms == T0 + 10_000
    assert judged.clamped == 0


@pytest.mark.parametrize("epoch", [EPOCH_MAX, EPOCH_MAX // 2, largest_epoch_by(T0) + 1])
async def test_an_epoch_that_nobody_can_have_published_is_refused_alone(epoch: int) -> None:
    bench = Bench()
    mixed = replace(report("h", account()), epochs={0: epoch, 1: 7})
    bench.topic.append(encode_batch(mixed))
    await bench.run_until_committed(1)
    assert [reason for _, reason, _ in bench.topic.rejected] == [RejectReason.BAD_NUMBER]
    assert bench.metrics.counts[f"{catalogue.REJECTED}:bad_number"] == 1
    assert await bench.used() == {"h": 5}
    assert await bench.told(0) == 0
    assert await bench.told(1) == 7
    # What the member truly holds is believed as soon as it says so.
    bench.topic.append(encode_batch(replace(mixed, sent_at_ms=T0 + 1, epochs={0: 8})))
    await bench.run_until_committed(2)
    assert await bench.told(0) == 8


async def test_a_clock_that_ran_ahead_and_was_set_right_is_believed_again_at_once() -> None:
    bench = Bench()
    bench.topic.append(encode_batch(report("h", account(instant_ms=T0 + 3_600_000, used=1))))
    await bench.run_until_committed(1)
    bench.clock.ms = bench.topic.clock_ms = T0 + 60_000
    bench.topic.append(encode_batch(report("h", account(instant_ms=T0 + 60_000, used=2))))
    await bench.run_until_committed(2)
    assert await bench.used() == {"h": 2}


@pytest.mark.parametrize(("age_ms", "kept"), [(179_999, 1), (180_000, 0), (180_001, 0)])
def test_accounts_at_the_ttl_and_past_it_are_left_out(age_ms: int, kept: int) -> None:
    judged = judge(
        record(report("h", account()), appended_ms=T0),
        decode_record,
        now_ms=T0 + age_ms,
        ttl_ms=TTL_MS,
    )
    assert judged.accepted is not None
    assert len(judged.accepted.batch.tuples) == kept
    assert judged.expired == 1 - kept
    assert judged.accepted.batch.epochs == {0: 7}


def test_the_time_of_appending_decides_where_the_topic_tells_it() -> None:
    batch = report("h", account())
    told = judge(record(batch), decode_record, now_ms=T0 + 50, ttl_ms=TTL_MS).accepted
    untold = judge(
        record(batch, appended_ms=None), decode_record, now_ms=T0 + 50, ttl_ms=TTL_MS
    ).accepted
    assert told is not None
    assert untold is not None
    assert (told.seen_ms, told.arrived_ms) == (T0, T0 + 50)
    assert (untold.seen_ms, untold.arrived_ms) == (T0 + 50, T0 + 50)


def test_a_clock_that_is_behind_releases_nothing_before_it_was_told() -> None:
    judged = judge(record(report("h")), decode_record, now_ms=T0 - 9_000, ttl_ms=TTL_MS)
    assert judged.accepted is not None
    assert judged.accepted.arrived_ms == T0


async def test_backlog_of_unknown_age_is_skipped_and_what_comes_later_is_not() -> None:
    bench = Bench(clock_ms=None)
    bench.topic.append(encode_batch(report("old", account())))
    await bench.run_until_committed(1)
    assert await bench.used() == {}
    assert bench.metrics.counts[catalogue.SKIPPED] == 1

    async with asyncio.timeout(WAIT_SECONDS):
        running = asyncio.create_task(bench.ingest.run(bench.stop))
        await until(lambda: bench.ingest.view().caught_up)
        bench.topic.append(encode_batch(report("new", account())))
        await until(lambda: bench.topic.committed[0] == 2)
        bench.stop.set()
        await running
    assert await bench.used() == {"new": 5}


async def test_backlog_with_the_brokers_time_is_stored() -> None:
    bench = Bench()
    bench.topic.append(encode_batch(report("old", account())))
    await bench.run_until_committed(1)
    assert await bench.used() == {"old": 5}


async def test_poison_costs_one_message_each_and_is_kept_aside_with_its_reason() -> None:
    bench = Bench()
    poison: list[tuple[bytes | None, dict[str, bytes], RejectReason]] = [
        (None, {}, RejectReason.EMPTY),
        (b"", {}, RejectReason.EMPTY),
        (b"\x28\xb5\x2f\xfd", {"content-encoding": b"zstd"}, RejectReason.BAD_COMPRESSION),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\x03", {"content-encoding": b"gzip"},
         RejectReason.BAD_COMPRESSION),
        (b"[]", {}, RejectReason.BAD_FIELD),
        (b'{"v":99}', {}, RejectReason.BAD_VERSION),
        (b"hello", {}, RejectReason.BAD_JSON),
    ]  # fmt: skip
    for body, headers, _ in poison:
        bench.topic.append(body, headers=headers)
    bench.topic.append(encode_batch(report("good", account())))
    await bench.run_until_committed(len(poison) + 1)
    assert await bench.used() == {"good": 5}
    assert [reason for _, reason, _ in bench.topic.rejected] == [entry[2] for entry in poison]
    assert bench.metrics.counts[f"{catalogue.REJECTED}:empty"] == 2


async def test_a_bad_tuple_does_not_take_the_good_ones_with_it() -> None:
    bench = Bench()
    body = encode_batch(report("h", account(), account("other")))
    bench.topic.append(body.replace(b'"other"', b'"o\\u0000"'))
    await bench.run_until_committed(1)
    assert await bench.used() == {"h": 5}
    assert [reason for _, reason, _ in bench.topic.rejected] == [RejectReason.BAD_NAME]


async def test_a_fault_of_the_decoder_costs_one_message() -> None:
    bench = Bench()

    def decode(found: UsageRecord) -> DecodedBatch | None:
        if found.offset == 0:
            raise ZeroDivisionError
        return decode_record(found)

    bench.ingest = Ingest(
        bench.log,
        bench.repository,
        bench.clock,
        bench.metrics,
        decode,
        ttl_ms=TTL_MS,
        on_change=lambda _: None,
    )
    bench.topic.append(b"{}")
    bench.topic.append(encode_batch(report("h", account())))
    await bench.run_until_committed(2)
    assert await bench.used() == {"h": 5}
    assert [reason for _, reason, _ in bench.topic.rejected] == [RejectReason.INCONSISTENT]


async def test_what_cannot_be_kept_aside_is_counted_and_stops_nothing() -> None:
    bench = Bench()
    bench.log.rejecting_fails = True
    bench.topic.append(b"junk")
    bench.topic.append(encode_batch(report("h", account())))
    await bench.run_until_committed(2)
    assert await bench.used() == {"h": 5}
    assert bench.metrics.counts[catalogue.REJECTED_NOT_KEPT] == 1


@pytest.mark.parametrize(
    "fault", [UnavailableError("away"), SchemaError("no table"), BalancerError("no right")]
)
async def test_nothing_is_committed_or_given_up_while_storing_fails(fault: BalancerError) -> None:
    bench = Bench()
    bench.repository.failures = [fault] * 1000
    bench.topic.append(encode_batch(report("h", account())))
    async with asyncio.timeout(WAIT_SECONDS):
        running = asyncio.create_task(bench.ingest.run(bench.stop))
        await until(lambda: bench.metrics.counts.get(catalogue.STORE_RETRIES, 0) >= 3)
        assert bench.topic.committed == {}
        assert bench.log.reads == 2  # one ahead of what is being stored
        bench.repository.failures.clear()
        await until(lambda: bench.topic.committed.get(0) == 1)
        bench.stop.set()
        await running
    assert bench.topic.rejected == []
    assert await bench.used() == {"h": 5}


async def test_told_to_stop_while_the_repository_is_away_it_commits_nothing() -> None:
    bench = Bench()
    bench.repository.failures = [UnavailableError("away")] * 1000
    bench.topic.append(encode_batch(report("h", account())))
    async with asyncio.timeout(WAIT_SECONDS):
        running = asyncio.create_task(bench.ingest.run(bench.stop))
        await until(lambda: bool(bench.metrics.counts.get(catalogue.STORE_RETRIES)))
        bench.stop.set()
        await running
    assert bench.topic.committed == {}


async def test_one_row_that_the_database_refuses_costs_one_row() -> None:
    bench = Bench()

    def refuse(accepted: AcceptedBatch) -> BalancerError | None:
        bad = any(entry.destination == "bad" for entry in accepted.batch.tuples)
        return RefusedError("no such value") if bad else None

    bench.repository.refuse = refuse
    bench.topic.append(encode_batch(report("a", account())))
    bench.topic.append(
        encode_batch(report("b", account("x"), account("bad"), account(), account("y")))
    )
    bench.topic.append(encode_batch(report("c", account())))
    await bench.run_until_committed(3)
    assert await bench.used() == {"a": 5, "b": 5, "c": 5}
    assert [(found.offset, reason) for found, reason, _ in bench.topic.rejected] == [
        (1, RejectReason.INCONSISTENT)
    ]
    rows = await bench.repository.load_shard(
        0, ["x", "y", "bad"], now_ms=T0, ttl_ms=TTL_MS, keep_ms=TTL_MS
    )
    assert {row.destination for row in rows.usage} == {"x", "y"}
    assert rows.largest_reported_epoch == 7


async def test_a_member_that_the_database_refuses_costs_its_message() -> None:
    bench = Bench()
    bench.repository.refuse = lambda accepted: (
        RefusedError("no") if accepted.batch.host == "bad" else None
    )
    bench.topic.append(encode_batch(report("bad", account())))
    bench.topic.append(encode_batch(report("h", account())))
    await bench.run_until_committed(2)
    assert await bench.used() == {"h": 5}
    assert [found.offset for found, _, _ in bench.topic.rejected] == [0]


async def test_a_large_read_is_stored_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "PIECE_ROWS", 9)
    bench = Bench()
    for number in range(10):
        bench.topic.append(encode_batch(report(f"h{number}", account())))
    await bench.run_until_committed(10)
    assert [len(stored) for stored in bench.repository.stored] == [3, 3, 3, 1]
    assert len(await bench.used()) == 10


async def test_a_hello_and_a_goodbye_call_for_an_early_round_once_stored() -> None:
    bench = Bench()
    hello = report("a", account("x"), state=MemberState.STARTING)
    goodbye = replace(report("b", state=MemberState.LEAVING), spent={"y": (30_000_000, 3)})
    for batch in (hello, goodbye, report("c", account())):
        bench.topic.append(encode_batch(batch))
    await bench.run_until_committed(3)
    assert bench.changed == [{"x", "y"}]


async def test_a_revoked_partition_is_stored_and_not_committed() -> None:
    bench = Bench()
    bench.topic.append(encode_batch(report("h", account())))
    bench.repository.refuse = lambda _: bench.log.revoke(0)
    async with asyncio.timeout(WAIT_SECONDS):
        running = asyncio.create_task(bench.ingest.run(bench.stop))
        await until(lambda: bool(bench.repository.stored))
        bench.stop.set()
        await running
    assert bench.topic.committed == {}


async def test_the_view_tells_when_the_backlog_was_worked_off() -> None:
    bench = Bench()
    assert not bench.ingest.view().caught_up
    bench.topic.append(encode_batch(report("h", account())))
    async with asyncio.timeout(WAIT_SECONDS):
        running = asyncio.create_task(bench.ingest.run(bench.stop))
        await until(lambda: bench.ingest.view().caught_up)
        view = bench.ingest.view()
        assert (view.last_batch_ms, view.lag_ms) == (T0, 0)
        bench.stop.set()
        await running
    assert not bench.ingest.view().caught_up


async def test_a_reader_without_a_partition_has_nothing_to_catch_up_with() -> None:
    bench = Bench()
    bench.topic.partitions = 0  # there are more readers than partitions
    bench.log.is_assigned = False
    async with asyncio.timeout(WAIT_SECONDS):
        running = asyncio.create_task(bench.ingest.run(bench.stop))
        await until(lambda: bench.log.reads >= 3)
        assert not bench.ingest.view().caught_up  # the group has not told it yet
        bench.log.is_assigned = True
        await until(lambda: bench.ingest.view().caught_up)
        bench.stop.set()
        await running
