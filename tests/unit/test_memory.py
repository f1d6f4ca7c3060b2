"""What the planner remembers of members, and for how long."""

from __future__ import annotations

import json

from balancer.core.columns import ints
from balancer.core.memory import RESTING_ROUNDS, Memory, Trails

A, B = ("a", "1"), ("b", "1")


def noted(trails: Trails, *demands: int) -> Trails:
    return trails.note(ints(demands), ints([0] * len(demands)), ints(demands), 900)


def both_for_three_rounds() -> Trails:
    trails = Trails().follow([A, B])
    for _ in range(3):
        trails = noted(trails, 10, 20)
    return trails


def test_who_was_not_heard_of_for_a_while_is_known_again_when_it_comes_back() -> None:
    trails = noted(both_for_three_rounds().follow([A]), 10)
    back = trails.follow([A, B])
    assert back.peak.tolist() == [10, 20]
    assert back.low_water().tolist() == [10, 20]
    assert back.resting == {}


def test_all_may_be_away_at_once() -> None:
    back = both_for_three_rounds().follow([]).follow([B, A])
    assert dict(zip(back.members, back.enough.tolist(), strict=True)) == {A: 10, B: 20}


def test_one_that_comes_under_the_name_of_one_that_ended_goes_on_where_that_was() -> None:
    trails = both_for_three_rounds().follow([A, ("b", "2"), ("b", "3"), ("c", "1")])
    assert trails.last().tolist() == [10, 20, 0, 0]
    assert trails.resting == {}


def test_who_stays_away_is_forgotten_in_the_end() -> None:
    trails = both_for_three_rounds().follow([A])
    for number in range(RESTING_ROUNDS + 1):
        assert (B in trails.resting) == (number <= RESTING_ROUNDS), number
        trails = noted(trails, 10)
    assert B not in trails.resting
    assert trails.follow([A, B]).peak.tolist()[1] == 0


def test_the_stored_form_keeps_those_away_too() -> None:
    memory = Memory({"db": both_for_three_rounds().follow([A])})
    stored = Memory.from_json(json.loads(json.dumps(memory.to_json())))
    assert stored == memory
    assert stored.trails["db"].follow([A, B]).low_water().tolist() == [10, 20]


def test_who_came_in_place_of_a_killed_one_knows_its_peak_once_that_is_taken_for_dead() -> None:
    trails = both_for_three_rounds().follow([A, B, ("b", "2")])
    trails = trails.note(ints([10, 20, 3]), ints([0, 0, 0]), ints([0, 0, 0]), 900)
    assert trails.follow([A, ("b", "2")]).peak.tolist() == [10, 20]


def test_whoever_takes_over_has_a_number_of_everything_for_each_member() -> None:
    memory = Memory({"db": both_for_three_rounds()})
    stored = Memory.from_json(json.loads(json.dumps(memory.to_json())))
    trails = stored.trails["db"].follow([A, B])
    columns = (trails.peak, trails.served_window, trails.enough, trails.denied, trails.rounds)
    assert {len(column) for column in (*columns, *trails.recent)} == {2}
