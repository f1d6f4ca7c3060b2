"""Leases of several replicas: spread, handed over, taken over, whatever their clocks say."""

from __future__ import annotations

import asyncio

import pytest

from balancer.app.cycle import CycleLimits
from balancer.app.leadership import Leadership, LedShard, part_of, to_hand_over
from balancer.app.peers import BoardState, Reader
from balancer.errors import UnavailableError
from tests.support.fakes_repository import FakeRepository
from tests.support.processes import Process, Shared
from tests.support.service_doubles import T0, CountingMetrics
from tests.support.waiting import until

ROUND_MS = 60_000
LEASE_MS = 10_000
SHARDS = 8
MINUTES_10 = 600_000


class Time:
    """One true time; what a machine's clock shows differs from it by a step."""

    def __init__(self) -> None:
        self.ms = T0 - T0 % ROUND_MS

    def now_ms(self) -> int:
        return self.ms


class Clock:
    def __init__(self, time: Time) -> None:
        self.time = time
        self.step_ms = 0

    def now_ms(self) -> int:
        return self.time.ms + self.step_ms

    def monotonic_ms(self) -> int:
        return self.time.ms - T0 + 10_000_000


class Replica:
    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet = fleet
        self.clock = Clock(fleet.time)
        self.lost: list[int] = []
        self.leadership = Leadership(
            fleet.repository,
            self.clock,
            CountingMetrics(),
            holder=name,
            shards=SHARDS,
            lease_ms=LEASE_MS,
            limits=CycleLimits(ROUND_MS, 3 * ROUND_MS),
            on_lost=self.lost.append,
        )

    @property
    def led(self) -> list[int]:
        held = self.leadership.held
        return sorted(shard for shard in held if self.leadership.leads(held[shard]))

    async def renew(self, replicas: int) -> None:
        await self.leadership.renew(replicas)

    def plan(self) -> None:
        """Let every round that is due have been run."""
        for held in self.leadership.held.values():
            while (kind := held.agenda.due(self.clock.now_ms())) is not None:
                held.agenda.begin(kind, self.clock.now_ms())
                held.agenda.succeed()


class Fleet:
    def __init__(self) -> None:
        self.time = Time()
        self.repository = FakeRepository()
        self.repository.clock_ms = self.time.now_ms
        self.replicas: list[Replica] = []

    def join(self) -> Replica:
        self.replicas.append(Replica(self, f"replica-{len(self.replicas)}"))
        return self.replicas[-1]

    async def seconds(self, count: int) -> None:
        """Let everybody renew each second, and run its rounds."""
        for _ in range(count):
            self.time.ms += 1_000
            for replica in self.replicas:
                await replica.renew(len(self.replicas))
                replica.plan()
            led = [shard for replica in self.replicas for shard in replica.led]
            assert len(led) == len(set(led))  # never two leaders

    def led(self) -> list[int]:
        return [len(replica.led) for replica in self.replicas]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.mark.parametrize(
    ("shards", "replicas", "part"),
    [(16, 0, 16), (16, 1, 16), (16, 3, 6), (4, 3, 2), (2, 5, 1), (1, 2, 1)],
)
def test_a_part_is_even_and_rounded_up(shards: int, replicas: int, part: int) -> None:
    assert part_of(shards, replicas) == part


async def test_shards_are_spread_when_replicas_join_and_each_is_led_all_the_time(
    fleet: Fleet,
) -> None:
    fleet.join()
    await fleet.seconds(2)
    assert fleet.led() == [8]
    fleet.join()
    await fleet.seconds(60)
    assert fleet.led() == [4, 4]
    fleet.join()
    await fleet.seconds(60)
    assert sorted(fleet.led()) == [2, 3, 3]
    given_up = [len(replica.lost) for replica in fleet.replicas]
    await fleet.seconds(120)
    assert [len(replica.lost) for replica in fleet.replicas] == given_up  # it rests there


