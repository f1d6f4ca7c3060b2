"""Several engines on one destination: never over the capacity, exactly it where all ask."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.unit.test_engine import START_MS, W0, WINDOW_MS, engine, own, take_all
from worker_sdk.core.engine import Engine
from worker_sdk.wire.distribution import Pacing
from worker_sdk.wire.shares import POINTS, Interval


def cut(parts: int, dice: random.Random) -> list[tuple[Interval, ...]]:
    edges = [0, *sorted(dice.sample(range(1, POINTS), parts - 1)), POINTS]
    return [((start, end),) for start, end in pairwise(edges)]


@pytest.mark.parametrize("capacity", [0, 1, 7, 100, 12_345])
def test_a_fleet_that_keeps_asking_gets_exactly_the_capacity_of_every_window(
    capacity: int,
) -> None:
    dice = random.Random(capacity)
    fleet = []
    for intervals in cut(9, dice):
        subject = engine()
        share = own(
            capacity=capacity, intervals=intervals, until_window=W0 + 20, pacing=Pacing.EVEN
        )
        subject.offer([share], START_MS)
        fleet.append(subject)
    for window in range(20):
        taken = 0
        for at_ms in range(0, WINDOW_MS, 997):
            now_ms = START_MS + window * WINDOW_MS + at_ms
            for subject in dice.sample(fleet, len(fleet)):
                while subject.try_acquire("db", 1, now_ms):
                    taken += 1
        assert taken == capacity


def spend_all(fleet: list[Engine], now_ms: int) -> int:
    return sum(take_all(subject, now_ms) for subject in fleet)


def test_a_late_reader_spends_what_is_held_for_it_and_never_its_old_share() -> None:
    # 500, 50 and 50 of 600 become 50, 500 and 50; the first host reads late by a window.
    permit = POINTS // 600
    first, second, third = fleet = [engine(), engine(), engine()]
    old = [(0, 500), (500, 550), (550, 600)]
    new = [(0, 50), (90, 590), (590, 600)]  # 40 held: the first host's old safe points
    for subject, (start, end), safe in zip(fleet, old, (40, 10, 5), strict=True):
        intervals = ((start * permit, end * permit),)
        share = own(1, capacity=600, intervals=intervals, safe_points=safe * permit)
        subject.offer([share], START_MS)
    assert spend_all(fleet, START_MS + 1_000) <= 600
    later = START_MS + WINDOW_MS
    updates = [
        own(
            2,
            capacity=600,
            intervals=((start * permit, end * permit),),
            from_window=W0 + 1,
            until_window=W0 + 2,
        )
        for start, end in new
    ]
    second.offer([updates[1]], later - 5_000)
    third.offer([updates[2]], later - 5_000)
    late = take_all(first, later + 1_000)
    assert late <= 40
    total = late + spend_all([second, third], later + 1_000)
    first.offer([updates[0]], later + 30_000)
    total += take_all(first, later + 31_000)
    assert total <= 600


def test_a_clock_that_steps_back_and_far_forward_never_gives_more_than_a_share_a_window() -> None:
    dice = random.Random(3)
    subject = engine()
    subject.offer([own(capacity=10, until_window=W0 + 500, pacing=Pacing.EVEN)], START_MS)
    spent: dict[int, int] = {}
    now_ms = START_MS
    for _ in range(20_000):
        now_ms += dice.choice([10, 500, 5_000, 20_000])
        if dice.random() < 0.002:
            now_ms += dice.choice([-3_600_000, 7_200_000, -61_000, -5_000])
        now_ms = max(START_MS, now_ms)
        permits = dice.choice([1, 1, 2])
        if subject.try_acquire("db", permits, now_ms):
            window = now_ms // WINDOW_MS
            spent[window] = spent.get(window, 0) + permits
    assert len(spent) > 100
    assert max(spent.values()) == 10
