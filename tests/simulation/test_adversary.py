"""Planner and engine together, without a server, under losses, delays, pauses, kills and changes.

After each step no aligned window has seen more than its capacity; in the end nobody with demand
starves, the capacity is used, and no hold is left.
"""

from __future__ import annotations

import random

import pytest

from tests.support.adversary import NAME, TICKS, WINDOW_MS, Chances, World

TROUBLED_TICKS = 120
CALM_TICKS = 160
SEEDS_A_TEST = 12


def run(seed: int, *, capacity_changes: bool, skewed: bool) -> World:
    rng = random.Random(seed * 7919 + 1)
    world = World(seed, members=rng.choice([2, 3, 4, 6]), skewed=skewed)
    chances = Chances.drawn(rng, capacity_changes=capacity_changes)
    for _ in range(TROUBLED_TICKS):
        world.tick(chances)
    if world.capacity == 0:
        world.capacity = 10
    for worker in world.workers:
        worker.paused = False
        worker.demand = 2000 if worker.alive else 0
    for _ in range(CALM_TICKS):
        world.tick(Chances.calm())
    return world


@pytest.mark.parametrize("block", range(10))
@pytest.mark.parametrize("skewed", [False, True], ids=["one clock", "skewed clocks"])
def test_never_over_and_nobody_starves(block: int, *, skewed: bool) -> None:
    for seed in range(block * SEEDS_A_TEST, (block + 1) * SEEDS_A_TEST):
        world = run(seed, capacity_changes=False, skewed=skewed)
        check_calm(world, seed)


@pytest.mark.parametrize("block", range(10))
def test_a_changed_capacity_is_never_overrun(block: int) -> None:
    for seed in range(block * SEEDS_A_TEST, (block + 1) * SEEDS_A_TEST):
        check_calm(run(seed, capacity_changes=True, skewed=False), seed)


def check_calm(world: World, seed: int) -> None:
    alive = [worker for worker in world.workers if worker.alive]
    if not alive:
        return
    last = world.window - 1
    capacity = world.capacity
    newest = world.published[-1].destinations[0]
    assert newest.holds == (), f"seed {seed}: a hold leaked"
    patience = -(-len(alive) // capacity) + 3
    for worker in alive:
        served = sum(worker.spent[window] for window in range(last - patience, last + 1))
        assert served > 0, f"seed {seed}: {worker.engine.host} starved"
    assert world.spent[last] <= capacity
    if capacity >= 20:
        assert world.spent[last] >= capacity * 9 // 10, f"seed {seed}: capacity left lying"


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (run(5, capacity_changes=True, skewed=True) for _ in range(2))
    assert first.spent == second.spent
    assert [doc.epoch for doc in first.published] == [doc.epoch for doc in second.published]


def test_the_world_knows_its_words() -> None:
    world = World(1, members=1, skewed=False)
    assert world.workers[0].engine.destinations == (NAME,)
    assert WINDOW_MS == TICKS * 1000
