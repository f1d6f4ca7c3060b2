"""The stateful simulation can tell right from wrong: each rule left out makes it fail.

The mutations, and the lives in which they show, are `tests.support.mutations` (the worker's rules)
and `tests.support.mutations_planner`. Lives are drawn from seeds until one fails; most need a
handful.
"""

from __future__ import annotations

import random

import pytest

from balancer.core.model import Policy
from tests.support.adversary import CALM, tick
from tests.support.aftermath import check_calm
from tests.support.lives import NAME, Life, run
from tests.support.mutations import Mutation
from tests.support.mutations_planner import MUTATIONS, the_silent_keep_safe_points
from tests.support.world import WINDOW_SECONDS, OverrunError, Setup, World
from worker_sdk.wire.distribution import Pacing

LIVES = {life.name: life for mutation in MUTATIONS for life in mutation.lives}
RULES = range(1, 13)


def first_failure(mutation: Mutation) -> AssertionError | None:
    """Return what goes wrong first in some life; None if nothing does."""
    for life in mutation.lives:
        for seed in mutation.seeds:
            try:
                if mutation.shows == "over" and not mutation.is_rare:
                    run(seed, life=life, laxity=mutation.laxity, calm_ticks=0)
                else:
                    check_calm(run(seed, life=life, laxity=mutation.laxity), seed, wakes=True)
            except AssertionError as failure:
                return failure
    return None


COMMON = [mutation for mutation in MUTATIONS if not mutation.is_rare]
RARE = [mutation for mutation in MUTATIONS if mutation.is_rare]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutation", RARE, ids=lambda mutation: mutation.name)
def test_a_rule_that_few_lives_need_is_found_in_the_long_run(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_a_rule_left_out_is_found(mutation, monkeypatch)


@pytest.mark.parametrize("mutation", COMMON, ids=lambda mutation: mutation.name)
def test_a_rule_left_out_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutation.apply is not None:
        mutation.apply(monkeypatch)
    failure = first_failure(mutation)
    assert failure is not None
    assert isinstance(failure, OverrunError) == (mutation.shows == "over"), failure


@pytest.mark.parametrize("life", LIVES.values(), ids=lambda life: life.name)
def test_with_all_rules_nothing_goes_wrong_in_these_lives(life: Life) -> None:
    for seed in range(3):
        check_calm(run(seed, life=life), seed, wakes=True)


def seconds_until_a_killed_members_points_are_used() -> int:
    """Kill one of two without a goodbye; count until the other has the whole capacity."""
    policy = Policy(
        newcomer_reserve_points=0, guard_ms=0, pacing=Pacing.WINDOW, valid_for_seconds=40
    )
    setup = Setup(((NAME, WINDOW_SECONDS),), policy, 1, 0, 0)
    world = World(setup, {NAME: 100}, random.Random(1))
    killed, other = world.join("one", 2000), world.join("other", 2000)
    for _ in range(60):
        tick(world, CALM)
    killed.alive = False
    for seconds in range(300):
        tick(world, CALM)
        if other.spent[NAME, world.window(NAME)] == 100:
            return seconds
    raise AssertionError("never")


def test_safe_points_of_the_silent_are_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 9: kept until 1.4 rounds of silence and a validity are over, not a TTL longer."""
    kept = seconds_until_a_killed_members_points_are_used()
    assert kept <= 14 + 40 + 3 * WINDOW_SECONDS
    the_silent_keep_safe_points(monkeypatch)
    assert seconds_until_a_killed_members_points_are_used() > kept


def test_every_rule_is_left_out_once() -> None:
    left_out = {int(rule) for mutation in MUTATIONS for rule in mutation.rule.split(", ")}
    assert left_out >= set(RULES)
