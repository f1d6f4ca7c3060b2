"""A fleet under one of the simple rules: the rule once a window, its shares in whole permits.

Decides how shares become permits and who already has the new ones. Knows no rule. In its model

- the rule is asked before each window but the first and knows all windows before: one round's
  delay; at first all have an even share;
- shares become whole permits as this project's do, so that no rule loses permits to rounding;
- a newcomer has nothing until the first round that knows it; one that says goodbye is forgotten at
  once; one that is killed keeps its share for three rounds;
- everybody has the new shares in time, or (`half_late`) every second member spends by those of the
  round before, as readers of a file do that look at it before and after it is replaced.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from balancer.simulation.outcome import Figures
from balancer.simulation.scenario import MemberPlan, Scenario
from benchmarks.allocators import even
from benchmarks.allocators.told import HISTORY_WINDOWS, Allocate, Shares, Told, Window
from worker_sdk.wire.shares import POINTS, rotation_points

KILLED_ROUNDS: Final = 3
TINY: Final = 1e-9

Coming = Callable[[], Mapping[str, int]]


@dataclass(slots=True)
class _Member:
    plan: MemberPlan
    is_late: bool
    work: int = 0
    zero_windows: int = 0
    longest_zero_windows: int = 0


@dataclass(slots=True)
class Run:
    """What a fleet showed.

    Attributes:
        figures: as of any run.
        moved_points: window to the points of shares that the round before it moved.
        planning_seconds: processor time of each round.
    """

    figures: Figures
    moved_points: dict[int, int] = field(default_factory=dict)
    planning_seconds: list[float] = field(default_factory=list)


class Fleet:
    """One run of a scenario under one rule."""

    def __init__(
        self, scenario: Scenario, rule: Callable[[Coming], Allocate], *, half_late: bool
    ) -> None:
        self._scenario = scenario
        self._half_late = half_late
        self._allocate = rule(self._coming)
        self._live: dict[str, _Member] = {}
        self._left: list[_Member] = []
        self._stale: dict[str, tuple[int, Told]] = {}
        self._history: deque[Window] = deque(maxlen=HISTORY_WINDOWS)
        self._shares: Shares = {}
        self._orphaned_work = 0
        hosts = len(scenario.members)
        self.run = Run(Figures(scenario.name, hosts, [], [], [], []))

    def finish(self) -> Run:
        """Run to the end."""
        for window in range(self._scenario.windows):
            self._step(window)
        everybody = [*self._left, *self._live.values()]
        self.run.figures.zero_windows = [member.longest_zero_windows for member in everybody]
        return self.run

    def _coming(self) -> Mapping[str, int]:
        return {name: member.work for name, member in self._live.items()}

    def _step(self, window: int) -> None:
        figures, capacity = self.run.figures, self._scenario.capacity
        self._leave(window)
        wanted = self._arrive(window)
        before = self._shares
        self._shares = self._plan(window)
        new = whole_permits(self._shares, window)
        old = whole_permits(before, window) if self._half_late else {}
        told: dict[str, Told] = {}
        for name, member in self._live.items():
            permits = new.get(name, 0)
            if member.is_late:
                permits = old.get(name, permits)
            told[name] = self._serve(member, permits)
        arrived = sum(account.used for account in told.values())
        for name, (until, last) in list(self._stale.items()):
            if window >= until:
                del self._stale[name]
            else:
                told[name] = last
        self._history.append(told)
        figures.capacity.append(capacity)
        figures.wanted.append(wanted)
        figures.arrived.append(arrived)
        figures.refused.append(max(0, arrived - capacity))

    def _plan(self, window: int) -> Shares:
        if not window or not self._history[-1]:
            return even.split(self._live, self._scenario.capacity)
        start = time.thread_time()
        shares = self._allocate(self._history, self._scenario.capacity, self._shares)
        self.run.planning_seconds.append(time.thread_time() - start)
        moved = sum(max(0.0, share - self._shares.get(name, 0.0)) for name, share in shares.items())
        if self._scenario.capacity:
            self.run.moved_points[window] = round(moved / self._scenario.capacity * POINTS)
        return shares

    def _leave(self, window: int) -> None:
        going = [name for name, member in self._live.items() if member.plan.leaves_window == window]
        last = self._history[-1] if self._history else {}
        for name in going:
            member = self._live.pop(name)
            self._left.append(member)
            self._orphaned_work += member.work
            if member.plan.is_killed and name in last:
                self._stale[name] = (window + KILLED_ROUNDS - 1, last[name])
            elif self._history:
                self._history[-1] = {who: what for who, what in last.items() if who != name}
                last = self._history[-1]

    def _arrive(self, window: int) -> int:
        for plan in self._scenario.members:
            if plan.joins_window == window:
                self._live[plan.host] = _Member(plan, is_late=len(self._live) % 2 == 1)
        each, odd = divmod(self._orphaned_work, len(self._live)) if self._live else (0, 0)
        wanted = 0
        for number, member in enumerate(self._live.values()):
            arrives = member.plan.demand(window)
            wanted += arrives
            member.work += arrives + each + (number < odd)
        self._orphaned_work = 0
        return wanted

    def _serve(self, member: _Member, permits: int) -> Told:
        used = min(permits, member.work)
        if member.work and not used:
            member.zero_windows += 1
            member.longest_zero_windows = max(member.longest_zero_windows, member.zero_windows)
        else:
            member.zero_windows = 0
        denied = member.work - used
        member.work = denied if self._scenario.keeps_backlog else 0
        return Told(used, denied)


def whole_permits(shares: Shares, window: int) -> dict[str, int]:
    """Return shares as whole permits: laid end to end, the odd ones going round by window."""
    up_to = rotation_points(window) / POINTS
    permits: dict[str, int] = {}
    before = math.floor(up_to + TINY)
    for name, share in shares.items():
        up_to += share
        now = math.floor(up_to + TINY)
        permits[name] = now - before
        before = now
    return permits
