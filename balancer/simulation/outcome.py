"""The arithmetic of a run's summary, the same for simulated and real runs.

Decides how good a run was: ideal, even split, ratios, percentiles. Knows no process, no clock and
no fleet.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from worker_sdk.wire.shares import POINTS


@dataclass(slots=True)
class Figures:
    """What a run showed, window by window.

    Attributes:
        scenario: its name.
        hosts: members that took part.
        capacity: permits a window, in each window.
        wanted: permits that arrived wanted in each window.
        arrived: what reached the destination in each window, refused included.
        refused: what it refused in each window.
        zero_windows: each member's longest run of windows with demand and nothing served.
        first_permit_seconds: of each member with a permit, from its start to that.
        share_sum_points: the most points given and held in one document.
    """

    scenario: str
    hosts: int
    capacity: list[int]
    wanted: list[int]
    arrived: list[int]
    refused: list[int]
    zero_windows: list[int] = field(default_factory=list)
    first_permit_seconds: list[float] = field(default_factory=list)
    share_sum_points: int = POINTS


@dataclass(slots=True)
class HostAccount:
    """What one host showed, window by window from its first one on; its members add up.

    Attributes:
        host: its name.
        first_window: window of the run in which it began.
        wanted: permits that arrived wanted.
        served: permits used.
        points: its share by the document in force.
        longest_zero_windows: of any of its members.
    """

    host: str
    first_window: int
    wanted: array[int] = field(default_factory=lambda: array("q"))
    served: array[int] = field(default_factory=lambda: array("q"))
    points: array[int] = field(default_factory=lambda: array("I"))
    longest_zero_windows: int = 0

    def note(self, window: int, wanted: int, served: int, points: int) -> None:
        """Add a member's window; windows come in order."""
        place = window - self.first_window
        while len(self.wanted) <= place:
            self.wanted.append(0)
            self.served.append(0)
            self.points.append(0)
        self.wanted[place] += wanted
        self.served[place] += served
        self.points[place] += points

    def served_in(self, window: int) -> int:
        """Return what it used in a window of the run; 0 outside its life."""
        place = window - self.first_window
        return self.served[place] if 0 <= place < len(self.served) else 0

    def points_in(self, window: int) -> int:
        """Return its share in a window of the run; 0 outside its life."""
        place = window - self.first_window
        return self.points[place] if 0 <= place < len(self.points) else 0


def percentile(values: Sequence[float], part: float) -> float | None:
    """Return the value at ``part`` (0 to 1) of the sorted values; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def ratio(numerator: float, denominator: float) -> float | None:
    """Return a quotient rounded to four places; None over nothing."""
    return round(numerator / denominator, 4) if denominator else None


def ideal_by_window(
    capacity: Sequence[int], wanted: Sequence[int], *, keeps_backlog: bool
) -> list[int]:
    """Return the most that could be served in each window.

    ``min(capacity, demand)`` where unserved work is dropped; with one backlog of the whole fleet
    where it is kept.
    """
    backlog = 0
    ideal = []
    for most, arrives in zip(capacity, wanted, strict=True):
        served = min(most, arrives + backlog)
        backlog = arrives + backlog - served if keeps_backlog else 0
        ideal.append(served)
    return ideal


def summary(
    figures: Figures, *, keeps_backlog: bool, from_window: int = 0, last_windows: int = 10
) -> dict[str, object]:
    """Return the summary's keys, without the even split beside it.

    Args:
        figures: what the run showed.
        keeps_backlog: whether unserved work waited.
        from_window: windows before this one count for nothing but the fullest window.
        last_windows: so many windows at the end are stated by themselves.
    """
    ideal = ideal_by_window(figures.capacity, figures.wanted, keeps_backlog=keeps_backlog)
    served = [
        came - refused for came, refused in zip(figures.arrived, figures.refused, strict=True)
    ]
    windows = len(ideal)
    tail = max(from_window, windows - last_windows)
    parts = [
        part
        for came, most in zip(figures.arrived, figures.capacity, strict=True)
        if (part := ratio(came, most)) is not None
    ]
    return {
        "scenario": figures.scenario,
        "hosts": figures.hosts,
        "windows": windows,
        "capacity": figures.capacity[-1],
        "delivered": sum(served[from_window:]),
        "ideal": sum(ideal[from_window:]),
        "served_over_ideal": ratio(sum(served[from_window:]), sum(ideal[from_window:])),
        "last_windows": windows - tail,
        "last_windows_over_ideal": ratio(sum(served[tail:]), sum(ideal[tail:])),
        "worst_window_over_capacity": max(parts, default=None),
        "refused_by_destination": sum(figures.refused),
        "max_share_sum": ratio(figures.share_sum_points, POINTS),
        "longest_zero_windows": max(figures.zero_windows, default=0),
        "seconds_to_first_permit": {
            "p50": percentile(figures.first_permit_seconds, 0.5),
            "p99": percentile(figures.first_permit_seconds, 0.99),
        },
    }


def summary_lines(result: Mapping[str, object]) -> list[str]:
    """Return the summary as lines for a person."""
    even = result["even_split"]
    first = result["seconds_to_first_permit"]
    if not isinstance(even, dict) or not isinstance(first, dict):
        raise TypeError("the summary has no even_split or seconds_to_first_permit")

    def percent(value: object) -> str:
        return f"{value * 100:.1f} %" if isinstance(value, float) else "-"

    def seconds(value: object) -> str:
        return f"{value:.1f} s" if isinstance(value, float) else "-"

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
