"""The arithmetic of a run's summary: ideal, even split, ratios.

Decides how good a run was. Knows no process and no clock; windows count from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from balancer.demo.demand import Scenario
from worker_sdk.wire.shares import POINTS, interval_permits


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


def percentile(values: Sequence[float], part: float) -> float | None:
    """Return the value at ``part`` (0 to 1) of the sorted values; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def ratio(numerator: float, denominator: float) -> float | None:
    """Return a quotient rounded to four places; None over nothing."""
    return round(numerator / denominator, 4) if denominator else None


def ideal_by_window(scenario: Scenario) -> list[int]:
    """Return the most that could be served in each window.

    ``min(capacity, demand)`` where unserved work is dropped; with one backlog of the whole fleet
    where it is kept.
    """
    backlog = 0
    ideal = []
    for window in range(scenario.windows):
        wanted = sum(host.demand[window] for host in scenario.hosts) + backlog
        served = min(scenario.capacity, wanted)
        backlog = wanted - served if scenario.keeps_backlog else 0
        ideal.append(served)
    return ideal


def split_evenly(scenario: Scenario, first_window: int) -> Observed:
    """Return what the same demand would show with the capacity split evenly among live hosts."""
    backlog = dict.fromkeys((host.host for host in scenario.hosts), 0)
    zero = dict.fromkeys(backlog, 0)
    longest_zero = dict.fromkeys(backlog, 0)
    served_by_window = []
    for window in range(scenario.windows):
        live = [host for host in scenario.hosts if host.lives_in(window)]
        served_total = 0
        for number, host in enumerate(live):
            start, end = POINTS * number // len(live), POINTS * (number + 1) // len(live)
            permits = interval_permits(scenario.capacity, start, end, first_window + window)
            wanted = host.demand[window] + backlog[host.host]
            served = min(permits, wanted)
            backlog[host.host] = wanted - served if scenario.keeps_backlog else 0
            zero[host.host] = zero[host.host] + 1 if wanted and not served else 0
            longest_zero[host.host] = max(longest_zero[host.host], zero[host.host])
            served_total += served
        served_by_window.append(served_total)
    return Observed(
        arrived=dict(enumerate(served_by_window)),
        zero_windows=longest_zero,
        share_sum_points=POINTS,
    )


def summary(scenario: Scenario, observed: Observed) -> dict[str, object]:
    """Return the summary's keys, without the even split beside it."""
    ideal = ideal_by_window(scenario)
    refused = sum(observed.refused.values())
    delivered = sum(observed.arrived.values()) - refused
    tail = range(max(0, scenario.windows - scenario.tail_windows), scenario.windows)
    tail_served = sum(_served(observed, window) for window in tail)
    return {
        "scenario": scenario.name,
        "hosts": len(scenario.hosts),
        "windows": scenario.windows,
        "capacity": scenario.capacity,
        "delivered": delivered,
        "ideal": sum(ideal),
        "served_over_ideal": ratio(delivered, sum(ideal)),
        "last_windows": len(tail),
        "last_windows_over_ideal": ratio(tail_served, sum(ideal[window] for window in tail)),
        "worst_window_over_capacity": ratio(
            max(observed.arrived.values(), default=0), scenario.capacity
        ),
        "refused_by_destination": refused,
        "max_share_sum": ratio(observed.share_sum_points, POINTS),
        "longest_zero_windows": max(observed.zero_windows.values(), default=0),
        "seconds_to_first_permit": {
            "p50": percentile(observed.first_permit_seconds, 0.5),
            "p99": percentile(observed.first_permit_seconds, 0.99),
        },
    }


def _served(observed: Observed, window: int) -> int:
    return observed.arrived.get(window, 0) - observed.refused.get(window, 0)


def summary_lines(result: Mapping[str, object]) -> list[str]:
    """Return the summary as lines for a person."""
    even = result["even_split"]
    assert isinstance(even, dict)  # noqa: S101 - built by this module's caller

    def percent(value: object) -> str:
        return f"{value * 100:.1f} %" if isinstance(value, float) else "-"

    def seconds(value: object) -> str:
        return f"{value:.1f} s" if isinstance(value, float) else "-"

    first = result["seconds_to_first_permit"]
    assert isinstance(first, dict)  # noqa: S101 - built by `summary`
    served, last = result["served_over_ideal"], result["last_windows_over_ideal"]
    even_served, even_last = even["served_over_ideal"], even["last_windows_over_ideal"]
    last_label = f"the same, last {result['last_windows']} windows"
    return [
        f"{'served of what was possible':30}{percent(served)} (even split: {percent(even_served)})",
        f"{last_label:30}{percent(last)} (even split: {percent(even_last)})",
        f"fullest window over capacity  {percent(result['worst_window_over_capacity'])}",
        f"refused by the destination    {result['refused_by_destination']}",
        f"longest wait at zero          {result['longest_zero_windows']} windows",
        f"start to first permit         p50 {seconds(first['p50'])}, p99 {seconds(first['p99'])}",
    ]
