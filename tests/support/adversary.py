"""What goes wrong in a world, and how often: drawn from a seed, so that a run is its function.

Messages and reads are lost, late and repeated, replicas lag, members join under names in use,
leave, crash, pause and start again, reports lie, rounds are missed or come at odd times, leaders
change and their puts linger, capacities and policies change, destinations are removed and made
again, clocks differ and step; PostgreSQL is lost, the bucket is set back, files or all are gone.
`tests.support.lives` says which lives are tried.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from balancer.core.model import RoundKind, Strategy, WeightRule
from tests.support.shard import Shard
from tests.support.world import WINDOW_SECONDS, WINDOW_TICKS, OverrunError, Worker, World
from worker_sdk.wire.shares import POINTS

__all__ = ["CALM", "CAPACITIES", "DEMANDS", "Chances", "OverrunError", "tick"]

CAPACITIES = (0, 1, 2, 5, 10, 50, 100, 1000, 1_000_000_000)
DEMANDS = (0, 1, 5, 50, 2000)


@dataclass(frozen=True, slots=True)
class Chances:
    """How often things go wrong, a tick and where it applies a member."""

    read: float = 1
    deaf: float = 1  # members with odd numbers read so much less often
    lost_read: float = 0
    lag: tuple[int, ...] = (0,)
    report_delay: tuple[int, ...] = (0,)
    lost_report: float = 0
    repeated_report: float = 0
    lie: float = 0
    lies: tuple[int, ...] = (1, 1, 2, 3, 1000)
    spend: float = 1
    borrow: float = 0  # reports out of turn
    missed_round: float = 0
    odd_round: float = 0
    put_delay: tuple[int, ...] = (0,)
    pointer_delay: tuple[int, ...] = (0,)
    join: float = 0
    leave: float = 0
    lost_goodbye: float = 0.3
    crash: float = 0
    pause: float = 0
    restart: float = 0
    step: float = 0
    stray: float = 0
    planner_stray: float = 0
    planner_strays: tuple[int, ...] = (0, 0, 5_000, 13_000, 31_000)
    capacity: float = 0
    capacities: tuple[int, ...] = CAPACITIES
    policy: float = 0
    remove: float = 0
    take_over: float = 0
    lose_postgres: float = 0
    miss_reports: float = 0  # ingest is not current, so that a shard learns
    set_back: float = 0
    roll_back: float = 0
    lose_file: float = 0
    lose_old_file: float = 0
    lose_everything: float = 0
    new_demand: float = 0
    demands: tuple[int, ...] = DEMANDS


CALM = Chances()


def tick(world: World, chances: Chances) -> None:
    """Let a second pass."""
    world.deliver()
    world.make_what_is_due()
    world.apply_puts()
    for shard in world.shards:
        plan_if_due(world, shard, chances)
    world.apply_puts()
    disturb_members(world, chances)
    disturb_clocks(world, chances)
    disturb_destinations(world, chances)
    disturb_parts(world, chances)
    for worker in world.workers:
        if worker.alive and not worker.paused:
            work(world, worker, chances)
    world.tick_number += 1


def happens(rng: random.Random, chance: float) -> bool:
    """Draw only where it may go either way, so that a fault that is off changes no other life."""
    return chance > 0 and (chance >= 1 or rng.random() < chance)


def work(world: World, worker: Worker, chances: Chances) -> None:
    """Let a member read, spend and report."""
    rng = world.rng
    for shard in world.shards:
        deaf = chances.deaf if worker.number % 2 else 1
        if happens(rng, chances.read * deaf):
            lost = happens(rng, chances.lost_read)
            world.read(worker, shard, lag=rng.choice(chances.lag), lost=lost)
    if happens(rng, chances.spend) and worker.demand:
        for name, _ in world.setup.destinations:
            world.spend(worker, name, worker.demand)
    if happens(rng, chances.lie):
        world.send_lie(worker, rng.choice(chances.lies))
    is_turn = (world.tick_number + worker.number * 3) % WINDOW_TICKS == 0
    if is_turn or happens(rng, chances.borrow):
        batch = world.report(worker)
        if batch is not None and not happens(rng, chances.lost_report):
            again = rng.choice([1, 5, 20]) if happens(rng, chances.repeated_report) else None
            world.send(batch, delay_ticks=rng.choice(chances.report_delay), again_ticks=again)


def plan_if_due(world: World, shard: Shard, chances: Chances) -> None:
    """Run a round if one is due, by the planner's clock, or at an odd time."""
    rng = world.rng
    plan_ticks = WINDOW_TICKS * world.setup.round_windows
    second = (world.planner_now_ms + 500) // 1000
    is_regular = second % plan_ticks == plan_ticks - 4 or happens(rng, chances.odd_round)
    names = [name for name in world.destinations if world.shard(name) is shard]
    is_uncovered = second % 5 == 0 and not all(
        shard.covers(name, world.planner_now_ms) for name in names
    )
    lends = second % 2 == 0 and any(world.destinations[name].policy.lend_points for name in names)
    if not (is_regular or shard.early_due or is_uncovered or lends):
        return
    shard.early_due = False
    if not happens(rng, chances.missed_round):
        world.plan(
            shard,
            RoundKind.REGULAR if is_regular else RoundKind.EARLY,
            rng.choice(chances.put_delay),
            rng.choice(chances.pointer_delay),
        )


