"""The lives that are tried: what a world is like, and what goes wrong in it, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from balancer.core.model import Policy
from tests.support.adversary import CALM, DEMANDS, Chances, tick
from tests.support.world import WINDOW_SECONDS, Setup, World
from worker_sdk.wire.distribution import CLOSED, OnExpiry, Pacing

NAME = "orders-db"
SLOW = "archive-db"
APART = "billing-api"
"""Of two shards it has the other one."""

WARM_TICKS = 60
TROUBLED_TICKS = 140
CALM_TICKS = 240


@dataclass(frozen=True, slots=True)
class Life:
    """One kind of life: what its world is like, and what goes wrong in it.

    A life that warms up has had calm windows before, so that safe points are out. ``chances`` fix
    what would be drawn otherwise.
    """

    name: str
    warm: bool = True
    demands: tuple[int, ...] = DEMANDS
    capacities: tuple[int, ...] = (1, 2, 3, 5, 7, 10, 20, 50, 100, 1000, 1_000_000_000)
    skew_max_ms: tuple[int, ...] = (0, 0, 200)
    valid_for_seconds: tuple[int, ...] = (12, 20, 35, 60)
    safe_permille: tuple[int, ...] = (1000,)
    extends: tuple[bool, ...] = (False, False, True)
    members: tuple[int, ...] = (2, 3, 4, 6)
    reserves: tuple[int, ...] = (0, 10_000_000, 50_000_000)
    round_windows: tuple[int, ...] = (1, 1, 1, 2, 3)
    pacing: Pacing = Pacing.WINDOW
    lends: tuple[int, ...] = ()
    chances: dict[str, Any] = field(default_factory=dict)


def quiet(**chances: Any) -> dict[str, Any]:
    """Nothing goes wrong but what is named: what a life is about."""
    calm = {name: getattr(CALM, name) for name in Chances.__slots__ if name != "demands"}
    return {**calm, "spend": 0.9, **chances}


ANY = Life("anything", warm=False, safe_permille=(1000, 900, 500))
LIVES = (
    ANY,
    Life("saturated", demands=(2000,), chances={"new_demand": 0}),
    Life(
        "few reads",
        demands=(0, 2000),
        capacities=(20, 50, 97, 1000),
        valid_for_seconds=(60,),
        chances=quiet(read=0.04, new_demand=0.05),
    ),
    Life(
        "some never read",
        demands=(0, 2000),
        capacities=(7, 11, 97, 1000),
        valid_for_seconds=(35, 60),
        reserves=(0,),
        chances=quiet(read=0.9, deaf=0.02, new_demand=0.05, join=0.02, crash=0.02),
    ),
    Life(
        "long pauses",
        demands=(2000,),
        valid_for_seconds=(60, 120),
        chances=quiet(read=0.5, pause=0.05, join=0.05),
    ),
    Life(
        "comings and goings",
        capacities=(20, 50, 97, 1000),
        demands=(5, 50, 2000),
        chances=quiet(read=0.9, join=0.1, leave=0.1, restart=0.1, new_demand=0.1),
    ),
    Life(
        "changing capacity",
        demands=(2000,),
        capacities=(7, 11, 97, 337),
        valid_for_seconds=(20, 35),
        chances=quiet(read=0.05, join=0.05, capacity=0.05),
    ),
    Life(
        "changing policies",
        demands=(0, 5, 2000),
        valid_for_seconds=(20, 35),
        chances=quiet(read=0.2, policy=0.1, capacity=0.01, new_demand=0.05),
    ),
    Life(
        "points that are lent",
        demands=(0, 50, 2000),
        capacities=(20, 97, 1000, 1_000_000_000),
        lends=(100_000_000, 500_000_000, 1_000_000_000),
        chances=quiet(
            read=0.7,
            borrow=0.3,
            join=0.03,
            leave=0.03,
            capacity=0.01,
            take_over=0.01,
            new_demand=0.2,
        ),
    ),
    Life(
        "removed and made again",
        demands=(0, 50, 2000),
        valid_for_seconds=(12, 20),
        chances=quiet(read=0.3, remove=0.03, lose_postgres=0.004),
    ),
    Life(
        "changes while it learns",
        demands=(0, 50, 2000),
        capacities=(20, 97, 1000),
        valid_for_seconds=(20, 35, 60),
        chances=quiet(
            read=0.3,
            deaf=0.1,
            join=0.03,
            leave=0.03,
            crash=0.01,
            capacity=0.05,
            remove=0.01,
            lose_postgres=0.005,
            miss_reports=0.05,
            set_back=0.01,
            put_delay=(0, 0, 2, 9),
            new_demand=0.05,
        ),
    ),
    Life(
        "a store set back",
        demands=(0, 50, 2000),
        capacities=(50, 97, 1000),
        chances=quiet(read=0.3, join=0.1, leave=0.03, set_back=0.05, roll_back=0.01),
    ),
    Life(
        "differing clocks",
        demands=(0, 2000),
        skew_max_ms=(200,),
        capacities=(50, 97, 1000),
        chances=quiet(read=0.9, step=0.1, new_demand=0.1),
    ),
    Life(
        "clocks astray",
        demands=(0, 2000),
        capacities=(50, 97, 1000),
        chances=quiet(read=0.5, stray=0.03, planner_stray=0.02, new_demand=0.1),
    ),
    Life(
        "a planner's clock behind",
        demands=(0, 2000),
        capacities=(50, 97, 1000),
        valid_for_seconds=(35, 60),
        chances=quiet(
            read=0.9,
            deaf=0.3,
            planner_stray=0.03,
            planner_strays=(0, -3_000, -7_000, -15_000),
            join=0.05,
            leave=0.05,
            missed_round=0.2,
            new_demand=0.1,
        ),
    ),
    Life(
        "puts that linger",
        demands=(0, 50, 2000),
        chances=quiet(
            read=0.5, join=0.05, put_delay=(0, 2, 9, 15, 40), odd_round=0.05, take_over=0.02
        ),
    ),
    Life(
        "lies and losses",
        demands=(0, 2000),
        capacities=(20, 97, 1000),
        valid_for_seconds=(20, 35),
        chances=quiet(
            read=0.2,
            lie=0.05,
            lose_file=0.02,
            lose_everything=0.004,
            take_over=0.02,
            new_demand=0.05,
        ),
    ),
)


def drawn_chances(rng: random.Random, life: Life) -> Chances:
    often = (0, 0.01, 0.05)
    # What the bucket has lost is known from the database's record alone: both go only together.
    loses_files = rng.random() < 0.3
    drawn = Chances(
        read=rng.choice([0.03, 0.1, 0.3, 0.8]),
        deaf=rng.choice([1, 1, 0.1]),
        lost_read=rng.choice([0, 0.2, 0.6]),
        lag=(0, 0, 0, 1, 2),
        report_delay=rng.choice([(0,), (0, 0, 0, 1, 2, 5, 12)]),
        lost_report=rng.choice([0, 0.2, 0.6]),
        repeated_report=0.1,
        lie=rng.choice([0, 0, 0.01]),
        spend=rng.choice([0.3, 0.9]),
        missed_round=rng.choice([0, 0.1, 0.5]),
        odd_round=rng.choice([0, 0, 0.05]),
        put_delay=rng.choice([(0,), (0, 0, 1, 3), (0, 2, 9, 15)]),
        pointer_delay=rng.choice([(0,), (0, 0, 0, 2, 12)]),
        join=rng.choice(often),
        leave=rng.choice(often),
        crash=rng.choice(often),
        pause=rng.choice(often),
        restart=rng.choice(often),
        step=rng.choice(often),
        stray=rng.choice([0, 0, 0.01]),
        planner_stray=rng.choice([0, 0, 0.005]),
        capacity=rng.choice(often),
        policy=rng.choice(often),
        remove=rng.choice([0, 0, 0.01]),
        take_over=rng.choice(often),
        lose_postgres=0 if loses_files else rng.choice([0, 0, 0.003, 0.015]),
        set_back=0 if loses_files else rng.choice([0, 0, 0.01, 0.05]),
        roll_back=rng.choice([0, 0.01]) if loses_files else 0,
        lose_file=0.01 if loses_files else 0,
        lose_everything=rng.choice([0, 0, 0, 0.005]),
        new_demand=rng.choice([0.02, 0.2]),
    )
    return replace(drawn, demands=life.demands, **life.chances)


def drawn_world(rng: random.Random, life: Life, *, laxity: str = "") -> World:
    """Return a world as a life has it."""
    skew_max_ms = rng.choice(life.skew_max_ms)
    known = ((NAME, WINDOW_SECONDS), (SLOW, 3 * WINDOW_SECONDS), (APART, WINDOW_SECONDS))
    names = rng.choice([known[:1], known[:1], known[:2], known[::2]])
    setup = Setup(
        destinations=names,
        policy=Policy(
            newcomer_reserve_points=rng.choice(life.reserves),
            safe_permille=rng.choice(life.safe_permille),
            valid_for_seconds=rng.choice(life.valid_for_seconds),
            on_expiry=OnExpiry(500, 20_000) if rng.choice(life.extends) else CLOSED,
            guard_ms=2 * skew_max_ms,
            pacing=life.pacing,
            lend_points=rng.choice(life.lends) if life.lends else 0,
        ),
        round_windows=rng.choice(life.round_windows),
        skew_max_ms=skew_max_ms,
        planner_skew_ms=rng.randint(-skew_max_ms, skew_max_ms),
        laxity=laxity,
        shards=2 if (APART, WINDOW_SECONDS) in names else 1,
    )
    world = World(setup, {name: rng.choice(life.capacities) for name, _ in names}, rng)
    for number in range(rng.choice(life.members)):
        world.join(f"host-{number}", rng.choice(life.demands))
    return world


def calm_down(world: World) -> None:
    """End all trouble: clocks right, everybody at work, plain policies, destinations open."""
    world.planner_skew_ms = 0
    seconds = dict(world.setup.destinations)
    for _, name, capacity, length in world.to_make:
        world.make(name, capacity, length)
    world.to_make.clear()
    for name, length in seconds.items():
        known = world.destinations.get(name)
        if known is None or known.removed:
            world.make(name, 10, length)
        world.destinations[name] = replace(
            world.destinations[name],
            capacity=world.destinations[name].capacity or 10,
            policy=replace(world.setup.policy, lend_points=0),
        )
    for worker in world.workers:
        worker.paused = False
        worker.skew_ms = 0
        worker.demand = 2_000_000_000 if worker.alive else 0


def run(seed: int, *, laxity: str = "", life: Life = ANY, calm_ticks: int = CALM_TICKS) -> World:
    """Let trouble pass over a world, then peace.

    Raises:
        OverrunError: where more was spent than may be.
    """
    rng = random.Random(seed * 7919 + 1)
    world = drawn_world(rng, life, laxity=laxity)
    chances = drawn_chances(rng, life)
    for _ in range(WARM_TICKS if life.warm else 0):
        tick(world, CALM)
    for _ in range(TROUBLED_TICKS):
        tick(world, chances)
    calm_down(world)
    for _ in range(calm_ticks):
        tick(world, CALM)
    return world
