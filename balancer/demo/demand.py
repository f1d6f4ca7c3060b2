"""What the demonstration's hosts want, window by window, and how a worker works that off.

Decides the scenarios: which hosts exist from when to when, how they run and what they want.
Knows no process, no socket and no clock; windows count from 0 at the start of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from balancer.simulation.traces import parse_capacity, read_counts

ARRIVAL_PART: Final = 0.8
"""Work of a window arrives evenly over this first part of it."""

PROCESSES_OF_A_TRACE: Final = 8

CAPACITY_MAX: Final = 1_000_000
"""Real processes on one machine send no more in a window."""


class Style(StrEnum):
    """How a worker process runs."""

    BLOCKING = "blocking"
    THREADS = "threads"
    ASYNCIO = "asyncio"


class End(StrEnum):
    """How a worker process ends before the run does."""

    LEAVES = "leaves"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class HostPlan:
    """One worker process of the run.

    Attributes:
        host: its name.
        style: how it runs.
        source: where it reads its share, ``s3`` or ``http``.
        demand: permits wanted in each window of the run; 0 outside its life.
        starts_at: window in which it is started.
        ends_at: window at whose start it ends; None for the end of the run.
        end: how it ends then.
    """

    host: str
    style: Style
    source: str
    demand: tuple[int, ...]
    starts_at: int = 0
    ends_at: int | None = None
    end: End = End.LEAVES

    def lives_in(self, window: int) -> bool:
        """Say whether the host exists in a window."""
        return self.starts_at <= window and (self.ends_at is None or window < self.ends_at)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run of the demonstration.

    Attributes:
        name: what it is called in the summary.
        capacity: permits a window.
        windows: length of the run.
        hosts: who takes part.
        keeps_backlog: whether work that was not served waits (else it is dropped at the end of
            its window).
        newcomer_reserve_points: as in a destination's policy.
        tail_windows: the summary states the use of so many last windows by itself.
    """

    name: str
    capacity: int
    windows: int
    hosts: tuple[HostPlan, ...]
    keeps_backlog: bool
    newcomer_reserve_points: int
    tail_windows: int = 10


def two_hosts(capacity: int, windows: int) -> Scenario:
    """Return the founding example: one host needs 20 % of the capacity, one 80 %."""
    fifth = capacity // 5
    return Scenario(
        name="two-hosts",
        capacity=capacity,
        windows=windows,
        hosts=(
            HostPlan("host-a", Style.BLOCKING, "s3", (fifth,) * windows),
            HostPlan("host-b", Style.ASYNCIO, "http", (capacity - fifth,) * windows),
        ),
        keeps_backlog=True,
        newcomer_reserve_points=0,
    )