async def test_the_log_tells_what_changed_and_how_many_shards_are_led_then(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    fleet.join()
    await fleet.seconds(2)
    assert caplog.messages == ["takes 8 shards: leads 8 of 8 shards now"]
    fleet.join()
    await fleet.seconds(60)
    assert caplog.messages[1:3] == [
        "hands over 4 shards: leads 4 of 8 shards now",
        "takes 4 shards: leads 4 of 8 shards now",
    ]


async def test_nothing_is_handed_over_shortly_before_a_round_or_while_one_runs(
    fleet: Fleet,
) -> None:
    first = fleet.join()
    await first.renew(1)
    first.plan()  # the early ones; the regular ones are due at second 38
    held = first.leadership.held
    start_ms = fleet.time.ms
    assert len(to_hand_over(held, 6, start_ms, ROUND_MS)) == 2
    assert to_hand_over(held, 8, start_ms, ROUND_MS) == []
    assert to_hand_over(held, 6, start_ms + 9_000, ROUND_MS) == []
    for entry in held.values():
        entry.agenda.lends = True  # its rounds come all the time
    assert len(to_hand_over(held, 6, start_ms, ROUND_MS)) == 2
    for entry in held.values():
        entry.running = True
    assert to_hand_over(held, 6, start_ms, ROUND_MS) == []


async def test_a_shard_with_somebody_newly_come_is_not_handed_over_before_that_is_planned(
    fleet: Fleet,
) -> None:
    first = fleet.join()
    await first.renew(1)
    first.plan()
    asked: LedShard = first.leadership.held[3]
    asked.agenda.ask_early()
    assert 3 not in to_hand_over(first.leadership.held, 0, fleet.time.ms, ROUND_MS)


async def test_who_leaves_in_order_is_followed_at_once(fleet: Fleet) -> None:
    fleet.join()
    fleet.join()
    await fleet.seconds(60)
    await fleet.replicas.pop().leadership.release()
    await fleet.seconds(1)
    assert fleet.led() == [8]


@pytest.mark.parametrize("heard_of", [1, 2])
async def test_a_dead_ones_shards_are_taken_over_though_it_still_counts(
    fleet: Fleet, heard_of: int
) -> None:
    fleet.join()
    fleet.join()
    await fleet.seconds(60)
    survivor, _ = fleet.replicas
    for _ in range(LEASE_MS // 1000 * heard_of):
        assert len(survivor.led) == 4
        fleet.time.ms += 1_000
        await survivor.renew(heard_of)
    assert len(survivor.led) == 8


async def test_a_paused_leader_leads_nothing_when_it_wakes(fleet: Fleet) -> None:
    paused = fleet.join()
    await fleet.seconds(1)
    other = Replica(fleet, "other")
    fleet.time.ms += LEASE_MS
    assert paused.led == []
    await other.renew(2)
    await other.renew(1)
    assert len(other.led) == 8
    await paused.renew(1)
    assert paused.led == []
    assert sorted(paused.lost) == list(range(SHARDS))


@pytest.mark.parametrize("step_ms", [MINUTES_10, -MINUTES_10])
async def test_a_machine_whose_time_is_wrong_leads_no_longer_than_its_lease_and_others_do(
    fleet: Fleet, step_ms: int
) -> None:
    right, wrong = fleet.join(), fleet.join()
    await fleet.seconds(60)
    led = right.led, wrong.led
    wrong.clock.step_ms = step_ms
    with pytest.raises(UnavailableError, match="clock is 600"):
        await wrong.renew(2)
    assert (right.led, wrong.led) == led, "nobody loses anything at once"
    fleet.replicas.remove(wrong)
    await fleet.seconds(2 * LEASE_MS // 1000 + 1)
    assert (len(right.led), wrong.led) == (8, [])
    wrong.clock.step_ms = 0
    fleet.replicas.append(wrong)
    await fleet.seconds(60)
    assert (len(right.led), len(wrong.led)) == (4, 4)


async def test_what_nobody_takes_is_led_again_and_kept(fleet: Fleet) -> None:
    alone = fleet.join()
    led = []
    for second in range(300):  # another is heard of that leads nothing
        fleet.time.ms += 1_000
        await alone.renew(2)
        alone.plan()
        led.append(len(alone.led))
        assert len(alone.lost) <= 4, second
    assert min(led[1:]) == 4
    assert led[-240:] == [8] * 240
    fleet.join()
    await fleet.seconds(600)
    assert fleet.led() == [4, 4]


async def test_what_could_not_be_let_go_is_led_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fleet.join()
    await fleet.seconds(1)

    async def fail(*_: object) -> None:
        raise UnavailableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(fleet.repository, "release_leases", fail)
        with pytest.raises(UnavailableError):
            await first.renew(2)
    await first.renew(1)
    assert len(first.led) == 8


async def test_who_has_less_than_its_part_looks_often_and_others_seldom(fleet: Fleet) -> None:
    first = fleet.join()
    assert first.leadership.pause_ms(1) == 1_000
    await first.renew(1)
    assert first.leadership.pause_ms(1) == LEASE_MS // 3


async def test_who_does_not_know_yet_who_else_is_there_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = Shared()
    repository = shared.repository
    exchange, may_look = repository.exchange, asyncio.Event()

    async def late(reader: Reader, *, forget_before_ms: int, limit: int) -> BoardState:
        await may_look.wait()
        return await exchange(reader, forget_before_ms=forget_before_ms, limit=limit)

    monkeypatch.setattr(repository, "exchange", late)
    process = Process(shared, "one", lease_ms=3_600_000)
    async with process.running():
        await until(lambda: process.ingest.view().caught_up)
        assert repository.renewals == 0
        may_look.set()
        await until(process.leads)


async def test_who_never_learns_who_else_is_there_leads_after_the_time_of_a_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = Shared()

    async def refuse(reader: Reader, *, forget_before_ms: int, limit: int) -> BoardState:
        raise UnavailableError("not told")

    monkeypatch.setattr(shared.repository, "exchange", refuse)
    process = Process(shared, "one", lease_ms=300)
    async with process.running():
        await until(process.leads)
