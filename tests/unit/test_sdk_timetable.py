"""When members report and read: spread, in time for the planning, and steady as clocks step."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from worker_sdk.runtime.timetable import make_timetable

UNIX_SECONDS = 1_796_000_000.0


def reports(period: float, instance: str, count: int, start: float) -> list[float]:
    timetable = make_timetable(period, instance)
    turns = [start + timetable.first_report_seconds(start)]
    while len(turns) < count:
        turns.append(turns[-1] + timetable.until_report_seconds(turns[-1]))
    return turns


def test_members_started_in_the_same_second_spread_over_the_reporting_span() -> None:
    starts = [UNIX_SECONDS + n / 500 for n in range(500)]
    turns = [turn for n, at in enumerate(starts) for turn in reports(60, f"i{n}", 10, at)]
    phases = Counter(int(turn % 60) for turn in turns)
    assert max(phases) <= 36
    mean = len(turns) / 36
    assert max(phases.values()) < 3 * mean


SPREAD_MAX = 2.0
"""Members in the fullest second over those in the mean one of the span, for 500 of them."""


def most_in_a_second(instants: list[float], span_seconds: float) -> float:
    """Return the fullest second of all, over the mean of the span."""
    ordered = sorted(instants)
    first = 0
    most = 0
    for last, at in enumerate(ordered):
        while at - ordered[first] >= 1:
            first += 1
        most = max(most, last - first + 1)
    return most / (len(instants) / span_seconds)


def reads(instance: str, count: int, start: float) -> list[float]:
    timetable = make_timetable(60, instance)
    turns: list[float] = []
    at = start
    while len(turns) < count:
        at += timetable.until_read_seconds(at)
        turns.append(at)
    return turns


@pytest.mark.parametrize("start_spread_seconds", [1.0, 0.0], ids=["a-second", "an-instant"])
def test_no_second_of_any_period_is_crowded_by_a_fleet_that_starts_at_once(
    start_spread_seconds: float,
) -> None:
    # Twice: a fleet that is restarted has new instances, and old ones nobody hears of.
    for begin, names in ((UNIX_SECONDS + 41.3, "i"), (UNIX_SECONDS + 41.3 + 7 * 60, "restarted")):
        starts = {f"{names}{n}": begin + start_spread_seconds * n / 500 for n in range(500)}
        for period in range(5):
            reported = [reports(60, name, 5, at)[period] for name, at in starts.items()]
            assert most_in_a_second(reported, 36) < SPREAD_MAX
            read = [reads(name, 5, at)[period] for name, at in starts.items()]
            assert most_in_a_second(read, 10) < SPREAD_MAX


def test_what_fails_for_all_at_once_is_tried_again_spread_out() -> None:
    tables = [make_timetable(60, f"i{n}") for n in range(500)]
    tried = [UNIX_SECONDS] * len(tables)
    for failures in range(1, 12):
        tried = [
            at + table.retry_seconds(2.0, failures) for at, table in zip(tried, tables, strict=True)
        ]
        assert all(1 <= table.retry_seconds(2.0, failures) <= 3 for table in tables)
    # After eleven tries nobody knows any more when it began.
    assert most_in_a_second(tried, 2.0) < SPREAD_MAX


def test_reads_follow_the_publishing_and_precede_the_window() -> None:
    seconds = [make_timetable(60, f"i{n}").read_seconds for n in range(500)]
    assert 48 <= min(seconds) < 49
    assert 57 < max(seconds) <= 58


def test_a_members_phase_is_fixed_and_its_period_kept() -> None:
    turns = reports(60, "i1", 20, UNIX_SECONDS + 17)
    assert all(later - earlier == pytest.approx(60) for earlier, later in pairwise(turns))


@pytest.mark.parametrize("period", [2, 3, 5, 10])
def test_in_short_rounds_reports_end_a_second_before_the_planning(period: int) -> None:
    for n in range(100):
        timetable = make_timetable(period, f"i{n}")
        assert 0 <= timetable.report_seconds <= max(0.0, period * 38 / 60 - 1)


@pytest.mark.parametrize("step_seconds", [-3600, 7200, -17.3, 42.1, 0.4])
def test_a_clock_that_steps_moves_the_next_turn_by_half_a_period_at_most(
    step_seconds: float,
) -> None:
    timetable = make_timetable(60, "i1")
    turn = UNIX_SECONDS + timetable.first_report_seconds(UNIX_SECONDS)
    pause = timetable.until_report_seconds(turn + step_seconds)
    assert 30 <= pause <= 90
    if step_seconds % 60 == 0:
        assert pause == pytest.approx(60)
