"""What the planner remembers of members, and for how long."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from balancer.core.columns import ints
from balancer.core.memory import INACTIVE_ROUNDS, Memory, Trails

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
    assert back.inactive == {}


def test_all_may_be_away_at_once() -> None:
    back = both_for_three_rounds().follow([]).follow([B, A])
    assert dict(zip(back.members, back.enough.tolist(), strict=True)) == {A: 10, B: 20}


def test_one_that_comes_under_the_name_of_one_that_ended_goes_on_where_that_was() -> None:
    trails = both_for_three_rounds().follow([A, ("b", "2"), ("b", "3"), ("c", "1")])
    assert trails.last().tolist() == [10, 20, 0, 0]
    assert trails.inactive == {}


def test_who_stays_away_is_forgotten_in_the_end() -> None:
    trails = both_for_three_rounds().follow([A])
    for number in range(INACTIVE_ROUNDS + 1):
        assert (B in trails.inactive) == (number <= INACTIVE_ROUNDS), number
        trails = noted(trails, 10)
    assert B not in trails.inactive
    assert trails.follow([A, B]).peak.tolist()[1] == 0


def test_the_stored_form_keeps_those_away_too() -> None:
    memory = Memory({"db": both_for_three_rounds().follow([A])})
    stored = Memory.from_json(json.loads(json.dumps(memory.to_json())))
    assert stored == memory
    assert stored.trails["db"].follow([A, B]).low_water().tolist() == [10, 20]


def test_the_form_of_earlier_versions_is_read() -> None:
    rows = [[*A, 10, 7, -10, 3, [5, 6, 7, 8]], [*B, 20, 9, 0, 1, [4]]]
    trails = Memory.from_json({"trails": {"db": rows, "other": "none"}}).trails["db"]
    assert trails.members == (A, B)
    assert trails.enough.tolist() == [-10, 0]
    assert trails.low_water().tolist() == [6, 0]
    assert trails.history.rows(2)[1] == [[5, 6, 7, 8], [0, 0, 0, 4]]


@pytest.mark.parametrize(
    "change",
    [
        {"members": "1AQ=="},
        {"members": [0]},
        {"peak": "1AAAA"},
        {"peak": "1////"},
        {"peak": "3AAAA"},
        {"peak": "1%%%%"},
        {"rounds": "1AQ=="},
        {"recent": ["1AQ=="]},
        {"recent": 5},
        {"history": "1AQEB"},
        {"history_rows": "1AAI="},
        {"history_rows": "1AP8="},
    ],
    ids=str,
)
def test_of_a_stored_form_that_is_damaged_a_destination_is_forgotten(change: object) -> None:
    data: Any = json.loads(json.dumps(Memory({"db": both_for_three_rounds()}).to_json()))
    assert Memory.from_json(data).trails["db"].members == (A, B)
    data["columns"]["db"].update(change)
    assert Memory.from_json(data).trails["db"].members == ()


def test_the_longer_history_of_some_is_stored_for_them_alone() -> None:
    trails = both_for_three_rounds()
    trails = replace(trails, history=trails.history.only(ints([1])))
    stored = Memory.from_json(json.loads(json.dumps(Memory({"db": trails}).to_json())))
    assert stored.trails["db"].history.rows(2) == ([1], [[20, 20, 20]])


def test_a_member_of_many_destinations_is_stored_in_few_bytes_for_each() -> None:
    members = [(f"host-{number}", f"{number:016x}") for number in range(100)]
    trails = Trails().follow(members)
    demands = ints(range(100, 200))
    for _ in range(3):
        trails = trails.note(demands, demands, demands, 900)
    trails = replace(trails, history=trails.history.only(ints([])))
    stored = json.dumps(Memory({f"d{number}": trails for number in range(100)}).to_json())
    assert len(stored) < 20 * 100 * 100


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
