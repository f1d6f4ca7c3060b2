"""What the demonstration's scenarios ask for, and how a run is summed up."""

from __future__ import annotations

from pathlib import Path

import pytest

from balancer.demo import tally
from balancer.demo.demand import Backlog, fleet, trace, two_hosts
from balancer.simulation.outcome import ratio, summary_lines
from balancer.simulation.traces import parse_capacity
from worker_sdk.errors import ConfigurationError


def test_two_hosts_want_exactly_the_capacity() -> None:
    scenario = two_hosts(501, 3)
    assert [sum(host.demand[w] for host in scenario.hosts) for w in range(3)] == [501] * 3


def test_an_even_split_of_two_hosts_lets_seventy_percent_through() -> None:
    scenario = two_hosts(1000, 20)
    even = tally.summary(scenario, tally.split_evenly(scenario, 0))
    assert even["served_over_ideal"] == 0.7
    assert even["worst_window_over_capacity"] == 0.7


def test_fleet_has_somebody_join_leave_and_be_killed() -> None:
    scenario = fleet(1000, 24)
    assert any(host.starts_at > 0 for host in scenario.hosts)
    assert {host.end.value for host in scenario.hosts if host.ends_at} == {"leaves", "killed"}
    for host in scenario.hosts:
        assert all(not host.demand[w] or host.lives_in(w) for w in range(24))


def test_a_trace_is_folded_without_losing_a_call(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    rows = [[host * 10 + minute for minute in range(3)] for host in range(11)]
    header = "HashFunction,minute_1,minute_2,minute_3\n"
    file.write_text(header + "".join(f"f{n},{a},{b},{c}\n" for n, (a, b, c) in enumerate(rows)))
    scenario = trace(file, "p50", 3)
    totals = [sum(row[minute] for row in rows) for minute in range(3)]
    assert len(scenario.hosts) == 8
    assert [sum(h.demand[minute] for h in scenario.hosts) for minute in range(3)] == totals
    assert scenario.capacity == sorted(totals)[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("minute_1\n5\n", "minute_2"),
        ("minute_1,minute_2\n1,x\n", "not a whole number"),
        ("minute_1,minute_2\n1,-2\n", "negative"),
        ("minute_1,minute_2\n", "no row"),
    ],
)
def test_a_trace_that_cannot_be_used_is_explained(
    tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        trace(file, "p90", 2)


@pytest.mark.parametrize("text", ["", "0", "-1", "p101", "px", "1e3"])
def test_a_capacity_that_is_none_is_explained(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--capacity"):
        parse_capacity(text, [1, 2, 3])


def test_capacity_percentiles_take_the_sorted_totals() -> None:
    totals = [5, 1, 4, 2, 3, 6, 7, 8, 9, 10]
    assert parse_capacity("p90", totals) == 10
    assert parse_capacity("p0", totals) == 1
    assert parse_capacity("p100", totals) == 10
    assert parse_capacity("77", totals) == 77


def test_work_that_is_kept_waits_for_later_windows() -> None:
    work = Backlog((3, 0), first_window=10, window_ms=1000, keeps=True)
    assert [work.take(10_999) for _ in range(2)] == [0, 0]
    assert work.waiting(11_500) == 1
    assert work.take(11_500) == 0
    assert work.take(11_500) is None


def test_work_that_is_not_kept_is_dropped_at_the_end_of_its_window() -> None:
    work = Backlog((3, 1), first_window=10, window_ms=1000, keeps=False)
    assert work.take(10_999) == 0
    assert work.waiting(11_000) == 1
    assert work.take(11_000) == 1
    assert work.take(11_999) is None


def test_a_piece_put_back_is_taken_again() -> None:
    work = Backlog((1,), first_window=0, window_ms=1000, keeps=True)
    window = work.take(900)
    assert window == 0
    work.put_back(window)
    assert work.take(900) == 0


def test_work_arrives_over_its_window() -> None:
    work = Backlog((8,), first_window=0, window_ms=1000, keeps=True)
    counts = [work.arrived(0, instant) for instant in range(0, 1000, 100)]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == 8


def test_summary_states_ratios_and_null_over_nothing() -> None:
    scenario = two_hosts(100, 2)
    observed = tally.Observed(arrived={0: 110, 1: 90}, refused={0: 10})
    result = tally.summary(scenario, observed)
    assert result["delivered"] == 190
    assert result["served_over_ideal"] == 0.95
    assert result["worst_window_over_capacity"] == 1.1
    assert result["refused_by_destination"] == 10
    assert result["seconds_to_first_permit"] == {"p50": None, "p99": None}
    assert ratio(1, 0) is None


def test_summary_is_told_in_lines() -> None:
    scenario = two_hosts(100, 2)
    result = tally.summary(scenario, tally.Observed(arrived={0: 100, 1: 100}))
    result["even_split"] = tally.summary(scenario, tally.split_evenly(scenario, 0))
    text = "\n".join(summary_lines(result))
    assert "100.0 % (even split: 70.0 %)" in text
