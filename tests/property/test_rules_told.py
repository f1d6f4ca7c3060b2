"""The rule that is told of a share: for any claims whatsoever, what really bounds it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from balancer.app.rule_texts import RULES
from balancer.core.allocation.claims import Claims
from balancer.core.allocation.max_min import max_min
from balancer.core.columns import ints, points_of
from tests.property.test_allocation import STRATEGIES, few, many_claims, simple
from worker_sdk.wire.shares import POINTS


@pytest.mark.parametrize("name", STRATEGIES)
@few
@given(drawn=many_claims())
def test_each_has_a_rule_that_people_are_told(name: str, drawn: tuple[Claims, int]) -> None:
    claims, budget = drawn
    division = STRATEGIES[name](claims, budget)
    assert len(division.rules) == len(claims) == len(division.points)
    assert set(division.rules) <= set(RULES)
    if name != "equal":
        assert [rule == "silent" for rule in division.rules] == claims.silent.tolist()


@pytest.mark.parametrize("name", STRATEGIES)
@few
@given(drawn=many_claims())
def test_the_rule_told_is_what_bounds_the_share(name: str, drawn: tuple[Claims, int]) -> None:
    claims, budget = drawn
    division = STRATEGIES[name](claims, budget)
    level = division.level
    for row, rule in enumerate(division.rules):
        share, lower = int(division.points[row]), int(claims.lower[row])
        wants = min(int(claims.wanted[row]), int(claims.most[row]))
        weight = int(claims.weight[row])
        above = level is not None and share > (level + 1) * weight
        match rule:
            case "level":
                assert not above
            case "even" | "surplus" | "used":
                assert not above or (name == "surplus" and level is None)
            case "asked" | "foreseen":
                assert not above
                assert share == wants if level is not None else share >= wants
            case "reserved" | "minimum":
                assert share >= lower > 0
                assert (lower == claims.reserved[row]) == (rule == "reserved")
                if name == "max_min":
                    assert lower > min(wants, claims.maximum[row]) or (
                        level is not None and lower > level * weight
                    )
            case "maximum":
                assert share == claims.maximum[row]
                assert name != "max_min" or wants >= share
        if rule != "reserved" and not claims.silent[row]:
            assert share <= claims.maximum[row]


def test_what_is_reserved_above_the_level_is_told_as_reserved_and_not_as_the_level() -> None:
    claims = simple([1000, 1000, 40], 500)
    reserved = points_of(ints([445, 0, 0]), 500)
    division = max_min(replace(claims, reserved=reserved, lower=reserved), POINTS * 99 // 100)
    assert division.rules == ["reserved", "level", "level"]
