"""What a simulation is told: members with their demand, events, faults, a destination.

Decides nothing beyond what a valid scenario is. Windows count from 0 at the start of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from balancer.core.model import Destination, Policy
from worker_sdk.errors import ConfigurationError, WireError
from worker_sdk.wire.strict import check_name

Demand = Callable[[int], int]
"""Window of the run to the permits that arrive wanted in it."""

WINDOWS_MAX: Final = 100_000
ROUND_WINDOWS_MAX: Final = 1000


class Style(StrEnum):
    """How a member uses the client.

    ASKING asks for all it wants and is refused the rest; BLOCKING is one thread that asks for one
    permit, waits for it, works and asks again.
    """

    ASKING = "asking"
    BLOCKING = "blocking"


class TimetableKind(StrEnum):
    """When members report and read and the balancer plans.

    WINDOW: at the ends of windows, so that a round knows exactly the window before. SERVICE: in
    turn and in the midst of a window, as the service does.
    """

    WINDOW = "window"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """One member's life.

    Attributes:
        host: its host's name; several members may share one.
        demand: what it wants.
        joins_window: window in which it starts.
        leaves_window: window in which it ends; None for the end of the run.
        is_killed: whether it ends without a goodbye.
        style: how it uses the client.
        work_ms: time of one delivery of a blocking member.
        group: its group, for policies.
    """

    host: str
    demand: Demand
    joins_window: int = 0
    leaves_window: int | None = None
    is_killed: bool = False
    style: Style = Style.ASKING
    work_ms: int = 20
    group: str | None = None

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ConfigurationError: naming the value.
        """
        try:
            check_name(self.host, "host")
        except WireError as error:
            raise ConfigurationError(f"a member's host: {error}") from error
        if self.leaves_window is not None and self.leaves_window <= self.joins_window:
            raise ConfigurationError(
                f"{self.host} joins in window {self.joins_window} and leaves in window "
                f"{self.leaves_window}; it must leave later"
            )


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong at random.

    Attributes:
        lost_reads: part of reads of the distribution that fail.
        lost_reports: part of reports that never arrive; the counters go into the next one.
        doubled_reports: part of reports that arrive a second time a round later.
        delay_rounds: rounds until a report counts; 1: a round knows the window before.
        skew_ms: members' clocks differ from the balancer's by at most this.
    """

    lost_reads: float = 0.0
    lost_reports: float = 0.0
    doubled_reports: float = 0.0
    delay_rounds: int = 1
    skew_ms: int = 0

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ConfigurationError: naming the value.
        """
        for name in ("lost_reads", "lost_reports", "doubled_reports"):
            part = getattr(self, name)
            if not 0 <= part <= 1:
                raise ConfigurationError(f"{name} is {part}; it must be from 0 to 1")
        if not 1 <= self.delay_rounds <= 1000:
            raise ConfigurationError(
                f"delay_rounds is {self.delay_rounds}; it must be from 1 to 1000"
            )
        if not 0 <= self.skew_ms <= 60_000:
            raise ConfigurationError(f"skew_ms is {self.skew_ms}; it must be from 0 to 60000")


@dataclass(frozen=True, slots=True)
class Events:
    """The timeline.

    Attributes:
        balancer_away: (from, until) windows in which no round runs.
        capacities: window to the capacity set in it.
        lost_memory: windows in which the database loses everything.
    """

    balancer_away: tuple[tuple[int, int], ...] = ()
    capacities: dict[int, int] = field(default_factory=dict)
    lost_memory: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ConfigurationError: naming the value.
        """
        for first, until in self.balancer_away:
            if not 0 <= first < until:
                raise ConfigurationError(
                    f"balancer_away has ({first}, {until}); the first window must be the smaller"
                )


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run.

    Attributes:
        name: what the summary calls it.
        capacity: permits a window at the start.
        windows: length of the run.
        members: who takes part, at any time.
        policy: of the destination.
        keeps_backlog: whether unserved work waits; else it is dropped at its window's end.
        window_seconds: length of a window.
        round_windows: windows a round.
        faults: what goes wrong at random.
        events: what happens when.
        measured_from_window: the summary's figures count from this window on.
        timetable: when members report and read and the balancer plans.
    """

    name: str
    capacity: int
    windows: int
    members: tuple[MemberPlan, ...]
    policy: Policy = field(default_factory=Policy)
    keeps_backlog: bool = False
    window_seconds: int = 60
    round_windows: int = 1
    faults: Faults = field(default_factory=Faults)
    events: Events = field(default_factory=Events)
    measured_from_window: int = 0
    timetable: TimetableKind = TimetableKind.WINDOW

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ConfigurationError: naming the value.
            PolicyError: as a destination with these values would.
        """
        for capacity in (self.capacity, *self.events.capacities.values()):
            Destination(self.name, capacity, self.window_seconds, self.policy)
        if not 1 <= self.round_windows <= ROUND_WINDOWS_MAX:
            raise ConfigurationError(
                f"round_windows is {self.round_windows}; it must be 1 to {ROUND_WINDOWS_MAX}"
            )
        if not 1 <= self.windows <= WINDOWS_MAX:
            raise ConfigurationError(f"windows is {self.windows}; it must be 1 to {WINDOWS_MAX}")
        if self.timetable is TimetableKind.SERVICE and self.round_windows != 1:
            raise ConfigurationError(
                f"round_windows is {self.round_windows}; with the service's timetable it must be 1"
            )
        if not self.members:
            raise ConfigurationError(f"scenario {self.name} has no members")


def constant(permits: int) -> Demand:
    """Return a demand that is the same in every window."""
    return lambda _window: permits


def series(permits: tuple[int, ...]) -> Demand:
    """Return a demand window by window; 0 after the last."""
    return lambda window: permits[window] if 0 <= window < len(permits) else 0


def totals_of(members: Sequence[MemberPlan], windows: int) -> list[int]:
    """Return what all members together want in each window."""
    totals = [0] * windows
    for plan in members:
        until = windows if plan.leaves_window is None else min(windows, plan.leaves_window)
        for window in range(plan.joins_window, until):
            totals[window] += plan.demand(window)
    return totals
