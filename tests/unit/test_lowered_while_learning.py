"""A capacity that is lowered, and a destination that is removed, while its shard learns."""

from __future__ import annotations

import random

import pytest

from balancer.core.model import Policy
from tests.support.adversary import CALM, tick
from tests.support.world import WINDOW_SECONDS, Setup, World
from worker_sdk.wire.distribution import DestinationShares, Pacing
from worker_sdk.wire.shares import share_permits

NAME = "orders-db"
CAPACITY = 1000


def learning_world(*, demands: tuple[int, ...] = (100, 300, 2000)) -> World:
    """Return a settled fleet, whose reports are missing from now on."""
    policy = Policy(pacing=Pacing.WINDOW, guard_ms=0, valid_for_seconds=30)
    world = World(
        Setup(((NAME, WINDOW_SECONDS),), policy, 1, 0, 0), {NAME: CAPACITY}, random.Random(1)
    )
    for number, demand in enumerate(demands):
        world.join(f"host-{number}", demand)
    for _ in range(100):
        tick(world, CALM)
    return world


def pass_while_learning(world: World, seconds: int) -> None:
    """Let time pass in which reports are missing; no window may pass its bound."""
    (shard,) = world.shards
    for _ in range(seconds):
        shard.learn(world.planner_now_ms)
        tick(world, CALM)
    assert shard.refused == []


def newest_line(world: World) -> DestinationShares:
    (shard,) = world.shards
    (line,) = shard.published[-1].destinations
    return line


def shares(line: DestinationShares) -> dict[str, int]:
    return {entry.host: sum(b - a for a, b in entry.intervals) for entry in line.entries}


def given(line: DestinationShares) -> int:
    terms = line.terms
    return sum(
        share_permits(terms.capacity, entry.intervals, terms.from_window) for entry in line.entries
    )


@pytest.mark.parametrize("capacity", [990, 500, 100, 7, 1])
def test_a_lowered_capacity_holds_from_the_next_regular_document_on(capacity: int) -> None:
    world = learning_world()
    before = newest_line(world)
    world.set_capacity(NAME, capacity)
    pass_while_learning(world, 3 * WINDOW_SECONDS)
    line = newest_line(world)
    assert line.terms.capacity == capacity
    assert given(line) <= capacity
    had = shares(before)
    for host, points in shares(line).items():
        assert points * capacity <= had[host] * CAPACITY


def test_shares_stay_where_they_are_if_what_is_promised_fits() -> None:
    world = learning_world(demands=(0, 0, 2000))
    before = newest_line(world)
    world.set_capacity(NAME, 990)
    pass_while_learning(world, 3 * WINDOW_SECONDS)
    assert shares(newest_line(world)) == shares(before)


def test_after_the_promises_nobody_spends_more_than_the_lowered_capacity() -> None:
    world = learning_world()
    world.set_capacity(NAME, 100)
    pass_while_learning(world, 12 * WINDOW_SECONDS)
    window = world.window(NAME) - 1
    assert 0 < sum(worker.spent[NAME, window] for worker in world.workers) <= 100


def test_a_raised_capacity_waits_until_reports_are_there() -> None:
    world = learning_world()
    world.set_capacity(NAME, 2 * CAPACITY)
    pass_while_learning(world, 5 * WINDOW_SECONDS)
    assert newest_line(world).terms.capacity == CAPACITY
    for _ in range(100):
        tick(world, CALM)
    assert newest_line(world).terms.capacity == 2 * CAPACITY


def test_a_removed_destination_ends() -> None:
    world = learning_world()
    world.remove(NAME)
    pass_while_learning(world, 11 * WINDOW_SECONDS)
    spent = [worker.spent.copy() for worker in world.workers]
    pass_while_learning(world, 2 * WINDOW_SECONDS)
    assert [worker.spent for worker in world.workers] == spent
    assert NAME not in world.destinations
