"""What a machine does whose clock is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from balancer.app import catalogue, supervisor
from balancer.app.clock_check import check_clock
from balancer.errors import UnavailableError
from balancer.ports import AcceptedBatch
from tests.support.fakes_repository import FakeRepository
from tests.support.processes import NAME, ROUND_MS, EarlyInTheRound, Process, Shared
from tests.support.service_doubles import ManualClock
from tests.support.waiting import until
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple, encode_batch

NEARLY_MS = 20_000
"""A machine is not so busy that a test's step takes longer."""


class WrongFromTheStart(EarlyInTheRound):
    def __init__(self, wrong_ms: int) -> None:
        super().__init__()
        self.wrong_ms = wrong_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.wrong_ms


@pytest.mark.parametrize(
    ("round_ms", "wrong_ms", "is_right"),
    [
        (60_000, 15_000, True),
        (60_000, -15_000, True),
        (60_000, 15_001, False),
        (60_000, -15_001, False),
        (3_000, 5_000, True),
        (3_000, 5_001, False),
    ],
)
async def test_a_clock_may_be_wrong_by_a_quarter_of_a_round_or_five_seconds(
    round_ms: int, wrong_ms: int, is_right: bool
) -> None:
    clock, repository = ManualClock(), FakeRepository()
    repository.clock_ms = lambda: clock.ms - wrong_ms
    if is_right:
        await check_clock(repository, clock, round_ms)
        return
    with pytest.raises(UnavailableError, match="plans nothing"):
        await check_clock(repository, clock, round_ms)


@pytest.mark.parametrize("wrong_ms", [0, 15_000, -15_000])
async def test_a_slow_answer_is_no_wrong_clock(wrong_ms: int) -> None:
    clock, repository = ManualClock(), FakeRepository()

    def late() -> int:
        clock.ms += 30_000
        return clock.ms - wrong_ms

    repository.clock_ms = late
    await check_clock(repository, clock, 60_000)


@pytest.mark.parametrize("repositorys_ahead_ms", [-600_000, 600_000])
async def test_a_time_that_is_ahead_here_or_there_takes_nobodys_live_rows_away(
    monkeypatch: pytest.MonkeyPatch, repositorys_ahead_ms: int
) -> None:
    monkeypatch.setattr(supervisor, "REMOVE_ROWS_SECONDS", 0)
    shared = Shared()
    present_ms = shared.clock.now_ms()
    right_ms = min(present_ms, present_ms + repositorys_ahead_ms)
    shared.repository.clock_ms = lambda: present_ms + repositorys_ahead_ms
    batch = UsageBatch("a", "i", right_ms, MemberState.RUNNING)
    await shared.repository.store_batches([AcceptedBatch(batch, right_ms, right_ms)])
    await Process(shared, "one").supervisor._remove_rows()
    assert await shared.repository.known_host("a")
    shared.clock._start_ms -= 1_200_000
    shared.repository.clock_ms = shared.clock.now_ms
    await Process(shared, "one").supervisor._remove_rows()
    assert not await shared.repository.known_host("a")


@pytest.mark.parametrize("wrong_ms", [600_000, -600_000])
@pytest.mark.parametrize("topic_tells", [True, False])
async def test_a_reader_whose_clock_was_never_right_leads_nothing_and_stores_as_others_do(
    wrong_ms: int, topic_tells: bool
) -> None:
    shared = Shared()
    right = shared.clock
    process = Process(replace(shared, clock=WrongFromTheStart(wrong_ms)), "one")
    shared.repository.clock_ms = right.now_ms
    shared.topic.clock_ms = None
    async with process.running():
        await until(lambda: process.ingest.view().caught_up)
        now_ms = right.now_ms()
        shared.topic.clock_ms = now_ms if topic_tells else None
        account = UsageTuple(NAME, now_ms - 1_000, now_ms, 0, 0, 0, 0, 0, 0)
        batch = UsageBatch("a", "i", now_ms, MemberState.LEAVING, tuples=(account,))
        shared.topic.append(encode_batch(batch), key=b"a")
        await until(lambda: len(shared.repository.stored) > 0)
        found = await shared.repository.load_shard(
            0, [NAME], now_ms=right.now_ms(), ttl_ms=ROUND_MS, keep_ms=ROUND_MS
        )
        (stored,), (member,) = found.usage, found.members
        assert 0 <= stored.seen_ms - now_ms < NEARLY_MS
        assert member.left_ms is not None
        assert 0 <= member.left_ms - now_ms < NEARLY_MS  # releases count from then
        assert process.ingest.view().lag_ms < NEARLY_MS
        assert process.metrics.counts[(catalogue.EXPIRED,)] == 0
        ahead_seconds = process.metrics.gauges[(catalogue.CLOCK_AHEAD,)]
        assert ahead_seconds == pytest.approx(wrong_ms / 1000, abs=NEARLY_MS / 1000)
        assert not process.leads()


async def test_whether_reports_are_current_is_told_by_the_clock_that_rounds_are_planned_by() -> (
    None
):
    shared = Shared()
    process = Process(shared, "one")
    shared.repository.clock_ms = lambda: shared.clock.now_ms() - 10_000  # it may still plan
    async with process.running():
        await until(process.leads)
        now_ms = shared.clock.now_ms()
        batch = UsageBatch("a", "i", now_ms, MemberState.RUNNING)
        shared.topic.append(encode_batch(batch), key=b"a")
        await until(lambda: process.ingest.view().last_batch_ms is not None)
        told_ms = process.supervisor._ingest_view().last_batch_ms
        assert told_ms is not None
        assert 0 <= told_ms - now_ms < NEARLY_MS // 3


async def test_while_the_shared_clock_is_wrong_nobody_leads_and_afterwards_all_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(supervisor, "RESTART_MAX_SECONDS", 0.05)
    shared = Shared()
    process = Process(shared, "one", lease_ms=300)
    async with process.running():
        await until(process.leads)
        held = process.supervisor._held[0]
        shared.repository.clock_ms = lambda: shared.clock.now_ms() + 600_000
        await until(lambda: not process.supervisor._leads(held))
        await until(lambda: process.metrics.gauges[(catalogue.CLOCK_AHEAD,)] < -500)
        shared.repository.clock_ms = shared.clock.now_ms
        await until(lambda: any(map(process.supervisor._leads, process.supervisor._held.values())))
        await until(lambda: process.metrics.gauges[(catalogue.CLOCK_AHEAD,)] == 0)
