"""When rounds are due."""

from __future__ import annotations

import pytest

from balancer.app.agenda import (
    Agenda,
    covers_present,
    largest_epoch_by,
    plan_at_ms,
    share_ms,
)
from balancer.core.model import Destination, RoundKind
from tests.unit.test_view import document
from worker_sdk.wire.limits import EPOCH_MAX

ROUND_MS = 60_000
START_MS = 30_000_000 * ROUND_MS


def agenda() -> Agenda:
    return Agenda(ROUND_MS)


def run(known: Agenda, now_ms: int) -> RoundKind | None:
    kind = known.due(now_ms)
    if kind is not None:
        known.begin(kind, now_ms)
        known.succeed()
    return kind


def test_the_regular_round_runs_once_at_second_38() -> None:
    known = agenda()
    assert run(known, START_MS + 37_999) is None
    assert known.next_ms(START_MS + 10_000) == START_MS + 38_000
    assert run(known, START_MS + 38_000) is RoundKind.REGULAR
    assert run(known, START_MS + 59_000) is None
    assert known.next_ms(START_MS + 59_000) == START_MS + 98_000
    assert run(known, START_MS + 98_000) is RoundKind.REGULAR


def test_a_round_that_was_slept_over_is_run_late_in_its_slot_and_not_in_the_next() -> None:
    known = agenda()
    assert run(known, START_MS + 55_000) is RoundKind.REGULAR
    assert run(known, START_MS + 5 * ROUND_MS + 10_000) is None
    assert run(known, START_MS + 5 * ROUND_MS + 38_000) is RoundKind.REGULAR


def test_the_first_hello_is_served_at_once_and_the_next_share_a_round() -> None:
    known = agenda()
    known.ask_early()
    assert run(known, START_MS) is RoundKind.EARLY
    known.ask_early()
    known.ask_early()
    assert run(known, START_MS + 1_999) is None
    assert known.next_ms(START_MS + 500) == START_MS + 2_000
    assert run(known, START_MS + 2_000) is RoundKind.EARLY
    assert run(known, START_MS + 2_001) is None


@pytest.mark.parametrize(("round_ms", "wait_ms"), [(60_000, 2_000), (30_000, 1_000), (1_000, 100)])
def test_hellos_share_a_thirtieth_of_a_round_within_bounds(round_ms: int, wait_ms: int) -> None:
    assert share_ms(round_ms) == wait_ms


def test_the_timetable_is_scaled_to_the_round() -> None:
    assert plan_at_ms(0, 60_000) == 38_000
    assert plan_at_ms(2, 5_000) == 13_166


def test_an_early_round_goes_before_the_regular_one_of_the_same_instant() -> None:
    known = agenda()
    known.ask_early()
    assert run(known, START_MS + 38_000) is RoundKind.EARLY
    assert run(known, START_MS + 38_000) is RoundKind.REGULAR


def test_a_change_by_hand_runs_the_regular_round_at_once_and_the_timetable_goes_on() -> None:
    known = agenda()
    known.ask_regular()
    assert known.next_ms(START_MS + 5_000) == 0
    assert run(known, START_MS + 5_000) is RoundKind.REGULAR
    assert run(known, START_MS + 38_000) is RoundKind.REGULAR


def test_what_is_asked_while_a_round_runs_is_for_the_next() -> None:
    known = agenda()
    known.ask_early()
    known.begin(RoundKind.EARLY, START_MS)
    known.ask_early()
    known.succeed()
    assert known.due(START_MS + 2_000) is RoundKind.EARLY


def test_a_failed_round_is_tried_again_after_pauses_that_double_up_to_a_bound() -> None:
    known = agenda()
    now_ms = START_MS + 38_000
    pauses = []
    for _ in range(8):
        kind = known.due(now_ms)
        assert kind is RoundKind.REGULAR
        known.begin(kind, now_ms)
        known.fail(kind, now_ms)
        assert known.due(now_ms) is None
        next_ms = known.next_ms(now_ms)
        pauses.append(next_ms - now_ms)
        now_ms = next_ms
    assert pauses == [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000]
    assert run(known, now_ms) is RoundKind.REGULAR
    assert known.next_ms(now_ms) > now_ms


