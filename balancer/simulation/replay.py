"""Recorded rounds as a scenario: what members asked for then, to be planned by another policy.

Decides which window a recorded demand belongs to, when members came and went, and what stands where
nothing was recorded. Knows no store: rounds are added in ascending order.

A round knows each member's last account, so what was asked in it is taken for the windows since the
round before. That demand does not depend on the shares of then as far as refused work was counted;
work that was kept and asked for again is in it more than once. A newcomer's demand before its first
account is that of its first account. A member that was silent to the end of its record ended there
without a goodbye.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low
from typing import Final

from balancer.core.model import Policy
from balancer.core.record import LEFT, DetailRecord
from balancer.simulation.scenario import (
    ROUND_WINDOWS_MAX,
    WINDOWS_MAX,
    Events,
    MemberPlan,
    Scenario,
    series,
)
from worker_sdk.errors import ConfigurationError
from worker_sdk.wire.distribution import Member

VALUES_MAX: Final = 20_000_000
"""Members times windows of one replay."""

WARM_WINDOWS: Final = 2
"""The simulated fleet starts anew; so many windows of a longer replay are not measured."""

SILENT: Final = "silent"


@dataclass(slots=True)
class _Life:
    """What is recorded of a member.

    Attributes:
        came_window: in which it was first named; windows count from Unix time here.
        asked: (number of the round that planned it, permits asked for, whether it was silent).
        left_window: in which its goodbye was seen; None for none.
        group: its group; None for none.
    """

    came_window: int
    asked: list[tuple[int, int, bool]] = field(default_factory=list)
    left_window: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """A recording as a scenario.

    Attributes:
        scenario: to run.
        rounds: recorded rounds that it comes from.
        filled_windows: windows in gaps between them, for which the next round's demand stands.
        unknown_members: members left out, since no demand of theirs was recorded.
    """

    scenario: Scenario
    rounds: int
    filled_windows: int
    unknown_members: int


class Recording:
    """Takes recorded rounds of one destination, oldest first.

    Args:
        destination: its name.
    """

    def __init__(self, destination: str) -> None:
        self._destination = destination
        self._window_seconds = 0
        self._windows: list[int] = []
        self._capacities: list[int] = []
        self._lives: dict[Member, _Life] = {}
        self._left_out = 0

    def add(self, detail: DetailRecord) -> None:
        """Take a round.

        Raises:
            ConfigurationError: where its windows have another length than those before.
        """
        if self._window_seconds not in (0, detail.window_seconds):
            raise ConfigurationError(
                f"the windows of {self._destination!r} changed from {self._window_seconds} s to "
                f"{detail.window_seconds} s; replay what is before or what is after"
            )
        self._window_seconds = detail.window_seconds
        window = detail.planned_at_ms // (detail.window_seconds * 1000)
        if detail.whole:
            self._begin_round(window, detail)
        groups = detail.groups or (None,) * len(detail.reasons)
        for reason, group in zip(detail.reasons, groups, strict=True):
            life = self._lives.setdefault((reason.host, reason.instance), _Life(window))
            life.group = group or life.group
            if reason.rule == LEFT:
                life.left_window = window
            elif detail.whole:
                asked = (len(self._windows) - 1, reason.asked_permits, reason.rule == SILENT)
                if life.asked and life.asked[-1][0] == asked[0]:
                    life.asked.pop()  # planned twice in one window: the later one counts
                life.asked.append(asked)

    def _begin_round(self, window: int, detail: DetailRecord) -> None:
        self._left_out = max(self._left_out, detail.left_out)
        if self._windows and self._windows[-1] == window:
            self._capacities[-1] = detail.capacity
            return
        self._windows.append(window)
        self._capacities.append(detail.capacity)

    def replay(self, policy: Policy) -> Replay:
        """Return the recording as a scenario.

        Args:
            policy: to plan by.

        Raises:
            ConfigurationError: where too little was recorded, or too much for one run.
        """
        if len(self._windows) < 2:
            raise ConfigurationError(
                f"{len(self._windows)} rounds with members of {self._destination!r} are kept in "
                "that time; a replay needs two and more"
            )
        first, last = self._windows[0], self._windows[-1]
        windows = last - first + 1
        if windows > WINDOWS_MAX or windows * len(self._lives) > VALUES_MAX:
            raise ConfigurationError(
                f"{windows} windows of {len(self._lives)} members are too much for one replay; "
                f"at most {WINDOWS_MAX} windows and {VALUES_MAX} values are good"
            )
        steps = [after - before for before, after in pairwise(self._windows)]
        usual = max(1, median_low(steps))
        plans = [
            plan
            for (host, _), life in sorted(self._lives.items())
            if (plan := self._plan(host, life, first, windows)) is not None
        ]
        scenario = Scenario(
            name=f"replay of {self._destination}",
            capacity=self._capacities[0],
            windows=windows,
            members=tuple(plans),
            policy=policy,
            window_seconds=self._window_seconds,
            round_windows=min(usual, ROUND_WINDOWS_MAX),
            events=Events(capacities=self._changes(first)),
            measured_from_window=WARM_WINDOWS if windows > 2 * WARM_WINDOWS else 0,
        )
        return Replay(
            scenario,
            rounds=len(self._windows),
            filled_windows=sum(step - usual for step in steps if step > 2 * usual),
            unknown_members=len(self._lives) - len(plans) + self._left_out,
        )

    def _changes(self, first: int) -> dict[int, int]:
        changes: dict[int, int] = {}
        before = self._capacities[0]
        for window, capacity in zip(self._windows, self._capacities, strict=True):
            if capacity != before:
                changes[window - first] = before = capacity
        return changes

    def _plan(self, host: str, life: _Life, first: int, windows: int) -> MemberPlan | None:
        told = list(life.asked)
        while told and told[-1][2]:
            told.pop()
        if not told:
            return None
        number, last = told[0][0], told[-1][0]
        joins = life.came_window - first if number else 0
        is_silent = len(told) < len(life.asked)
        leaves = windows
        if life.left_window is not None:
            leaves = life.left_window - first
        elif last + 1 < len(self._windows):
            leaves = self._windows[last] + 1 - first
        return MemberPlan(
            host=host,
            demand=series(self._demand(told, first, windows)),
            joins_window=joins,
            leaves_window=None if leaves >= windows else max(leaves, joins + 1),
            is_killed=is_silent and life.left_window is None,
            group=life.group,
        )

    def _demand(
        self, told: Sequence[tuple[int, int, bool]], first: int, windows: int
    ) -> tuple[int, ...]:
        """Return what it asked for in each window; a round speaks for those since the one before.

        Where a round did not name it, the next one that does speaks for those windows too.
        """
        demand = [0] * windows
        filled = 0
        for number, permits, _ in told:
            until = self._windows[number] - first + 1
            demand[filled:until] = [permits] * (until - filled)
            filled = until
        return tuple(demand)
