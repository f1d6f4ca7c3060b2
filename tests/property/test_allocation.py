"""How points are divided: worked values of others, and what holds for any claims whatsoever.

The worked values are those of Doorman (youtube/doorman at e2b69e17, Apache-2.0, its files
``doc/algorithms.md`` and ``go/server/doorman/algorithm_test.go``), where its fair share equals true
max-min, and of textbooks; where Doorman's two rounds err, the max-min values stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.core.allocation.claims import Claims, Division, waterfill
from balancer.core.allocation.equal import equal
from balancer.core.allocation.max_min import max_min
from balancer.core.allocation.surplus import surplus
from balancer.core.columns import LARGE, SMALL, Ints, ints, kind_for, points_of, total
from worker_sdk.wire.shares import POINTS

STRATEGIES: dict[str, Callable[[Claims, int], Division]] = {
    "max_min": max_min,
    "equal": equal,
    "surplus": surplus,
}
ROUNDS = 30
few = settings(max_examples=40)

# ---------------------------------------------------------------- worked values


@pytest.mark.parametrize(
    ("capacity", "wants", "weights", "expected"),
    [
        (120, [1000, 50, 10], [1, 1, 1], [60, 50, 10]),
        (120, [1000, 60, 10], [1, 1, 1], [55, 55, 10]),
        (120, [1000, 500, 200], [6, 4, 2], [60, 40, 20]),
        (1000, [2000, 500, 700], [10, 10, 30], [200, 200, 600]),
        (120, [65, 45, 20], [3, 2, 1], [60, 40, 20]),
        (100, [20, 26, 40, 50], [1] * 4, [20, 26, 27, 27]),  # 10 over 2, 2.6, 4, 5 in tenths
        (100, [10, 22, 30, 200], [1] * 4, [10, 22, 30, 38]),
        (100, [5, 22, 23, 29, 33, 400], [1] * 6, [5, 19, 19, 19, 19, 19]),
        (1000, [1, 1, 1, 400, 700], [1] * 5, [1, 1, 1, 400, 597]),
        (21, [9, 9, 9], [1] * 3, [7, 7, 7]),  # 7 over 3, 3, 3 in thirds
        (60, [0, 0, 0], [1] * 3, [0, 0, 0]),
        (0, [5, 5], [1] * 2, [0, 0]),
        (100, [100], [1], [100]),
        (100, [1, 21, 33, 1, 200], [1] * 5, [1, 21, 33, 1, 44]),  # two rounds give 38.5 for 33
    ],
)
def test_max_min_gives_the_worked_values(
    capacity: int, wants: list[int], weights: list[int], expected: list[int]
) -> None:
    for kind in (SMALL, LARGE):
        none, upper = ints([0] * len(wants), kind), ints(wants, kind)
        amounts, level = waterfill(none, upper, capacity, ints(weights, kind))
        assert amounts.tolist() == expected
        assert (level is None) == (sum(wants) <= capacity)


@pytest.mark.parametrize(
    ("budget", "count", "expected"),
    [
        (100, 3, [34, 33, 33]),
        (100, 7, [15, 15, 14, 14, 14, 14, 14]),
        (10, 3, [4, 3, 3]),
        (3, 5, [1, 1, 1, 0, 0]),
        (100, 280, [1] * 100 + [0] * 180),
        (0, 4, [0] * 4),
    ],
)
def test_what_no_level_divides_goes_to_the_first(
    budget: int, count: int, expected: list[int]
) -> None:
    amounts, _ = waterfill(ints([0] * count), ints([1000] * count), budget)
    assert amounts.tolist() == expected


def test_a_member_that_wants_little_is_served_in_full_through_the_strategy() -> None:
    capacity = 1000
    division = max_min(simple([1, 1, 1, 400, 700], capacity), POINTS)
    permits = [capacity * points // POINTS for points in division.points.tolist()]
    assert permits == [1, 1, 1, 400, 597]
    assert division.rules == ["asked", "asked", "asked", "asked", "level"]


# ---------------------------------------------------------------- any claims


def simple(wants: Sequence[int], capacity: int, **columns: Sequence[int]) -> Claims:
    """Claims of members that want permits, and of which nothing else is known."""
    count = len(wants)
    none = ints([0] * count)
    values: dict[str, Any] = {
        field.name: none
        for field in fields(Claims)
        if field.name not in ("is_foreseen", "saturated", "silent")
    }
    flags = dict.fromkeys(("is_foreseen", "saturated", "silent"), np.zeros(count, dtype=np.bool_))
    claims = Claims(**(values | flags))
    claims = replace(
        claims,
        wanted=points_of(ints(wants), capacity),
        maximum=ints([POINTS] * count),
        most=ints([POINTS] * count),
        weight=ints([1] * count),
    )
    return replace(claims, **{name: ints(column) for name, column in columns.items()})


@st.composite
def many_claims(draw: st.DrawFn) -> tuple[Claims, int]:
    """Draw claims as the planner makes them, and a budget."""
    count = draw(st.integers(1, 8))
    edges = st.sampled_from([0, 1, 2, POINTS // 3, POINTS - 1, POINTS])
    points = edges | st.integers(0, POINTS)

    def column(of: st.SearchStrategy[int]) -> Ints:
        return ints(draw(st.lists(of, min_size=count, max_size=count)))

    def flags() -> Any:
        return np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)))

    budget = draw(edges | st.integers(0, POINTS))
    reserved = column(st.sampled_from([0, 0, 1]) | st.integers(0, POINTS // 6))
    silent = flags()
    minimum = draw(st.sampled_from([0, 0, POINTS // 100, POINTS // 2, POINTS]))
    maximum = max(minimum, draw(st.sampled_from([POINTS, POINTS, POINTS // 10, 1])))
    lower, _ = waterfill(reserved, np.where(silent, 0, minimum), budget)
    wanted = column(points)
    given: dict[str, Any] = {
        "reserved": reserved,
        "lower": lower,
        "maximum": ints([maximum] * count),
        "most": np.maximum(reserved, maximum),
        "weight": column(st.sampled_from([1, 1, 2, 1000])),
        "wanted": wanted,
        "with_head_room": np.minimum(wanted + wanted // 10, POINTS),
        "is_foreseen": flags(),
        "saturated": flags(),
        "silent": silent,
    }
    others = [known.name for known in fields(Claims) if known.name not in given]
    claims = Claims(**given, **{name: column(points) for name in others})
    return claims, budget


def permuted(claims: Claims, order: Sequence[int]) -> Claims:
    rows = np.array(order)
    return Claims(*(getattr(claims, field.name)[rows] for field in fields(Claims)))


@pytest.mark.parametrize("name", STRATEGIES)
@few
@given(drawn=many_claims())
def test_the_sum_is_exact_and_every_bound_is_kept(name: str, drawn: tuple[Claims, int]) -> None:
    claims, budget = drawn
    points = STRATEGIES[name](claims, budget).points
    assert np.issubdtype(points.dtype, np.integer)
    assert (points >= claims.lower).all()
    assert (points <= np.maximum(claims.lower, claims.most)).all()
    room = np.where(claims.silent, claims.lower, np.maximum(claims.lower, claims.most))
    if name == "equal":  # silence does not part an even split
        room = np.maximum(claims.lower, claims.most)
    assert total(points) == max(total(claims.lower), min(budget, total(room)))


@pytest.mark.parametrize("name", ["max_min", "surplus"])
@few
@given(drawn=many_claims())
def test_a_silent_member_gets_what_must_be_and_no_more(
    name: str, drawn: tuple[Claims, int]
) -> None:
    claims, budget = drawn
    points = STRATEGIES[name](claims, budget).points
    assert (points[claims.silent] == claims.lower[claims.silent]).all()


@few
@given(drawn=many_claims())
def test_no_grant_is_above_the_want_while_somebody_is_limited(drawn: tuple[Claims, int]) -> None:
    claims, budget = drawn
    division = max_min(claims, budget)
    wants = np.where(claims.silent, 0, np.minimum(claims.wanted, claims.most))
    if division.level is None:
        assert (division.points >= wants).all()
    else:
        assert (division.points <= np.maximum(claims.lower, wants)).all()
        assert (division.points < wants).any() or total(claims.lower) > budget


@pytest.mark.parametrize("name", ["max_min", "equal"])
@few
@given(drawn=many_claims())
def test_levels_by_weight_are_equal_among_the_limited(name: str, drawn: tuple[Claims, int]) -> None:
    claims, budget = drawn
    division = STRATEGIES[name](claims, budget)
    wants = claims.most if name == "equal" else np.minimum(claims.wanted, claims.most)
    if name == "max_min":
        wants = np.where(claims.silent, 0, wants)
    limited = (division.points < wants) & (division.points > claims.lower)
    if division.level is None:
        assert name == "equal" or not limited.any()
        return
    points, weights = division.points[limited], claims.weight[limited]
    assert (points >= division.level * weights).all()
    assert (points <= (division.level + 1) * weights).all()
    below = division.points < np.minimum(wants, division.level * claims.weight)
    assert not below.any() or total(claims.lower) >= budget


@pytest.mark.parametrize("name", STRATEGIES)
@few
@given(drawn=many_claims(), shuffle=st.randoms(use_true_random=False))
def test_the_order_decides_no_more_than_the_last_points(
    name: str, drawn: tuple[Claims, int], shuffle: Any
) -> None:
    claims, budget = drawn
    order = list(range(len(claims)))
    shuffle.shuffle(order)
    one = STRATEGIES[name](claims, budget).points[np.array(order)]
    other = STRATEGIES[name](permuted(claims, order), budget).points
    # The last points of a level fall to the first; a step of the spare each may shift by as many.
    steps = 6 if name == "max_min" else 2
    assert (np.abs(one - other) <= steps * total(claims.weight)).all()


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 1000)),
        min_size=1,
        max_size=20,
    ),
    budget=st.integers(0, 10**7),
    shuffle=st.randoms(use_true_random=False),
)
def test_filling_is_exact_bounded_and_the_same_in_any_order_and_number(
    rows: list[tuple[int, int, int]], budget: int, shuffle: Any
) -> None:
    lower, upper, weight = _columns(rows)
    amounts, level = waterfill(lower, upper, budget, weight)
    tops = np.maximum(lower, upper)
    assert total(amounts) == max(total(lower), min(budget, total(tops)))
    assert ((lower <= amounts) & (amounts <= tops)).all()
    assert (level is None) == (total(tops) <= budget)
    large, same = waterfill(lower.astype(LARGE), upper.astype(LARGE), budget, weight.astype(LARGE))
    assert (large.tolist(), same) == (amounts.tolist(), level)
    places = list(range(len(rows)))
    shuffle.shuffle(places)
    lower, upper, weight = _columns([rows[place] for place in places])
    again, _ = waterfill(lower, upper, budget, weight)
    for place, amount in zip(places, again.tolist(), strict=True):
        assert abs(amount - int(amounts[place])) <= rows[place][2]


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 40), st.integers(1, 4)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 200),
)
def test_the_level_is_the_largest_at_which_the_sum_fits(
    claims: list[tuple[int, int, int]], budget: int
) -> None:
    lower, upper, weight = _columns(claims)
    amounts, level = waterfill(lower, upper, budget, weight)

    def total_at(height: int) -> int:
        return sum(min(max(height * steps, low), max(low, top)) for low, top, steps in claims)

    if level is None:
        assert total_at(1000) <= budget
        assert amounts.sum() == total_at(1000)
    elif lower.sum() >= budget:
        assert amounts.tolist() == lower.tolist()
    else:
        assert total_at(level) <= budget < total_at(level + 1)
        assert amounts.sum() == budget


def _columns(rows: Sequence[tuple[int, int, int]]) -> tuple[Ints, Ints, Ints]:
    lower, upper, weight = (ints(column) for column in zip(*rows, strict=True))
    return lower, upper, weight


# ---------------------------------------------------------------- capacities


CAPACITIES = [0, 1, 3, 7, 100_000, 10**9, 4_611_686_017, 4_611_686_018, 10**12]


@given(
    permits=st.lists(st.integers(0, 10**12), min_size=1, max_size=8),
    capacity=st.sampled_from(CAPACITIES) | st.integers(1, 10**12),
)
def test_points_of_permits_are_the_fewest_that_suffice_at_any_capacity(
    permits: list[int], capacity: int
) -> None:
    points = points_of(ints(permits), capacity).tolist()
    for wanted, found in zip(permits, points, strict=True):
        assert type(found) is int
        assert 0 <= found <= POINTS
        if capacity == 0:
            assert found == 0
            continue
        within = min(wanted, capacity)
        assert capacity * found // POINTS >= within
        assert found == 0 or capacity * (found - 1) < within * POINTS


def test_numbers_of_64_bits_end_where_their_products_would() -> None:
    assert kind_for(2**62 - 1) == SMALL
    assert kind_for(2**62) == LARGE
    assert kind_for((10**9 + 1) * POINTS) == SMALL
    assert kind_for((10**12 + 1) * POINTS) == LARGE


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("name", STRATEGIES)
def test_all_points_are_divided_at_any_capacity(name: str, capacity: int) -> None:
    wants = [0, 1, capacity // 2, capacity, 10**12]
    division = STRATEGIES[name](simple(wants, capacity), POINTS)
    assert total(division.points) == POINTS
    assert all(type(points) is int for points in division.points.tolist())


# ---------------------------------------------------------------- late-comers


@few
@given(
    count=st.integers(1, 40),
    weights=st.lists(st.sampled_from([1, 2, 5]), min_size=41, max_size=41),
    budget=st.sampled_from([POINTS, POINTS - POINTS // 100, 10**6]),
)
def test_surplus_starves_no_late_comer_among_the_saturated(
    count: int, weights: list[int], budget: int
) -> None:
    claims = simple([0] * (count + 1), 1, weight=weights[: count + 1])
    claims = replace(claims, saturated=np.ones(count + 1, dtype=np.bool_))
    shares = ints([budget // count] * count + [0])
    for _ in range(ROUNDS):
        shares = surplus(replace(claims, share_before=shares, used=shares), budget).points
    fair = budget * weights[count] // sum(weights[: count + 1])
    assert shares[count] >= 0.95 * fair


def test_surplus_gives_what_one_leaves_to_those_at_their_limit() -> None:
    claims = simple([0] * 3, 1, share_before=[POINTS // 3] * 3, used=[POINTS // 30] * 2 + [0])
    claims = replace(
        claims,
        saturated=np.array([False, False, True]),
        used=ints([POINTS // 30, POINTS // 30, POINTS // 3]),
    )
    points = surplus(claims, POINTS).points.tolist()
    assert points[0] == points[1] == POINTS // 30 + POINTS // 300
    assert sum(points) == POINTS
