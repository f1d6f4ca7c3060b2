"""The stateful simulation can tell right from wrong: each rule left out makes it fail.

The mutations, and the lives in which they show, are `tests.support.mutations` (the worker's rules)
and `tests.support.mutations_planner`. Lives are drawn from seeds until one fails; most need a
handful.
"""

from __future__ import annotations

import pytest

from tests.support.aftermath import check_calm
from tests.support.lives import Life, run
from tests.support.mutations import Mutation
from tests.support.mutations_planner import MUTATIONS
from tests.support.world import OverrunError

LIVES = {life.name: life for mutation in MUTATIONS for life in mutation.lives}
RULES = range(1, 13)


def first_failure(mutation: Mutation) -> AssertionError | None:
    """Return what goes wrong first in some life; None if nothing does."""
    for life in mutation.lives:
        for seed in mutation.seeds:
            try:
                world = run(seed, life=life, laxity=mutation.laxity)
                check_calm(world, seed, wakes=mutation.shows != "over")
            except AssertionError as failure:
                return failure
    return None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
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


def test_every_rule_is_left_out_once() -> None:
    left_out = {int(rule) for mutation in MUTATIONS for rule in mutation.rule.split(", ")}
    assert left_out >= set(RULES)