def fleet(capacity: int, windows: int) -> Scenario:
    """Return a fleet whose processes join, leave and are killed, a little above the capacity."""
    parts = (4, 8, 12, 20, 30, 16)
    styles = (Style.BLOCKING, Style.ASYNCIO, Style.THREADS)
    hosts = []
    lives: tuple[tuple[int, int | None, End], ...] = (
        (0, None, End.LEAVES),
        (0, windows // 2, End.LEAVES),
        (0, None, End.LEAVES),
        (0, None, End.LEAVES),
        (0, windows * 5 // 8, End.KILLED),
        (0, None, End.LEAVES),
        (windows // 4, None, End.LEAVES),
        (windows // 2, None, End.LEAVES),
        (windows * 3 // 4, None, End.LEAVES),
    )
    wanted = (*parts, 10, 8, 30)
    for number, ((starts_at, ends_at, end), percent) in enumerate(zip(lives, wanted, strict=True)):
        until = windows if ends_at is None else ends_at
        demand = tuple(
            capacity * percent * 12 // 1000 if starts_at <= window < until else 0
            for window in range(windows)
        )
        hosts.append(
            HostPlan(
                host=f"host-{number + 1}",
                style=styles[number % len(styles)],
                source="http" if number % 2 else "s3",
                demand=demand,
                starts_at=starts_at,
                ends_at=ends_at,
                end=end,
            )
        )
    return _dropping("fleet", capacity, windows, tuple(hosts))


def trace(path: Path, capacity: str, minutes: int) -> Scenario:
    """Return a scenario from a trace file, one minute of it a window, on eight processes.

    Args:
        path: CSV with columns ``minute_1``, ``minute_2`` …; a row is a host.
        capacity: permits a window, or ``pNN`` for a percentile of the window totals.
        minutes: how many of its minutes.

    Raises:
        ConfigurationError: where the file or an argument cannot be used.
    """
    rows = read_counts(path, windows=minutes).rows
    folded = [[0] * minutes for _ in range(min(PROCESSES_OF_A_TRACE, len(rows)))]
    for number, row in enumerate(rows):
        host = folded[number % len(folded)]
        for minute, calls in enumerate(row):
            host[minute] += calls
    totals = [sum(column) for column in zip(*rows, strict=True)]
    styles = (Style.BLOCKING, Style.ASYNCIO, Style.THREADS, Style.ASYNCIO)
    hosts = tuple(
        HostPlan(
            f"host-{number + 1}",
            styles[number % len(styles)],
            "http" if number % 2 else "s3",
            tuple(demand),
        )
        for number, demand in enumerate(folded)
    )
    return _dropping(path.name, parse_capacity(capacity, totals, most=CAPACITY_MAX), minutes, hosts)


def _dropping(name: str, capacity: int, windows: int, hosts: tuple[HostPlan, ...]) -> Scenario:
    return Scenario(
        name=name,
        capacity=capacity,
        windows=windows,
        hosts=hosts,
        keeps_backlog=False,
        newcomer_reserve_points=10_000_000,
    )


class Backlog:
    """One worker's work: arrives by plan, is taken piece by piece, waits or is dropped.

    Not safe for threads; the worker brings the lock.
    """

    def __init__(
        self, demand: tuple[int, ...], first_window: int, window_ms: int, *, keeps: bool
    ) -> None:
        self._demand = demand
        self._first_window = first_window
        self._window_ms = window_ms
        self._keeps = keeps
        self._taken = [0] * len(demand)
        self._oldest = 0

    def start_now(self, now_ms: int) -> None:
        """Forget the work of windows already past: a process that is started late has none."""
        self._oldest = max(0, now_ms // self._window_ms - self._first_window)

    def arrived(self, window: int, now_ms: int) -> int:
        """Return how much of a window's work (relative window) has come by ``now_ms``."""
        if not 0 <= window < len(self._demand):
            return 0
        start_ms = (self._first_window + window) * self._window_ms
        part = (now_ms - start_ms) / (ARRIVAL_PART * self._window_ms)
        # The first piece comes with the window, the last just before the arrivals end.
        return max(0, min(self._demand[window], int(part * self._demand[window]) + 1))

    def waiting(self, now_ms: int) -> int:
        """Return the pieces of work that have come and were neither taken nor dropped."""
        return sum(
            self.arrived(window, now_ms) - self._taken[window] for window in self._open(now_ms)
        )

    def take(self, now_ms: int) -> int | None:
        """Take one piece, the oldest first; return the window it came in, None if none waits."""
        for window in self._open(now_ms):
            if self.arrived(window, now_ms) > self._taken[window]:
                self._taken[window] += 1
                return window
        return None

    def put_back(self, window: int) -> None:
        """Give a piece back that was not delivered."""
        self._taken[window] -= 1

    def _open(self, now_ms: int) -> range:
        present = min(now_ms // self._window_ms - self._first_window, len(self._demand) - 1)
        if not self._keeps:
            self._oldest = max(self._oldest, present)
        while self._oldest < present and self._taken[self._oldest] >= self._demand[self._oldest]:
            self._oldest += 1
        return range(self._oldest, present + 1)
