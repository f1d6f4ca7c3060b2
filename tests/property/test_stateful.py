"""Any interleaving of what can happen to planner and engines: never over, and alive at the end.

The search is Hypothesis' own; `tests.simulation.test_adversary` draws longer lives from seeds.
"""

from __future__ import annotations

import random
from itertools import islice

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from balancer.core.model import Policy, RoundKind
from tests.simulation.test_adversary import CALM_TICKS, check_calm
from tests.support.adversary import CALM, CAPACITIES, DEMANDS, NAME, SLOW, Chances, tick
from tests.support.world import WINDOW_SECONDS, Setup, Worker, World
from worker_sdk.wire.distribution import CLOSED, OnExpiry, Pacing

MEMBERS_MAX = 8
IDLE = Chances(read=0, spend=0, missed_round=0, lost_report=1)

members = st.integers(0, MEMBERS_MAX - 1)
delays = st.sampled_from([0, 0, 0, 2, 9, 15])


class Life(RuleBasedStateMachine):
    """One world, and everything that can be done to it."""

    world: World

    @initialize(
        capacity=st.sampled_from([1, 2, 3, 7, 10, 50, 1000]),
        slow=st.booleans(),
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
        slow: bool,
        reserve: int,
        valid_for: int,
        extends: bool,
        skew_ms: int,
        round_windows: int,
        number: int,
    ) -> None:
        destinations = ((NAME, WINDOW_SECONDS), (SLOW, 3 * WINDOW_SECONDS))
        policy = Policy(
            newcomer_reserve_points=reserve,
            safe_permille=1000,
            valid_for_seconds=valid_for,
            on_expiry=OnExpiry(500, 20_000) if extends else CLOSED,
            guard_ms=2 * skew_ms,
            pacing=Pacing.WINDOW,
        )
        setup = Setup(destinations[: 1 + slow], policy, round_windows, skew_ms, -skew_ms)
        self.world = World(setup, {NAME: capacity, SLOW: capacity}, random.Random(capacity))
        for host in range(number):
            self.world.join(f"host-{host}", 2000)

    def worker(self, number: int) -> Worker | None:
        alive = [worker for worker in self.world.workers if worker.alive and not worker.paused]
        return alive[number % len(alive)] if alive else None

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

    @rule(number=members, lag=st.sampled_from([0, 0, 1, 2]), lost=st.booleans())
    def one_reads(self, number: int, lag: int, lost: bool) -> None:
        if worker := self.worker(number):
            self.world.read(worker, lag=lag, lost=lost)

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

    @rule(file_delay=delays, pointer_delay=delays, early=st.booleans())
    def a_round_runs_at_an_odd_time(self, file_delay: int, pointer_delay: int, early: bool) -> None:
        kind = RoundKind.EARLY if early else RoundKind.REGULAR
        self.world.plan(kind, file_delay=file_delay, pointer_delay=pointer_delay)

    @rule(capacity=st.sampled_from(CAPACITIES))
    def the_capacity_is_changed(self, capacity: int) -> None:
        self.world.capacities[NAME] = capacity

    @rule()
    def the_database_is_lost(self) -> None:
        self.world.lose_postgres()

    @precondition(lambda self: len(self.world.pointers) > 1)
    @rule(by=st.integers(1, 3))
    def the_pointer_is_set_back(self, by: int) -> None:
        self.world.set_pointer_back(by)

    def teardown(self) -> None:
        world = getattr(self, "world", None)
        if world is None:
            return
        for name, capacity in world.capacities.items():
            world.capacities[name] = capacity or 10
        for worker in world.workers:
            worker.paused = False
            worker.demand = 2000 if worker.alive else 0
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
