"""What members' past foretells, and that it is the same however the past was carried along."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.core.columns import Ints, ints
from balancer.core.foresight import HISTORY_ROUNDS, LAG_MAX, PROVEN_ROUNDS, History
from balancer.core.memory import Memory, Trails

PERIOD = 7
DECAY = 900
few = settings(max_examples=20)

Demand = Callable[[int, random.Random], int]


def history_of(demands: Sequence[Demand], rounds: int, seed: int = 1) -> History:
    chance = random.Random(seed)
    history = History()
    for number in range(rounds):
        history = history.noted(ints([demand(number, chance) for demand in demands]))
    return history


def timer(number: int, chance: random.Random) -> int:
    return 1000 + chance.randint(-20, 20) if number % PERIOD == 0 else chance.randint(0, 20)


def constant(number: int, chance: random.Random) -> int:
    del number, chance
    return 500


def noise(number: int, chance: random.Random) -> int:
    del number
    return chance.randint(0, 1000)


# ---------------------------------------------------------------- what is foreseen


@pytest.mark.parametrize("seed", range(5))
def test_a_timer_among_noise_is_foreseen_and_noise_and_a_constant_are_not(seed: int) -> None:
    others = [noise] * 20
    first = PROVEN_ROUNDS + 2 * PERIOD
    for rounds in range(first, first + 2 * PERIOD):
        history = history_of([constant, timer, *others], rounds, seed)
        wanted, has = history.foreseen(2 + len(others))
        assert has.tolist() == [False, True, *[False] * len(others)]
        is_due = rounds % PERIOD == 0
        assert (980 <= wanted[1] <= 1020) if is_due else (0 <= wanted[1] <= 20)


def test_nothing_is_foreseen_before_a_lag_is_proven() -> None:
    for rounds in (0, 1, PROVEN_ROUNDS, PROVEN_ROUNDS + 1):
        wanted, has = history_of([timer], rounds).foreseen(1)
        assert (wanted.tolist(), has.tolist()) == ([0], [False])


def test_a_pattern_that_breaks_is_forgotten_within_the_proven_rounds() -> None:
    history = history_of([timer], 100)
    assert history.foreseen(1)[1][0]
    for _ in range(PROVEN_ROUNDS):
        history = history.noted(ints([500]))
    assert not history.foreseen(1)[1][0]


def test_what_came_back_three_times_is_expected_and_twice_repeated() -> None:
    history = History()
    for demand in (9, 0, 0, 7, 0, 0, 8, 0, 0):  # a lag of three: 9, 7 and 8
        history = history.noted(ints([demand]))
    thrice, twice = history.recurring(1)
    assert (thrice.tolist(), twice.tolist()) == ([7], [7])
    thrice, twice = history.noted(ints([0])).recurring(1)
    assert (thrice.tolist(), twice.tolist()) == ([0], [0])


# ---------------------------------------------------------------- the same past, carried otherwise


def rebuilt(history: History, count: int) -> tuple[History, list[int]]:
    numbers, rows = history.rows(count)
    return History.of_rows(rows), numbers


def spread(values: Ints, numbers: Sequence[int], count: int) -> list[int]:
    found = [0] * count
    for number, value in zip(numbers, values.tolist(), strict=True):
        found[number] = int(value)
    return found


def assert_same_as_rebuilt(history: History, count: int) -> None:
    again, numbers = rebuilt(history, count)
    if not numbers:  # of nobody's rows it cannot be told how long they are
        assert not any(values.any() for values in (*history.recurring(count), history.usual(count)))
        return
    assert len(again.columns) == len(history.columns) <= HISTORY_ROUNDS
    assert [error.tolist() for error in history.errors] == [
        error.tolist() for error in again.errors
    ]
    for mine, other in (
        *zip(history.foreseen(count), again.foreseen(len(numbers)), strict=True),
        *zip(history.recurring(count), again.recurring(len(numbers)), strict=True),
    ):
        assert len(mine) == count
        assert np.issubdtype(mine.dtype, np.integer) or mine.dtype == np.bool_
        assert [int(value) for value in mine.tolist()] == spread(other, numbers, count)


@few
@given(chance=st.randoms(use_true_random=False), rounds=st.sampled_from([1, 40, 95, 190]))
def test_a_past_carried_through_comings_and_goings_is_that_of_its_rows(
    chance: random.Random, rounds: int
) -> None:
    count = chance.randint(1, 6)
    history = History()
    for number in range(rounds):
        if number and chance.random() < 0.05:
            kept = [row for row in range(count) if chance.random() < 0.8]
            chance.shuffle(kept)
            picked = [*kept, *[-1] * chance.randint(0 if kept else 1, 2)]
            history, count = history.picked(ints(picked)), len(picked)
        if number and chance.random() < 0.05:
            chosen = [row for row in range(count) if chance.random() < 0.7]
            history = history.only(ints(chosen or [0]))
        scale = chance.choice([1, 1000, 10**12])
        history = history.noted(ints(chance.randrange(scale) for _ in range(count)))
        if number % 13 == 0:
            assert_same_as_rebuilt(history, count)
    assert_same_as_rebuilt(history, count)


def test_a_row_that_is_new_has_no_past() -> None:
    history = history_of([constant, timer], PROVEN_ROUNDS + LAG_MAX).picked(ints([1, -1]))
    assert [column.tolist()[1] for column in history.columns] == [0] * (PROVEN_ROUNDS + LAG_MAX)
    assert history.foreseen(2)[1].tolist() == [True, False]
    assert history.recurring(2)[0].tolist()[1] == 0


# ---------------------------------------------------------------- stored and read again


def stored(memory: Memory) -> Memory:
    return Memory.from_json(json.loads(json.dumps(memory.to_json())))


@few
@given(chance=st.randoms(use_true_random=False), rounds=st.sampled_from([0, 1, 2, 3, 50, 95, 185]))
def test_a_memory_stored_and_read_again_knows_and_foresees_the_same(
    chance: random.Random, rounds: int
) -> None:
    members = [(f"h{number}", "i") for number in range(chance.randint(1, 5))]
    shapes: list[Demand] = [timer, constant, noise, lambda _n, _c: 0, lambda n, _c: n % 2 * 10**12]
    behave = [chance.choice(shapes) for _ in members]
    begins = [chance.choice([0, 0, 20]) for _ in members]
    trails = Trails().follow(members)
    for number in range(rounds):
        demands = ints(
            shape(number, chance) if number >= begin else 0
            for shape, begin in zip(behave, begins, strict=True)
        )
        enough = ints(chance.choice([0, 5, -5]) for _ in members)
        trails = trails.note(demands, ints([0] * len(demands)), enough, DECAY)
    memory = Memory({"db": trails, "empty": Trails()})
    again = stored(memory)
    assert again == memory
    assert again.to_json() == memory.to_json()
    known = again.trails["db"]
    assert known.members == trails.members
    count = len(members)
    for mine, other in (
        (trails.peak, known.peak),
        (trails.served_window, known.served_window),
        (trails.enough, known.enough),
        (trails.rounds, known.rounds),
        (trails.low_water(), known.low_water()),
        *zip(trails.history.foreseen(count), known.history.foreseen(count), strict=True),
        *zip(trails.history.recurring(count), known.history.recurring(count), strict=True),
    ):
        assert mine.tolist() == other.tolist()


@few
@given(chance=st.randoms(use_true_random=False))
def test_members_that_come_and_go_keep_their_own_past(chance: random.Random) -> None:
    every = [(f"h{number}", "i") for number in range(6)]
    trails = Trails()
    own: dict[tuple[str, str], list[int]] = {}
    for _ in range(60):
        here = [member for member in every if chance.random() < 0.9]
        trails = trails.follow(here)
        demands = [chance.randint(1, 9) for _ in trails.members]
        trails = trails.note(
            ints(demands), ints([0] * len(demands)), ints([0] * len(demands)), DECAY
        )
        own = {
            member: [*own.get(member, []), demand]
            for member, demand in zip(trails.members, demands, strict=True)
        }
        rows = trails.history.rows(len(trails.members))[1]
        for member, row in zip(trails.members, rows, strict=True):
            assert row[-len(own[member]) :] == own[member]
            assert not any(row[: -len(own[member])])


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"trails": []},
        {"trails": {"db": 5}},
        {"trails": {"db": [["h", "i", 1]]}},
        {"trails": {"db": [["h", "i", 1, 2, 3, 4, [1.5]]]}},
        {"trails": {"db": [["h", "i", float("nan"), 2, 3, 4, []]]}},
        {"trails": {"db": [["h", "i", True, 2, 3, 4, []]]}},
        {"trails": {"db": [["h", "i", 10**13, 2, 3, 4, []]]}},
        {"trails": {"db": [["h", "i", 1, 2, 3, 4, [-1]]]}},
    ],
)
def test_a_stored_form_that_is_not_known_is_forgotten(data: object) -> None:
    memory = Memory.from_json(data)
    assert all(known.members == () for known in memory.trails.values())
    stored(memory)


@pytest.mark.parametrize("demand", [2**31 // PROVEN_ROUNDS - 1, 2**31, 10**12], ids=str)
def test_demands_of_any_size_join_a_past_of_small_ones(demand: int) -> None:
    small = history_of([timer, noise], 100)
    joined = small.only(ints([0])).only(ints([0, 1]), ints([5, demand]))
    assert joined.rows(2)[1][1][-1] == demand
    assert joined.errors[:, 1].tolist() == [demand] * LAG_MAX
    for number in range(PROVEN_ROUNDS):  # every difference is as large as can be
        small = small.noted(ints([number % 2 * demand, demand - number % 2 * demand]))
        assert_same_as_rebuilt(small, 2)