def test_a_regular_round_is_late_that_ends_in_the_round_after_however_often_it_was_tried() -> None:
    known = agenda()
    due_ms = START_MS + 38_000
    known.begin(RoundKind.REGULAR, due_ms)
    assert not known.end_regular(due_ms + 21_999)
    known.begin(RoundKind.REGULAR, due_ms)
    assert known.end_regular(due_ms + 22_000)
    known.begin(RoundKind.REGULAR, due_ms)
    known.fail(RoundKind.REGULAR, due_ms + 20_000)
    known.begin(RoundKind.REGULAR, due_ms + 25_000)
    assert known.end_regular(due_ms + 26_000)


def test_a_clock_set_back_by_an_hour_does_not_stop_the_rounds() -> None:
    known = agenda()
    assert run(known, START_MS + 38_000) is RoundKind.REGULAR
    back_ms = START_MS - 60 * ROUND_MS
    assert known.next_ms(back_ms + 1_000) == back_ms + 38_000
    assert run(known, back_ms + 38_000) is RoundKind.REGULAR
    assert run(known, back_ms + 39_000) is None


def test_a_shard_without_cover_is_tried_now_and_then() -> None:
    known = agenda()
    known.ensure_cover(START_MS, covered=True)
    assert known.due(START_MS) is None
    known.ensure_cover(START_MS, covered=False)
    assert run(known, START_MS) is RoundKind.EARLY
    known.ensure_cover(START_MS + 4_999, covered=False)
    assert known.due(START_MS + 4_999) is None
    known.ensure_cover(START_MS + 5_000, covered=False)
    assert known.due(START_MS + 5_000) is RoundKind.EARLY


def test_a_shard_that_lends_has_twenty_early_rounds_in_a_round() -> None:
    known = agenda()
    assert known.due(START_MS) is None
    known.lends = True
    assert run(known, START_MS) is RoundKind.EARLY
    assert known.next_ms(START_MS) == START_MS + 3_000
    assert known.due(START_MS + 2_999) is None
    assert run(known, START_MS + 3_000) is RoundKind.EARLY
    assert known.due(START_MS - 3_600_000) is RoundKind.EARLY  # the clock was set back
    assert known.next_ms(START_MS + 3_000, with_loans=False) == START_MS + 38_000


@pytest.mark.parametrize("is_asked", [False, True])
def test_regular_rounds_are_run_however_slow_early_ones_are(is_asked: bool) -> None:
    """A round takes longer than loans, or hellos, are apart."""
    known = agenda()
    known.lends = True
    now_ms, kinds = START_MS, []
    while now_ms < START_MS + 10 * known.round_ms:
        if is_asked:
            known.ask_early()
        kind = run(known, now_ms)
        kinds.append(kind)
        now_ms += 4_000 if kind else 500
    assert kinds.count(RoundKind.REGULAR) == 10


def test_every_open_destination_must_be_covered() -> None:
    published = document(1, "a")  # orders-db, window 30,000,000 of 60 s
    now_ms = 30_000_000 * 60_000
    orders = Destination("orders-db", 100)
    other = Destination("billing", 100)
    closed = Destination("old", 0, removed=True)
    assert covers_present([published], [orders, closed], now_ms)
    assert not covers_present([published], [orders, other], now_ms)
    assert not covers_present([published], [orders], now_ms + 60_000)
    assert covers_present([], [], now_ms)


def test_the_largest_epoch_possible_grows_with_the_shortest_distance_of_rounds() -> None:
    began_ms = 1_767_225_600_000  # 2026-01-01
    assert largest_epoch_by(began_ms - 1) == 0
    assert largest_epoch_by(began_ms + 1_000) == 10
    year_ms = 366 * 86_400_000
    assert largest_epoch_by(began_ms + 300 * year_ms) < EPOCH_MAX
    assert largest_epoch_by(began_ms + 400 * year_ms) == EPOCH_MAX
