"""A run of the demonstration in the terms of the summary, and the same demand split evenly.

Decides only what is counted where; the arithmetic is the simulation's. Knows no process and no
clock; windows count from 0.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from balancer.demo.demand import Scenario
from balancer.simulation import outcome
from balancer.simulation.even_split import EvenSplit
from worker_sdk.wire.shares import POINTS


@dataclass(slots=True)
class Observed:
    """What a run showed.

    Attributes:
        arrived: window to requests that reached the destination, refused ones included.
        refused: window to requests that it refused.
        zero_windows: host to its longest run of windows with demand and nothing delivered.
        first_permit_seconds: of each process with work, from its start to its first permit.
        share_sum_points: the largest sum of shares and holds seen in one document.
    """

    arrived: dict[int, int] = field(default_factory=dict)
    refused: dict[int, int] = field(default_factory=dict)
    zero_windows: dict[str, int] = field(default_factory=dict)
    first_permit_seconds: list[float] = field(default_factory=list)
    share_sum_points: int = 0


def split_evenly(scenario: Scenario, first_window: int) -> Observed:
    """Return what the same demand would show with the capacity split evenly among live hosts."""
    even = EvenSplit(keeps_backlog=scenario.keeps_backlog)
    for window in range(scenario.windows):
        live: dict[Hashable, int] = {
            host.host: host.demand[window] for host in scenario.hosts if host.lives_in(window)
        }
        even.step(first_window + window, scenario.capacity, live)
    return Observed(
        arrived=dict(enumerate(even.served)),
        zero_windows={str(host): zero for host, zero in even.longest_zero_windows.items()},
        share_sum_points=POINTS,
    )


def summary(scenario: Scenario, observed: Observed) -> dict[str, object]:
    """Return the summary's keys, without the even split beside it."""
    windows = range(scenario.windows)
    figures = outcome.Figures(
        scenario=scenario.name,
        hosts=len(scenario.hosts),
        capacity=[scenario.capacity for _ in windows],
        wanted=[sum(host.demand[window] for host in scenario.hosts) for window in windows],
        arrived=[observed.arrived.get(window, 0) for window in windows],
        refused=[observed.refused.get(window, 0) for window in windows],
        zero_windows=list(observed.zero_windows.values()),
        first_permit_seconds=observed.first_permit_seconds,
        share_sum_points=observed.share_sum_points,
    )
    result = outcome.summary(
        figures, keeps_backlog=scenario.keeps_backlog, last_windows=scenario.tail_windows
    )
    # What is refused after the last window, of work begun in it, is refused all the same.
    result["refused_by_destination"] = sum(observed.refused.values())
    return result
