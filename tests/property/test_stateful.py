"""Any interleaving of what can happen to planner and engines: never over, and alive at the end.

The search is Hypothesis' own; `tests.simulation.test_adversary` draws longer lives from seeds.
There are two shards with epochs of their own, and up to three destinations.
"""

from __future__ import annotations

import random
from itertools import islice

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from balancer.core.model import Policy, RoundKind
from tests.support.adversary import CALM, CAPACITIES, DEMANDS, Chances, change_policy, tick
from tests.support.aftermath import check_calm
from tests.support.lives import APART, CALM_TICKS, NAME, SLOW, calm_down
from tests.support.shard import Shard
from tests.support.world import WINDOW_SECONDS, Setup, Worker, World
from worker_sdk.wire.distribution import CLOSED, OnExpiry, Pacing

MEMBERS_MAX = 8
IDLE = Chances(read=0, spend=0, missed_round=0, lost_report=1)

members = st.integers(0, MEMBERS_MAX - 1)
shards = st.integers(0, 1)
delays = st.sampled_from([0, 0, 0, 2, 9, 15])


class Life(RuleBasedStateMachine):
    """One world, and everything that can be done to it."""

    world: World

    @initialize(
        capacity=st.sampled_from([1, 2, 3, 7, 10, 50, 1000, 1_000_000_000]),
        others=st.sampled_from([(), (SLOW,), (APART,), (SLOW, APART)]),
        reserve=st.sampled_from([0, 50_000_000]),
        valid_for=st.sampled_from([12, 20, 35]),
        extends=st.booleans(),
        skew_ms=st.sampled_from([0, 200]),
        round_windows=st.sampled_from([1, 1, 2]),
        number=st.integers(2, 4),
    )
    def begin(
        self,
        capacity: int,
        others: tuple[str, ...],
        reserve: int,
        valid_for: int,
        extends: bool,
        skew_ms: int,
        round_windows: int,
        number: int,
    ) -> None:
        seconds = {NAME: WINDOW_SECONDS, APART: WINDOW_SECONDS, SLOW: 3 * WINDOW_SECONDS}
        names = (NAME, *others)
        policy = Policy(
            newcomer_reserve_points=reserve,
            safe_permille=1000,
            valid_for_seconds=valid_for,
            on_expiry=OnExpiry(500, 20_000) if extends else CLOSED,
            guard_ms=2 * skew_ms,
            pacing=Pacing.WINDOW,
        )
        destinations = tuple((name, seconds[name]) for name in names)
        setup = Setup(destinations, policy, round_windows, skew_ms, -skew_ms, shards=2)
        self.world = World(setup, dict.fromkeys(names, capacity), random.Random(capacity))
        for host in range(number):
            self.world.join(f"host-{host}", 2000)

    def worker(self, number: int) -> Worker | None:
        alive = [worker for worker in self.world.workers if worker.alive and not worker.paused]
        return alive[number % len(alive)] if alive else None

    def shard(self, number: int) -> Shard:
        return self.world.shards[number % 2]

    def name(self, number: int) -> str:
        names = self.world.setup.destinations
        return names[number % len(names)][0]

    @rule(seconds=st.integers(1, 12))
    def time_passes_and_nobody_hears_anything(self, seconds: int) -> None:
        for _ in range(seconds):
            tick(self.world, IDLE)

    @rule(seconds=st.integers(1, 20))
    def all_is_well_for_a_while(self, seconds: int) -> None:
        for _ in range(seconds):
            tick(self.world, CALM)

    @rule(seconds=st.integers(1, 20))
    def everybody_spends_and_nobody_reads(self, seconds: int) -> None:
        for _ in range(seconds):
            tick(self.world, Chances(read=0))

    @rule(number=members, shard=shards, lag=st.sampled_from([0, 0, 1, 2]), lost=st.booleans())
    def one_reads(self, number: int, shard: int, lag: int, lost: bool) -> None:
        if worker := self.worker(number):
            self.world.read(worker, self.shard(shard), lag=lag, lost=lost)

    @rule(number=members, amount=st.sampled_from([1, 5, 2000]))
    def one_spends(self, number: int, amount: int) -> None:
        if worker := self.worker(number):
            for name, _ in self.world.setup.destinations:
                self.world.spend(worker, name, amount)

    @rule(number=members, delay=delays, again=st.sampled_from([None, 5, 20]))
    def one_reports(self, number: int, delay: int, again: int | None) -> None:
        worker = self.worker(number)
        batch = self.world.report(worker) if worker else None
        if batch is not None:
            self.world.send(batch, delay_ticks=delay, again_ticks=again)

    @rule(host=st.integers(0, 5), demand=st.sampled_from(DEMANDS))
    def one_joins(self, host: int, demand: int) -> None:
        if sum(1 for worker in self.world.workers if worker.alive) < MEMBERS_MAX:
            self.world.join(f"host-{host}", demand)

    @rule(number=members, delay=delays, lost=st.booleans())
    def one_leaves(self, number: int, delay: int, lost: bool) -> None:
        if worker := self.worker(number):
            goodbye = self.world.leave(worker)
            if not lost:
                self.world.send(goodbye, delay_ticks=delay)

    @rule(number=members, ahead=st.sampled_from([1, 2, 1000]))
    def one_lies_about_what_it_holds(self, number: int, ahead: int) -> None:
        if worker := self.worker(number):
            self.world.send_lie(worker, ahead)

    @rule(number=members, delay=delays, lost=st.booleans())
    def one_is_closed_and_started_again(self, number: int, delay: int, lost: bool) -> None:
        if worker := self.worker(number):
            goodbye = self.world.leave(worker)
            if not lost:
                self.world.send(goodbye, delay_ticks=delay)
            self.world.join(worker.engine.host, worker.demand)

    @rule(number=members, seconds=st.sampled_from([-3600, -11, -3, 0, 4, 13, 7200]))
    def a_wall_clock_steps(self, number: int, seconds: int) -> None:
        if worker := self.worker(number):
            worker.skew_ms = seconds * 1000

    @rule(permille=st.integers(-1000, 1000))
    def the_planners_clock_steps(self, permille: int) -> None:
        self.world.planner_skew_ms = self.world.setup.skew_max_ms * permille // 1000

    @rule(seconds=st.sampled_from([3, 13, 31]))
    def the_planners_clock_goes_far_ahead(self, seconds: int) -> None:
        self.world.planner_skew_ms = seconds * 1000
        self.world.was_ahead = True

    @rule(number=members, demand=st.sampled_from(DEMANDS))
    def one_wants_something_else(self, number: int, demand: int) -> None:
        if worker := self.worker(number):
            worker.demand = demand

    @rule(number=members)
    def one_is_killed(self, number: int) -> None:
        if worker := self.worker(number):
            worker.alive = False

    @rule(number=members)
    def one_is_stopped(self, number: int) -> None:
        if worker := self.worker(number):
            worker.paused = True

    @rule()
    def those_stopped_go_on(self) -> None:
        for worker in islice(self.world.workers, 100):
            worker.paused = False

    @rule(shard=shards, file_delay=delays, pointer_delay=delays, kind=st.sampled_from(RoundKind))
    def a_round_runs_at_an_odd_time(
        self, shard: int, file_delay: int, pointer_delay: int, kind: RoundKind
    ) -> None:
        self.world.plan(self.shard(shard), kind, file_delay, pointer_delay)

    @rule(shard=shards)
    def another_leader_takes_over(self, shard: int) -> None:
        self.shard(shard).take_over()

    @rule(number=members, capacity=st.sampled_from(CAPACITIES))
    def a_capacity_is_changed(self, number: int, capacity: int) -> None:
        self.world.set_capacity(self.name(number), capacity)

    @rule(number=members)
    def a_policy_is_changed(self, number: int) -> None:
        change_policy(self.world, self.name(number))

    @rule(number=members, windows=st.integers(1, 3), ticks=st.sampled_from([1, 25, 60]))
    def a_destination_is_removed_and_made_again(
        self, number: int, windows: int, ticks: int
    ) -> None:
        self.world.remove(self.name(number))
        self.world.make_later(self.name(number), 50, windows * WINDOW_SECONDS, ticks)

    # What the bucket has lost is known from the database alone: of both only everything is lost.
    @precondition(lambda self: not any(shard.has_lost_files for shard in self.world.shards))
    @rule(learns=st.booleans(), destinations=st.booleans())
    def the_database_is_lost(self, learns: bool, destinations: bool) -> None:
        self.world.lose_postgres(learns=learns, destinations=destinations)

    @rule(shard=shards)
    def reports_are_missing(self, shard: int) -> None:
        self.shard(shard).learn(self.world.planner_now_ms)

    @rule()
    def everything_is_lost(self) -> None:
        self.world.lose_everything()

    @rule(shard=shards, by=st.integers(1, 3))
    def a_pointer_is_set_back(self, shard: int, by: int) -> None:
        self.shard(shard).set_pointer_back(by)

    @precondition(lambda self: not any(shard.has_lost_rows for shard in self.world.shards))
    @rule(shard=shards, place=st.integers(0, 1))
    def a_file_is_lost(self, shard: int, place: int) -> None:
        self.shard(shard).lose_file(place)

    def teardown(self) -> None:
        world = getattr(self, "world", None)
        if world is None:
            return
        calm_down(world)
        for _ in range(CALM_TICKS):
            tick(world, CALM)
        check_calm(world, seed=-1)


Life.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestAnyInterleaving = Life.TestCase
