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
