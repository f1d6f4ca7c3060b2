"""The comparison: every rule on every input, a row each.

Decides the columns and their meaning. Knows no rule from the inside.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from balancer.core.model import Strategy
from balancer.simulation.outcome import ratio, summary
from balancer.simulation.scenario import Scenario
from benchmarks.allocators import dead_band, doorman, even, ewma, last_demand, ours, usage_only
from benchmarks.allocators.fleet import Coming, Fleet, Run
from benchmarks.allocators.forecast import told_the_future
from benchmarks.allocators.told import Allocate
from worker_sdk.wire.shares import POINTS

EVEN: Final = "even split"

NOTE: Final = """\
served        permits served over what was possible, everybody having new shares in time
worst         fullest window over the capacity, everybody having new shares in time
late: served  the same while half of the members spend by the shares of the round before
late: worst   (ours: while half of all reads are lost, drawn anew each round)
zero          longest run of windows in which a member with work was served nothing
moved         percent of the capacity that changes hands a round, mean of the run's second half
time          processor time of a round over the even split's
One round's delay: a round knows the windows before, its shares hold in the next (the simulator's
window timetable; the service's own delays a share by two thirds of a window more). Simple rules get
fractional shares that become whole permits without loss, goodbyes they know at once, and no wire;
a round of ours is all from the reports to a checked document. Doorman itself leases to one client
after the other and counts what is leased: only its columns without "late" are its own. EWMA is
averaged anew over 16 windows each round; a real one keeps its averages and needs less time. All
start from an even split; so does the forecaster, which nobody can build. Moved says something of
steady demand only: noise, step, fleets."""


@dataclass(frozen=True, slots=True)
class Row:
    """One rule on one input; ratios are None over nothing."""

    input: str
    members: int
    windows: int
    capacity: int
    rule: str
    served_over_ideal: float | None
    worst_window_over_capacity: float | None
    late_served_over_ideal: float | None
    late_worst_window_over_capacity: float | None
    longest_zero_windows: int
    moved_percent: float
    planning_microseconds: float
    planning_over_even: float | None

    def as_json(self) -> dict[str, object]:
        """Return the row's values by name."""
        return asdict(self)


Runner = Callable[[Scenario, bool], Run]


def _simple(allocate: Allocate, scenario: Scenario, half_late: bool) -> Run:
    return Fleet(scenario, lambda _coming: allocate, half_late=half_late).finish()


def _forecast(scenario: Scenario, half_late: bool) -> Run:
    def rule(coming: Coming) -> Allocate:
        return told_the_future(coming)

    return Fleet(scenario, rule, half_late=half_late).finish()


def _ours(policy: Mapping[str, Any], seed: int, scenario: Scenario, half_late: bool) -> Run:
    return ours.run(scenario, policy, seed, half_late=half_late)


def rules(seed: int) -> dict[str, Runner]:
    """Return the rules by name, in the order of the table."""
    return {
        EVEN: partial(_simple, even.allocate),
        "usage only": partial(_simple, usage_only.allocate),
        "doorman fair share": partial(_simple, doorman.allocate),
        "EWMA weights": partial(_simple, ewma.allocate),
        "dead band": partial(_simple, dead_band.allocate),
        "max-min, last demand": partial(_simple, last_demand.allocate),
        "ours: surplus": partial(_ours, {"strategy": Strategy.SURPLUS}, seed),
        "ours: max_min": partial(_ours, {}, seed),
        "ours: half lent": partial(_ours, {"lend_points": POINTS // 2}, seed),
        "perfect forecaster": _forecast,
    }


def compared(scenarios: Sequence[Scenario], seed: int) -> Iterator[Row]:
    """Run every rule on every input; yield rows as they come."""
    for scenario in scenarios:
        even_seconds = 0.0
        for name, runner in rules(seed).items():
            in_time, late = (runner(scenario, half_late) for half_late in (False, True))
            seconds = statistics.median(in_time.planning_seconds or [0.0])
            if name == EVEN:
                even_seconds = seconds
            yield _row(scenario, name, (in_time, late), seconds, even_seconds)


def _row(
    scenario: Scenario, rule: str, runs: tuple[Run, Run], seconds: float, even_seconds: float
) -> Row:
    first = scenario.measured_from_window
    in_time, late = (
        summary(run.figures, keeps_backlog=scenario.keeps_backlog, from_window=first)
        for run in runs
    )
    settled = max(first, scenario.windows // 2)
    moved = [points for window, points in runs[0].moved_points.items() if window >= settled]
    zero = in_time["longest_zero_windows"]
    return Row(
        input=scenario.name,
        members=len(scenario.members),
        windows=scenario.windows,
        capacity=scenario.capacity,
        rule=rule,
        served_over_ideal=_number(in_time["served_over_ideal"]),
        worst_window_over_capacity=_number(in_time["worst_window_over_capacity"]),
        late_served_over_ideal=_number(late["served_over_ideal"]),
        late_worst_window_over_capacity=_number(late["worst_window_over_capacity"]),
        longest_zero_windows=zero if isinstance(zero, int) else 0,
        moved_percent=round(statistics.fmean(moved or [0]) / POINTS * 100, 2),
        planning_microseconds=round(seconds * 1e6, 1),
        planning_over_even=ratio(seconds, even_seconds),
    )


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None


HEADER: Final = (
    f"{'':22}{'served':>8}{'worst':>8}{'late: served':>14}{'worst':>8}{'zero':>6}"
    f"{'moved':>8}{'time':>9}"
)


def lines(rows: Iterator[Row]) -> Iterator[str]:
    """Return the table for people, line by line, as rows come."""
    shown = ""
    yield HEADER
    for row in rows:
        if row.input != shown:
            shown = row.input
            yield ""
            yield f"{row.input}: {row.members} members, {row.windows} windows of {row.capacity}"
        times = "-" if row.planning_over_even is None else f"{row.planning_over_even:.1f} x"
        yield (
            f"  {row.rule:20}{_percent(row.served_over_ideal):>8}"
            f"{_percent(row.worst_window_over_capacity):>8}"
            f"{_percent(row.late_served_over_ideal):>14}"
            f"{_percent(row.late_worst_window_over_capacity):>8}"
            f"{row.longest_zero_windows:>6}{row.moved_percent:>8.2f}{times:>9}"
        )
    yield ""
    yield from NOTE.splitlines()


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.1f}"
