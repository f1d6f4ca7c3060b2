"""What goes wrong in a world, and how often: drawn from a seed, so that a run is its function.

Messages and reads are lost, late and repeated, replicas lag, members join under names in use,
leave, crash and pause, rounds are missed or come at odd times, puts linger, capacities change,
clocks differ; PostgreSQL is lost, the pointer is set back, or the newest file is gone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from balancer.core.model import Policy, RoundKind
from tests.support.world import WINDOW_SECONDS, WINDOW_TICKS, OverrunError, Setup, World
from worker_sdk.wire.distribution import CLOSED, OnExpiry, Pacing

__all__ = ["ANY", "CALM", "LIVES", "NAME", "Chances", "Life", "OverrunError", "tick"]

NAME = "orders-db"
SLOW = "archive-db"
CAPACITIES = (0, 1, 2, 5, 10, 50, 100, 1000)
DEMANDS = (0, 1, 5, 50, 2000)
QUIET: dict[str, Any] = {
    "lost_read": 0,
    "lost_report": 0,
    "report_delay": (0,),
    "missed_round": 0,
    "odd_round": 0,
    "put_delay": (0,),
    "pointer_delay": (0,),
    "spend": 0.9,
    "join": 0,
    "leave": 0,
    "crash": 0,
    "pause": 0,
    "capacity": 0,
    "lose_postgres": 0,
    "set_back": 0,
    "lose_file": 0,
    "new_demand": 0,
}
"""Nothing goes wrong; what a life is about is added."""


@dataclass(frozen=True, slots=True)
class Chances:
    """How often things go wrong, a tick and where it applies a member."""

    read: float = 1
    lost_read: float = 0
    lag: tuple[int, ...] = (0,)
    report_delay: tuple[int, ...] = (0,)
    lost_report: float = 0
    repeated_report: float = 0
    spend: float = 1
    missed_round: float = 0
    odd_round: float = 0
    put_delay: tuple[int, ...] = (0,)
    pointer_delay: tuple[int, ...] = (0,)
    join: float = 0
    leave: float = 0
    crash: float = 0
    pause: float = 0
    capacity: float = 0
    lose_postgres: float = 0
    set_back: float = 0
    lose_file: float = 0
    new_demand: float = 0
    demands: tuple[int, ...] = DEMANDS


CALM = Chances()


@dataclass(frozen=True, slots=True)
class Life:
    """One kind of life: what its world is like, and what goes wrong in it.

    A life that warms up has had calm windows before, so that safe points are out. ``chances`` and
    ``setup`` fix what would be drawn otherwise.
    """

    name: str
    warm: bool = True
    demands: tuple[int, ...] = DEMANDS
    capacities: tuple[int, ...] = (1, 2, 3, 5, 7, 10, 20, 50, 100, 1000)
    skew_max_ms: tuple[int, ...] = (0, 0, 200)
    valid_for_seconds: tuple[int, ...] = (12, 20, 35, 60)
    safe_permille: tuple[int, ...] = (1000,)
    extends: tuple[bool, ...] = (False, False, True)
    chances: dict[str, Any] = field(default_factory=dict)


ANY = Life("anything", warm=False, safe_permille=(1000, 900, 500))
LIVES = (
    ANY,
    Life("saturated", demands=(2000,), chances={"new_demand": 0}),
    Life(
        "few reads",
        demands=(0, 2000),
        capacities=(20, 50, 97, 1000),
        valid_for_seconds=(60,),
        chances={**QUIET, "read": 0.04, "new_demand": 0.05},
    ),
    Life(
        "long pauses",
        demands=(2000,),
        valid_for_seconds=(60,),
        chances={**QUIET, "read": 0.5, "pause": 0.05, "join": 0.05},
    ),
    Life(
        "comings and goings",
        capacities=(20, 50, 97, 1000),
        demands=(5, 50, 2000),
        chances={**QUIET, "read": 0.9, "join": 0.15, "leave": 0.15, "new_demand": 0.1},
    ),
    Life(
        "changing capacity",
        demands=(2000,),
        capacities=(7, 11, 97, 337),
        valid_for_seconds=(20, 35),
        chances={**QUIET, "read": 0.05, "join": 0.05, "capacity": 0.05},
    ),
    Life(
        "pointers set back",
        demands=(0, 50, 2000),
        capacities=(50, 97, 1000),
        chances={**QUIET, "read": 0.3, "join": 0.1, "leave": 0.03, "set_back": 0.08},
    ),
    Life(
        "differing clocks",
        demands=(0, 2000),
        skew_max_ms=(200,),
        capacities=(50, 97, 1000),
        chances={**QUIET, "read": 0.9, "new_demand": 0.1},
    ),
    Life(
        "puts that linger",
        demands=(0, 50, 2000),
        chances={**QUIET, "read": 0.5, "join": 0.05, "put_delay": (0, 2, 9, 15), "odd_round": 0.05},
    ),
)


def drawn_chances(rng: random.Random, life: Life) -> Chances:
    often = (0, 0.01, 0.05)
    # A lost file is known from the database's record alone: not both in one run.
    loses_files = rng.random() < 0.3
    drawn = Chances(
        read=rng.choice([0.03, 0.1, 0.3, 0.8]),
        lost_read=rng.choice([0, 0.2, 0.6]),
        lag=(0, 0, 0, 1, 2),
        report_delay=rng.choice([(0,), (0, 0, 0, 1, 2, 5, 12)]),
        lost_report=rng.choice([0, 0.2, 0.6]),
        repeated_report=0.1,
        spend=rng.choice([0.3, 0.9]),
        missed_round=rng.choice([0, 0.1, 0.5]),
        odd_round=rng.choice([0, 0, 0.05]),
        put_delay=rng.choice([(0,), (0, 0, 1, 3), (0, 2, 9, 15)]),
        pointer_delay=rng.choice([(0,), (0, 0, 0, 2, 12)]),
        join=rng.choice(often),
        leave=rng.choice(often),
        crash=rng.choice(often),
        pause=rng.choice(often),
        capacity=rng.choice(often),
        lose_postgres=0 if loses_files else rng.choice([0, 0, 0.003, 0.015]),
        set_back=0 if loses_files else rng.choice([0, 0, 0.01, 0.05]),
        lose_file=0.01 if loses_files else 0,
        new_demand=rng.choice([0.02, 0.2]),
    )
    return replace(drawn, demands=life.demands, **life.chances)


def drawn_world(rng: random.Random, life: Life, *, laxity: str = "") -> World:
    """Return a world with two to six members."""
    skew_max_ms = rng.choice(life.skew_max_ms)
    setup = Setup(
        destinations=((NAME, WINDOW_SECONDS), (SLOW, 3 * WINDOW_SECONDS))[: rng.choice([1, 1, 2])],
        policy=Policy(
            newcomer_reserve_points=rng.choice([0, 10_000_000, 50_000_000]),
            safe_permille=rng.choice(life.safe_permille),
            valid_for_seconds=rng.choice(life.valid_for_seconds),
            on_expiry=OnExpiry(500, 20_000) if rng.choice(life.extends) else CLOSED,
            guard_ms=2 * skew_max_ms,
            pacing=Pacing.WINDOW,
        ),
        round_windows=rng.choice([1, 1, 1, 2, 3]),
        skew_max_ms=skew_max_ms,
        planner_skew_ms=rng.randint(-skew_max_ms, skew_max_ms),
        laxity=laxity,
    )
    capacities = {name: rng.choice(life.capacities) for name in (NAME, SLOW)}
    world = World(setup, capacities, rng)
    for number in range(rng.choice([2, 3, 4, 6])):
        world.join(f"host-{number}", rng.choice(life.demands))
    return world


def tick(world: World, chances: Chances) -> None:
    """Let a second pass."""
    rng = world.rng
    world.deliver()
    world.apply_puts()
    plan_ticks = WINDOW_TICKS * world.setup.round_windows
    is_regular = (
        world.tick_number % plan_ticks == plan_ticks - 4 or rng.random() < chances.odd_round
    )
    if is_regular or world.early_due:
        world.early_due = False
        if rng.random() >= chances.missed_round:
            world.plan(
                RoundKind.REGULAR if is_regular else RoundKind.EARLY,
                file_delay=rng.choice(chances.put_delay),
                pointer_delay=rng.choice(chances.pointer_delay),
            )
    world.apply_puts()
    disturb_members(world, chances)
    disturb_parts(world, chances)
    for worker in world.workers:
        if not worker.alive or worker.paused:
            continue
        if rng.random() < chances.read:
            lost = rng.random() < chances.lost_read
            world.read(worker, lag=rng.choice(chances.lag), lost=lost)
        if rng.random() < chances.spend and worker.demand:
            for name, _ in world.setup.destinations:
                world.spend(worker, name, worker.demand)
        if (world.tick_number + worker.number * 3) % WINDOW_TICKS == 0:
            batch = world.report(worker)
            if batch is not None and rng.random() >= chances.lost_report:
                again = rng.choice([1, 5, 20]) if rng.random() < chances.repeated_report else None
                world.send(batch, delay_ticks=rng.choice(chances.report_delay), again_ticks=again)
    world.tick_number += 1


def disturb_members(world: World, chances: Chances) -> None:
    rng = world.rng
    alive = [worker for worker in world.workers if worker.alive]
    if rng.random() < chances.join and len(alive) < 10:
        world.join(
            f"host-{rng.randrange(8)}", rng.choice(chances.demands)
        )  # names clash on purpose
    if alive and rng.random() < chances.leave:
        goodbye = world.leave(rng.choice(alive))
        if rng.random() < 0.7:
            world.send(goodbye, delay_ticks=rng.choice(chances.report_delay))
    if alive and rng.random() < chances.crash:
        rng.choice(alive).alive = False
    if alive and rng.random() < chances.pause:
        worker = rng.choice(alive)
        worker.paused = not worker.paused
    for worker in alive:
        if rng.random() < chances.new_demand:
            worker.demand = rng.choice(chances.demands)


def disturb_parts(world: World, chances: Chances) -> None:
    rng = world.rng
    if rng.random() < chances.capacity:
        name, _ = rng.choice(world.setup.destinations)
        world.capacities[name] = rng.choice(CAPACITIES)
    if rng.random() < chances.lose_postgres:
        world.lose_postgres()
    if rng.random() < chances.set_back:
        world.set_pointer_back(rng.choice([1, 2, 3]))
    if rng.random() < chances.lose_file:
        world.lose_newest_file()
