"""A run: windows of virtual time, in each of which members work, report, and read.

Decides the order of things within a window. By default it is the strictest one: all report at the
window's end, the round plans from that, and everybody reads before the next begins; so a round
knows exactly the window before. Delays and losses come from the scenario.

Instants in a window: members come and go at three of them, each followed by an early round;
at five sixths everybody looks for a newer document; work is done until the guard; then reports,
plan, reads.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from balancer.core.model import RoundKind
from balancer.simulation.outcome import Figures
from balancer.simulation.scenario import MemberPlan, Scenario
from balancer.simulation.service import SimulatedBalancer
from balancer.simulation.worker import SimulatedWorker
from worker_sdk.wire.shares import POINTS, interval_permits

START_WINDOW: Final = 30_000_000
COMING_PARTS: Final = (1 / 60, 1 / 3, 2 / 3)
"""Parts of a window at which members come and go."""

LOOK_PART: Final = 5 / 6
LOOK_AGAIN_MS: Final = 500
REPORT_BEFORE_MS, PLAN_BEFORE_MS, READ_BEFORE_MS = 3, 2, 1


@dataclass(frozen=True, slots=True)
class WindowView:
    """What a run shows of one window, for plots and progress."""

    window: int
    capacity: int
    wanted: int
    served: int
    held_points: int
    members: int
    shares: dict[str, float]


@dataclass(slots=True)
class Outcome:
    """A finished run.

    Attributes:
        figures: what the fleet showed.
        even: what the same demand shows under an even split.
        views: window by window.
        broken: invariants that a plan would have broken; such plans were not published.
        moved_points: points of shares that each regular round moved.
    """

    figures: Figures
    even: Figures
    views: list[WindowView] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    moved_points: list[int] = field(default_factory=list)


class Simulation:
    """One run of a scenario; `steps` runs it window by window."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.balancer = SimulatedBalancer(scenario, scenario.capacity)
        self._random = random.Random(seed)  # noqa: S311 - a simulation must be repeatable
        self._window_ms = scenario.window_seconds * 1000
        self._workers: dict[SimulatedWorker, None] = {}
        self._everybody: list[SimulatedWorker] = []
        self._deaf: set[SimulatedWorker] = set()
        self._orphaned_work = 0
        self._arrived: Counter[int] = Counter()
        self._coming = _schedule([plan.joins_window for plan in scenario.members])
        self._going: dict[int, list[SimulatedWorker]] = {}
        self._last_shares: dict[tuple[str, str], float] = {}
        self.outcome = Outcome(_empty(scenario.name), _empty(f"{scenario.name} even split"))
        self._even = _EvenSplit(scenario, self.outcome.even)

    def steps(self) -> Iterator[WindowView]:
        """Run; yield after each window."""
        for window in range(self.scenario.windows):
            yield self._step(window)
        self._finish()

    def _step(self, window: int) -> WindowView:
        scenario = self.scenario
        self._apply_events(window)
        start_ms = (START_WINDOW + window) * self._window_ms
        wanted = self._new_work(window)
        for part, coming, going in self._movements(window):
            now_ms = start_ms + int(part * self._window_ms)
            wanted += self._come_and_go(window, now_ms, part, coming, going)
        self._look(start_ms + int(LOOK_PART * self._window_ms))
        guard_ms = scenario.policy.guard_ms
        for worker in self._workers:
            self._work(worker, start_ms, start_ms + self._window_ms - guard_ms - 1)
            worker.refused(worker.backlog)
        end_ms = start_ms + self._window_ms
        self._report(window, end_ms - REPORT_BEFORE_MS)
        if (window + 1) % scenario.round_windows == 0:
            self._round(window, end_ms)
        for worker in self._workers:
            worker.end_window(keeps_backlog=scenario.keeps_backlog)
        return self._view(window, wanted)

    # -- what happens in a window

    def _apply_events(self, window: int) -> None:
        events = self.scenario.events
        self.balancer.capacity = events.capacities.get(window, self.balancer.capacity)
        if window in events.lost_memory:
            self.balancer.forget_everything()

    def _is_away(self, window: int) -> bool:
        return any(start <= window < end for start, end in self.scenario.events.balancer_away)

    def _new_work(self, window: int) -> int:
        wanted = 0
        for worker in self._workers:
            arrives = worker.plan.demand(window)
            worker.backlog += arrives
            wanted += arrives
        if self._orphaned_work and self._workers:
            each, rest = divmod(self._orphaned_work, len(self._workers))
            for number, worker in enumerate(self._workers):
                worker.backlog += each + (number < rest)
            self._orphaned_work = 0
        return wanted

    def _movements(
        self, window: int
    ) -> Iterator[tuple[float, list[MemberPlan], list[SimulatedWorker]]]:
        coming = [self.scenario.members[number] for number in self._coming.get(window, ())]
        going = self._going.pop(window, [])
        if not coming and not going:
            return
        for number, part in enumerate(COMING_PARTS):
            is_first = window == 0 and number == 0
            yield (
                part,
                coming if is_first else [] if window == 0 else coming[number :: len(COMING_PARTS)],
                going[number :: len(COMING_PARTS)],
            )

    def _come_and_go(
        self,
        window: int,
        now_ms: int,
        part: float,
        coming: list[MemberPlan],
        going: list[SimulatedWorker],
    ) -> int:
        """Let members come and go; return the work that comes with them, less what goes."""
        start_ms = (START_WINDOW + window) * self._window_ms
        wanted = 0
        for worker in going:
            unarrived = min(worker.backlog, int(worker.plan.demand(window) * (1 - part)))
            worker.backlog -= unarrived
            wanted -= unarrived
            self._work(worker, start_ms, now_ms + worker.skew_ms)
            del self._workers[worker]
            worker.end_window(keeps_backlog=True)
            if self.scenario.keeps_backlog:
                self._orphaned_work += worker.backlog
            if not worker.plan.is_killed:
                self.balancer.receive(worker.goodbye(now_ms), now_ms)
        newcomers = []
        for plan in coming:
            worker = self._start(plan, now_ms)
            worker.backlog = int(plan.demand(window) * (1 - part)) if window else plan.demand(0)
            wanted += worker.backlog
            newcomers.append(worker)
        if not self._is_away(window):
            self.balancer.early_round(now_ms + LOOK_AGAIN_MS // 2)
        for worker in newcomers:
            self._read(worker, now_ms + LOOK_AGAIN_MS)
        return wanted

    def _start(self, plan: MemberPlan, now_ms: int) -> SimulatedWorker:
        number = len(self._everybody) + 1
        skew_ms = self.scenario.faults.skew_ms
        skew_ms = self._random.randint(-skew_ms, skew_ms) if skew_ms else 0
        worker = SimulatedWorker(plan, f"i{number}", now_ms, skew_ms)
        self._workers[worker] = None
        self._everybody.append(worker)
        if plan.leaves_window is not None:
            self._going.setdefault(plan.leaves_window, []).append(worker)
        self.balancer.receive(worker.hello(now_ms), now_ms)
        return worker

    def _work(self, worker: SimulatedWorker, from_ms: int, until_ms: int) -> None:
        served = worker.work_until(from_ms, until_ms)
        self._arrived[(until_ms - worker.skew_ms) // self._window_ms - START_WINDOW] += served

    def _look(self, now_ms: int) -> None:
        newest = self.balancer.newest_epoch()
        for worker in self._workers:
            if worker.read_epoch < newest and worker not in self._deaf:
                self._read(worker, now_ms)

    def _read(self, worker: SimulatedWorker, now_ms: int) -> None:
        worker.read(tuple(self.balancer.read(worker.member)), now_ms)

    def _report(self, window: int, now_ms: int) -> None:
        faults = self.scenario.faults
        arrives = window // self.scenario.round_windows + faults.delay_rounds - 1
        for worker in self._workers:
            batch = worker.report(now_ms)
            if batch is None:
                continue
            if faults.lost_reports and self._random.random() < faults.lost_reports:
                worker.report_lost(batch)
                continue
            self.balancer.send(batch, arrives)
            if faults.doubled_reports and self._random.random() < faults.doubled_reports:
                self.balancer.send(batch, arrives + 1)

    def _round(self, window: int, end_ms: int) -> None:
        if self._is_away(window):
            return
        self.balancer.receive_due(window // self.scenario.round_windows, end_ms - PLAN_BEFORE_MS)
        self.balancer.round(RoundKind.REGULAR, end_ms - PLAN_BEFORE_MS)
        self._note_moves()
        lost = self.scenario.faults.lost_reads
        self._deaf = (
            {worker for worker in self._workers if self._random.random() < lost} if lost else set()
        )
        for worker in self._workers:
            if worker not in self._deaf:
                self._read(worker, end_ms - READ_BEFORE_MS)

    def _note_moves(self) -> None:
        shares = self.balancer.share_parts()
        if self._last_shares:
            moved = sum(
                max(0.0, part - self._last_shares.get(member, 0.0))
                for member, part in shares.items()
            )
            self.outcome.moved_points.append(int(moved * POINTS))
        self._last_shares = shares

    # -- the account

    def _view(self, window: int, wanted: int) -> WindowView:
        figures = self.outcome.figures
        in_force = next(
            (
                known
                for known in self.balancer.published
                if known.terms.covers(START_WINDOW + window)
            ),
            None,
        )
        capacity = self.balancer.capacity if in_force is None else in_force.terms.capacity
        figures.capacity.append(capacity)
        figures.wanted.append(wanted)
        self._even.step(window, capacity, wanted, list(self._workers))
        shares: Counter[str] = Counter()
        if in_force is not None:
            for (host, _), entry in in_force.entries.items():
                shares[host] += sum(end - start for start, end in entry.intervals)
        view = WindowView(
            window=window,
            capacity=capacity,
            wanted=wanted,
            served=self._arrived[window],
            held_points=0 if in_force is None else in_force.held_points,
            members=len(self._workers),
            shares={host: points / POINTS for host, points in shares.items()},
        )
        self.outcome.views.append(view)
        return view

    def _finish(self) -> None:
        outcome = self.outcome
        figures = outcome.figures
        figures.hosts = len({worker.plan.host for worker in self._everybody})
        figures.arrived = [self._arrived[window] for window in range(self.scenario.windows)]
        # A destination answers 429 beyond its capacity.
        figures.refused = [
            max(0, came - most)
            for came, most in zip(figures.arrived, figures.capacity, strict=True)
        ]
        figures.zero_windows = [worker.longest_zero_windows for worker in self._everybody]
        figures.first_permit_seconds = [
            (worker.first_permit_ms - worker.started_ms) / 1000
            for worker in self._everybody
            if worker.first_permit_ms is not None
        ]
        figures.share_sum_points = self.balancer.largest_sum_points
        outcome.broken = self.balancer.broken
        self._even.finish(figures.hosts)


class _EvenSplit:
    """The same demand, the capacity split evenly among the live members of each window."""

    def __init__(self, scenario: Scenario, figures: Figures) -> None:
        self._keeps_backlog = scenario.keeps_backlog
        self._figures = figures
        self._backlog: dict[SimulatedWorker, int] = {}
        self._zero: Counter[SimulatedWorker] = Counter()
        self._longest: Counter[SimulatedWorker] = Counter()

    def step(self, window: int, capacity: int, wanted: int, live: list[SimulatedWorker]) -> None:
        served_total = 0
        present = set(live)
        left = sum(work for worker, work in self._backlog.items() if worker not in present)
        backlog = {worker: self._backlog.get(worker, 0) for worker in live}
        count = len(live)
        for number, worker in enumerate(live):
            start, end = POINTS * number // count, POINTS * (number + 1) // count
            permits = interval_permits(capacity, start, end, START_WINDOW + window)
            work = backlog[worker] + worker.plan.demand(window)
            if left:
                work += left // count + (number < left % count)
            served = min(permits, work)
            self._zero[worker] = self._zero[worker] + 1 if work and not served else 0
            self._longest[worker] = max(self._longest[worker], self._zero[worker])
            backlog[worker] = work - served if self._keeps_backlog else 0
            served_total += served
        self._backlog = backlog
        self._figures.capacity.append(capacity)
        self._figures.wanted.append(wanted)
        self._figures.arrived.append(served_total)
        self._figures.refused.append(0)

    def finish(self, hosts: int) -> None:
        self._figures.hosts = hosts
        self._figures.zero_windows = list(self._longest.values())


def _schedule(windows: list[int]) -> dict[int, list[int]]:
    schedule: dict[int, list[int]] = {}
    for number, window in enumerate(windows):
        schedule.setdefault(window, []).append(number)
    return schedule


def _empty(name: str) -> Figures:
    return Figures(name, 0, [], [], [], [])
