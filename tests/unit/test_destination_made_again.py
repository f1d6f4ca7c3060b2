"""A destination made again with windows of another length, while documents still name the old."""

from __future__ import annotations

import random

import pytest

from balancer.core.model import Policy, RoundKind
from tests.support.adversary import CALM, tick
from tests.support.world import Setup, World
from worker_sdk.wire.distribution import Pacing, Terms

NAME = "orders-db"


def made_again(before_seconds: int, after_seconds: int, *, learns: bool) -> World:
    """Remove a destination, let that be published, lose the database, and make it again."""
    policy = Policy(pacing=Pacing.WINDOW, guard_ms=0, valid_for_seconds=10)
    setup = Setup(((NAME, before_seconds),), policy, 1, 0, 0)
    world = World(setup, {NAME: 100}, random.Random(1))
    world.join("host", 2000)
    for _ in range(60):
        tick(world, CALM)
    world.remove(NAME)
    while any(terms.capacity for terms in terms_in_files(world)):
        tick(world, CALM)
    world.lose_postgres(learns=learns)
    del world.destinations[NAME]
    world.make(NAME, 100, after_seconds)
    return world


def terms_in_files(world: World) -> list[Terms]:
    """Return the terms of all documents that may still give permits."""
    (shard,) = world.shards
    return [
        line.terms
        for document in shard.files.values()
        if document.valid_until_ms > world.now_ms
        for line in document.destinations
    ]


@pytest.mark.parametrize("learns", [True, False], ids=["learning", "not learning"])
@pytest.mark.parametrize("kind", RoundKind)
@pytest.mark.parametrize(("before", "after"), [(30, 10), (10, 30)])
def test_the_old_length_is_not_mixed_with_the_new(
    before: int, after: int, kind: RoundKind, learns: bool
) -> None:
    world = made_again(before, after, learns=learns)
    (shard,) = world.shards
    count = len(shard.published)
    world.plan(shard, kind)
    world.apply_puts()
    assert shard.refused == []
    for document in shard.published[count:]:
        for line in document.destinations:
            present = world.now_ms // (after * 1000)
            assert line.terms.window_seconds == after
            assert line.terms.from_window <= present + 1
    for _ in range(80):
        tick(world, CALM)
    (line,) = shard.published[-1].destinations
    assert (line.terms.window_seconds, line.terms.capacity) == (after, 100)
    assert [len(entry.intervals) for entry in line.entries] == [1]


@pytest.mark.parametrize("seconds", [(10, 30), (30, 10), (10, 10)])
def test_of_more_members_than_permits_nobody_is_passed_over_for_what_the_old_length_gave(
    seconds: tuple[int, int],
) -> None:
    before, after = seconds
    policy = Policy(pacing=Pacing.WINDOW, guard_ms=0, valid_for_seconds=10)
    world = World(Setup(((NAME, before),), policy, 1, 0, 0), {NAME: 2}, random.Random(1))
    for number in range(3):
        world.join(f"host-{number}", 2000)
    for _ in range(60):
        tick(world, CALM)
    world.remove(NAME)
    while any(terms.capacity for terms in terms_in_files(world)):
        tick(world, CALM)
    del world.destinations[NAME]
    world.make(NAME, 2, after)
    for _ in range(60 * after // 10):
        tick(world, CALM)
    last = world.window(NAME) - 1
    for worker in world.workers:
        assert sum(worker.spent[NAME, window] for window in range(last - 5, last + 1)) > 0
