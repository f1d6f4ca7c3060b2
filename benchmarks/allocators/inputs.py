"""What all rules run on: recorded demand and copies of it, and made-up demand of several kinds.

Decides the inputs from a seed; equal seeds give equal inputs. Knows no rule.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from balancer.core.model import Policy
from balancer.simulation import builders
from balancer.simulation.demand_shapes import steps
from balancer.simulation.scenario import MemberPlan, Scenario, constant, series
from balancer.simulation.traces import parse_capacity, read_trace

QUICK_TRACE_WINDOWS: Final = 120
QUICK_CHURN_WINDOWS: Final = 16
FLEETS: Final = (10, 50, 99, 100, 1000)
HOT_PART, HOT_LOAD, COLD_LOAD = 0.05, 0.75, 0.2
FLEET_STEP_WINDOW: Final = 5
SETTLED_WINDOWS: Final = 3
SHIFT_WINDOWS: Final = 6

Rows = Sequence[tuple[int, ...]]


def made_up(seed: int, *, quick: bool) -> list[Scenario]:
    """Return the inputs that need no file."""
    short = 24 if quick else 60
    churn = builders.churn("churn", 1.3, 0.1)
    return [
        builders.step("step", 100_000, Policy())(seed, max(16, short // 2)),
        builders.noise("noise", 0.9)(seed, short),
        builders.hot_set("hot-set", 60)(seed, short),
        shifts(short),
        churn(seed, QUICK_CHURN_WINDOWS if quick else 60),
        *(fleet(hosts, short // 2) for hosts in FLEETS),
    ]


def shifts(windows: int) -> Scenario:
    """Return ten members that always want all of the capacity, and ten more in every other block.

    Made to show old and new shares in force together: where the ten that stay still spend by the
    shares from before the others came, and those have theirs already, half as much again is spent.
    """

    def second_shift(window: int) -> int:
        return 1000 if window // SHIFT_WINDOWS % 2 else 0

    members = tuple(
        MemberPlan(f"host-{number:02}", constant(1000) if number % 2 else second_shift)
        for number in range(20)
    )
    return Scenario("shifts", 10_000, windows, members, measured_from_window=1)


def fleet(hosts: int, windows: int) -> Scenario:
    """Return a fleet of even demand of which 5 % become hot.

    Before, all together want 95 % of the capacity; after, the hot ones want 75 % of it and the
    others 20 %. Figures count from the third window after the one in which it happens.
    """
    capacity = 1000 * hosts
    hot = max(1, round(HOT_PART * hosts))
    before = int(capacity * (HOT_LOAD + COLD_LOAD)) // hosts
    hot_want = int(capacity * HOT_LOAD) // hot
    cold_want = int(capacity * COLD_LOAD) // (hosts - hot)
    members = tuple(
        MemberPlan(
            f"host-{number:04}",
            steps([(0, before), (FLEET_STEP_WINDOW, hot_want if number < hot else cold_want)]),
        )
        for number in range(hosts)
    )
    first = FLEET_STEP_WINDOW + SETTLED_WINDOWS
    return Scenario(f"fleet-{hosts}", capacity, windows, members, measured_from_window=first)


def recorded(path: Path, seed: int, *, quick: bool) -> list[Scenario]:
    """Return the recorded demand, two halves of its hosts, and a copy shifted host by host.

    Raises:
        ConfigurationError: where the file cannot be used.
    """
    rows = read_trace(path, windows=QUICK_TRACE_WINDOWS if quick else None).rows
    draw = random.Random(seed)
    numbers = draw.sample(range(len(rows)), len(rows))
    half = len(rows) // 2
    halves = sorted(numbers[:half]), sorted(numbers[half:])
    shifted = [_shifted(row, draw.randrange(len(row))) for row in rows]
    return [
        replayed("trace", rows),
        replayed("trace-half-a", [rows[number] for number in halves[0]]),
        replayed("trace-half-b", [rows[number] for number in halves[1]]),
        replayed("trace-shifted", shifted),
    ]


def replayed(name: str, rows: Rows) -> Scenario:
    """Return recorded demand as an input, a row a host, with the 90th percentile as capacity."""
    totals = [sum(column) for column in zip(*rows, strict=True)]
    members = tuple(MemberPlan(f"host-{number:04}", series(row)) for number, row in enumerate(rows))
    return Scenario(name, parse_capacity("p90", totals), len(totals), members)


def _shifted(row: tuple[int, ...], by: int) -> tuple[int, ...]:
    return row[by:] + row[:by]
