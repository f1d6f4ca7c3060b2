"""Planner and engine together, without a server, under losses, delays, pauses, kills and changes.

After each step no aligned window has seen more than its bound; in the end nobody with demand
starves, the capacity is used, and no hold is left.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.support.adversary import (
    ANY,
    CALM,
    LIVES,
    NAME,
    Life,
    drawn_chances,
    drawn_world,
    tick,
)
from tests.support.world import WINDOW_TICKS, World

WARM_TICKS = 60
TROUBLED_TICKS = 140
CALM_TICKS = 240
SEEDS_A_LIFE = 12


def run(
    seed: int,
    *,
    capacity_changes: bool = True,
    skewed: bool | None = None,
    laxity: str = "",
    life: Life = ANY,
) -> World:
    """Let trouble pass over a world, then peace.

    Raises:
        OverrunError: where more was spent than may be.
    """
    rng = random.Random(seed * 7919 + 1)
    if skewed is not None:
        life = replace(life, skew_max_ms=(200 * skewed,))
    world = drawn_world(rng, life, laxity=laxity)
    chances = drawn_chances(rng, life)
    if not capacity_changes:
        chances = replace(chances, capacity=0)
    for _ in range(WARM_TICKS if life.warm else 0):
        tick(world, CALM)
    for _ in range(TROUBLED_TICKS):
        tick(world, chances)
    for name, capacity in world.capacities.items():
        world.capacities[name] = capacity or 10
    for worker in world.workers:
        worker.paused = False
        worker.demand = 2000 if worker.alive else 0
    for _ in range(CALM_TICKS):
        tick(world, CALM)
    return world


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
def test_never_over_and_nobody_starves(life: Life) -> None:
    for seed in range(SEEDS_A_LIFE):
        check_calm(run(seed, life=life), seed)


def check_calm(world: World, seed: int) -> None:
    """Check what must hold after the calm: liveness, use, and no leak."""
    alive = [worker for worker in world.workers if worker.alive]
    if not alive:
        return
    newest = world.published[-1]
    for line in newest.destinations:
        name = line.terms.destination
        capacity = world.capacities[name]
        last = world.window(name) - 1
        assert line.terms.capacity == capacity, f"seed {seed}: the capacity set is not in force"
        assert line.holds == (), f"seed {seed}: a hold leaked"
        patience = -(-len(alive) // capacity) + 3 * world.setup.round_windows
        for worker in alive if name == NAME else []:
            served = sum(worker.spent[name, window] for window in range(last - patience, last + 1))
            assert served > 0, f"seed {seed}: {worker.engine.host} starved of {name}"
        spent = world.spent[name, last]
        assert spent <= capacity, f"seed {seed}: {name} over"
        if capacity >= 20:
            assert spent >= capacity * 9 // 10, f"seed {seed}: {name} left lying"


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (run(5) for _ in range(2))
    assert first.spent == second.spent
    assert [doc.epoch for doc in first.published] == [doc.epoch for doc in second.published]


def test_a_window_has_ten_ticks() -> None:
    world = run(1)
    assert WINDOW_TICKS * (world.window(NAME) - 180_000_000) <= world.tick_number