def disturb_members(world: World, chances: Chances) -> None:
    rng = world.rng
    alive = [worker for worker in world.workers if worker.alive]
    if happens(rng, chances.join) and len(alive) < 10:
        world.join(
            f"host-{rng.randrange(8)}", rng.choice(chances.demands)
        )  # names clash on purpose
    if alive and happens(rng, chances.leave):
        goodbye = world.leave(rng.choice(alive))
        if not happens(rng, chances.lost_goodbye):
            world.send(goodbye, delay_ticks=rng.choice(chances.report_delay))
    if alive and happens(rng, chances.restart):
        old = rng.choice(alive)
        goodbye = world.leave(old)
        if not happens(rng, chances.lost_goodbye):
            world.send(goodbye, delay_ticks=rng.choice(chances.report_delay))
        world.join(old.engine.host, old.demand)
    if alive and happens(rng, chances.crash):
        rng.choice(alive).alive = False
    if alive and happens(rng, chances.pause):
        worker = rng.choice(alive)
        worker.paused = not worker.paused
    for worker in alive:
        if happens(rng, chances.new_demand):
            worker.demand = rng.choice(chances.demands)


def disturb_clocks(world: World, chances: Chances) -> None:
    """Let wall clocks step: within what the guard allows, or astray by windows or an hour."""
    rng = world.rng
    most_ms = world.setup.skew_max_ms
    for worker in world.workers:
        if happens(rng, chances.step):
            worker.skew_ms = rng.randint(-most_ms, most_ms)
        if happens(rng, chances.stray):
            worker.skew_ms = rng.choice(
                [0, 0, -3_000, 4_000, -11_000, 13_000, -3_600_000, 7_200_000]
            )
    if happens(rng, chances.step):
        world.planner_skew_ms = rng.randint(-most_ms, most_ms)
    if happens(rng, chances.planner_stray):
        world.planner_skew_ms = rng.choice(chances.planner_strays)
        world.was_ahead = True
        world.behind_ms = max(world.behind_ms, -world.planner_skew_ms)


def disturb_destinations(world: World, chances: Chances) -> None:
    rng = world.rng
    names: Sequence[str] = sorted(world.destinations)
    if names and happens(rng, chances.capacity):
        world.set_capacity(rng.choice(names), rng.choice(chances.capacities))
    if names and happens(rng, chances.policy):
        change_policy(world, rng.choice(names))
    if names and happens(rng, chances.remove):
        name = rng.choice(names)
        world.remove(name)
        seconds = rng.choice([1, 2, 3]) * WINDOW_SECONDS
        capacity = rng.choice([capacity for capacity in chances.capacities if capacity])
        world.make_later(name, capacity, seconds, rng.choice([1, 8, 25, 60, 95]))


def change_policy(world: World, name: str) -> None:
    """Change one thing of a policy."""
    rng = world.rng
    what = rng.randrange(7)
    if what == 0:
        world.change_policy(name, minimum_points=rng.choice([0, POINTS // 50, POINTS // 3]))
    elif what == 1:
        world.change_policy(name, maximum_points=rng.choice([POINTS, POINTS // 2]))
    elif what == 2:
        rules = (WeightRule(3, host="host-1"), WeightRule(2, host="host-[2-4]"))
        world.change_policy(name, weights=rules[: rng.randrange(3)])
    elif what == 3:
        world.change_policy(name, shadow=rng.choice([None, Strategy.EQUAL, Strategy.SURPLUS]))
    elif what == 4:
        world.change_policy(name, head_room_permille=rng.choice([0, 100, 1000]))
    elif what == 5:
        world.change_policy(name, strategy=rng.choice(list(Strategy)))
    else:
        world.change_policy(name, newcomer_reserve_points=rng.choice([0, POINTS // 20]))


def disturb_parts(world: World, chances: Chances) -> None:
    rng = world.rng
    if happens(rng, chances.lose_postgres):
        world.lose_postgres(learns=rng.random() < 0.7, destinations=rng.random() < 0.3)
    if happens(rng, chances.lose_everything):
        world.lose_everything()
    for shard in world.shards:
        if happens(rng, chances.miss_reports):
            shard.learn(world.planner_now_ms)
        if happens(rng, chances.take_over):
            shard.take_over()
        if happens(rng, chances.set_back):
            shard.set_pointer_back(rng.choice([1, 2, 3]))
        if happens(rng, chances.roll_back):
            shard.roll_store_back(rng.choice([1, 2, 3]))
        if happens(rng, chances.lose_file):
            shard.lose_file(rng.choice([0, 0, 1]))
        if happens(rng, chances.lose_old_file):
            shard.lose_old_file(rng.choice([2, 3, 4, 5]))
