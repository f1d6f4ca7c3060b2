"""What a machine does whose clock is wrong."""

from __future__ import annotations

import pytest

from balancer.app import supervisor
from balancer.app.true_time import check_clock
from balancer.errors import UnavailableError
from balancer.ports import AcceptedBatch
from tests.support.fakes_repository import FakeRepository
from tests.support.service_doubles import ManualClock
from tests.unit.test_supervisor import Process, Shared
from worker_sdk.wire.usage import MemberState, UsageBatch


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


async def test_a_machine_whose_time_is_ahead_takes_nobodys_live_rows_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "REMOVE_ROWS_SECONDS", 0)
    shared = Shared()
    right_ms = shared.clock.now_ms() - 600_000
    shared.repository.clock_ms = lambda: right_ms
    batch = UsageBatch("a", "i", right_ms, MemberState.RUNNING)
    await shared.repository.store_batches([AcceptedBatch(batch, right_ms, right_ms)])
    await Process(shared, "one").supervisor._remove_rows()
    assert await shared.repository.known_host("a")
    shared.repository.clock_ms = shared.clock.now_ms
    await Process(shared, "one").supervisor._remove_rows()
    assert not await shared.repository.known_host("a")
