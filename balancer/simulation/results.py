"""The results of a run: each window as a whole, each host's account, and whatever went wrong.

Decides nothing; knows no fleet and no time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from balancer.simulation.outcome import Figures, HostAccount


@dataclass(frozen=True, slots=True)
class WindowView:
    """One window of a run as a whole.

    Attributes:
        window: of the run.
        capacity: of the document in force, else of the last one that was.
        bound: what may be spent: the capacity, or what older documents promised (rule 10).
        wanted: permits that arrived wanted.
        served: permits used.
        held_points: kept back for somebody who may still be spending them.
        members: live at its end.
    """

    window: int
    capacity: int
    bound: int
    wanted: int
    served: int
    held_points: int
    members: int


@dataclass(slots=True)
class Outcome:
    """A finished run.

    Attributes:
        figures: what the fleet showed.
        even: what the same demand shows under an even split.
        views: window by window.
        hosts: host by host.
        over: windows of the run in which more was spent than their bound.
        broken: invariants that a plan would have broken; such plans were not published.
        moved_points: window to the points of shares that the regular round at its end moved.
    """

    figures: Figures
    even: Figures
    views: list[WindowView] = field(default_factory=list)
    hosts: dict[str, HostAccount] = field(default_factory=dict)
    over: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    moved_points: dict[int, int] = field(default_factory=dict)
