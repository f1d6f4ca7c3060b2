"""Rows of members, found by name."""

from __future__ import annotations

import numpy as np

from balancer.core.columns import ints
from balancer.core.rows import Rows

A, B, C, D = members = [(host, "i") for host in "abcd"]


def test_a_member_is_found_in_its_row_and_a_stranger_nowhere() -> None:
    rows = Rows.of([A, B, C])
    assert rows.find((C, D, A)).tolist() == [2, -1, 0]
    assert rows.find(()).tolist() == []
    assert Rows.of([]).find((A,)).tolist() == [-1]


def test_rows_that_were_moved_twice_are_found_where_they_are() -> None:
    rows = Rows.of([A, B, C]).moved(ints([2, 0, 1]), [C, A, B]).moved(ints([1, 2, 0]), [A, B, C])
    assert rows.members == [A, B, C]
    assert rows.find((A, B, C, D)).tolist() == [0, 1, 2, -1]
    assert Rows.of([A, B, C]).moved(ints([2, 0, 1]), [C, A, B]).find((A, C)).tolist() == [1, 0]


def test_what_is_remembered_of_one_look_up_is_not_taken_for_another() -> None:
    rows = Rows.of(members)
    chance = np.random.default_rng(1)
    for _ in range(100):
        picked = chance.permutation(4)[: chance.integers(5)].tolist()
        assert rows.find(tuple(members[row] for row in picked)).tolist() == picked
    one, other = {A: 1, C: 3}, {A: 2}
    moved = rows.moved(ints([3, 2, 1, 0]), [D, C, B, A])
    assert (rows.values_of(one).tolist(), moved.values_of(one).tolist()) == (
        [1, 0, 3, 0],
        [0, 3, 0, 1],
    )
    assert rows.values_of(other).tolist() == [2, 0, 0, 0]
    assert rows.values_of(one).tolist() == [1, 0, 3, 0]
