"""A run: windows of virtual time, in each of which members work, report, and read.

Decides the order of things within a window, by one of two timetables:

- ``window``: all report at the window's end, the round plans from that, and everybody reads before
  the next begins; so a round knows exactly the window before.
- ``service``: as the service does it. Work arrives evenly, members report in their own turn over
  seconds 0 to 36 of 60, the round plans at 38, everybody reads in turn over 48 to 58.

In both, members come and go at three instants of a window, each followed by an early round (as is
the first one of a window that no document covers); where the policy lends, there are further early
rounds, before each of which those that have run out say so; at five sixths at the latest everybody
looks for a newer document; the last work is done just before the guard. Delays and losses come from
the scenario.

Where unserved work is kept, that of a member that ends goes to one that joins at the same instant,
its successor; where none does, evenly to everybody.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from balancer.app.agenda import plan_at_ms
from balancer.core.model import RoundKind
from balancer.simulation.even_split import EvenSplit
from balancer.simulation.outcome import Figures, HostAccount
from balancer.simulation.results import Outcome, WindowView
from balancer.simulation.scenario import MemberPlan, Scenario, TimetableKind
from balancer.simulation.service import SimulatedBalancer
from balancer.simulation.worker import SimulatedWorker
from worker_sdk.runtime.timetable import make_timetable
from worker_sdk.wire.distribution import Member
from worker_sdk.wire.shares import share_points

START_WINDOW: Final = 30_000_000
COMING_PARTS: Final = (1 / 60, 1 / 3, 2 / 3)
"""Parts of a window at which members come and go."""

LENDING_PARTS: Final = tuple(number / 20 for number in range(1, 20))
"""Parts of a window at which members look whether they have run out, and points are lent."""

LOOK_PART: Final = 5 / 6
LOOK_AGAIN_MS: Final = 500
REPORT_BEFORE_MS, PLAN_BEFORE_MS, READ_BEFORE_MS = 3, 2, 1


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
        self._borrowers: dict[SimulatedWorker, None] = {}
        self._orphaned_work = 0
        self._start_ms = 0
        self._capacity = self._bound = scenario.capacity
        self._gone: list[SimulatedWorker] = []
        self._heirs: dict[Hashable, Hashable] = {}
        self._arrived: Counter[int] = Counter()
        self._coming: dict[int, list[MemberPlan]] = {}
        for plan in scenario.members:
            self._coming.setdefault(plan.joins_window, []).append(plan)
        self._going: dict[int, list[SimulatedWorker]] = {}
        self._last_shares: dict[Member, int] = {}
        self.outcome = Outcome(_empty(scenario.name), _empty(f"{scenario.name} even split"))
        self._even = EvenSplit(keeps_backlog=scenario.keeps_backlog)

    def steps(self) -> Iterator[WindowView]:
        """Run; yield after each window."""
        for window in range(self.scenario.windows):
            yield self._step(window)
        self._finish()

    def _step(self, window: int) -> WindowView:
        self._apply_events(window)
        self._gone, self._heirs = [], {}
        self._borrowers.clear()
        if self.scenario.policy.lend_points:
            for worker in self._workers:  # what they see now is of earlier windows
                worker.report_out_of_turn((START_WINDOW + window) * self._window_ms)
        self._share_orphaned_work()
        self._start_ms = (START_WINDOW + window) * self._window_ms
        end_ms = self._start_ms + self._window_ms
        if self.scenario.timetable is TimetableKind.SERVICE:
            self._run_as_the_service(window)
            return self._close(window)
        self._bring_work(window, 1.0)
        for turn in range(len(COMING_PARTS)):
            self._come_and_go(window, turn)
            self._report_and_lend(window, [], 0, turn)
        self._look(self._start_ms + int(LOOK_PART * self._window_ms))
        self._finish_work()
        for worker in self._workers:
            worker.refuse_waiting()
            self._report(worker, window, end_ms - REPORT_BEFORE_MS)
        view = self._close(window)
        if (window + 1) % self.scenario.round_windows == 0:
            self._round(window, end_ms - PLAN_BEFORE_MS)
            self._look(end_ms - READ_BEFORE_MS)
        return view

    def _run_as_the_service(self, window: int) -> None:
        start_ms = self._start_ms
        turns = sorted(
            (worker.timetable.report_seconds, number, worker)
            for number, worker in enumerate(self._workers)
        )
        self._come_and_go(window, 0)
        reported = self._report_and_lend(window, turns, 0, 0)
        self._come_and_go(window, 1)
        reported = self._report_and_lend(window, turns, reported, 1)
        self._report_in_turn(window, turns, reported, 1.0)
        self._round(window, plan_at_ms(START_WINDOW + window, self._window_ms))
        self._come_and_go(window, 2)
        self._report_and_lend(window, [], 0, 2)
        newest = self.balancer.newest_epoch()
        for worker in self._workers:
            if worker.read_epoch < newest and worker not in self._deaf:
                self._read(worker, start_ms + int(worker.timetable.read_seconds * 1000))
        self._bring_work(window, 1.0)
        self._finish_work()
        if not self.scenario.keeps_backlog:
            for worker in self._workers:
                worker.refuse_waiting()

    def _report_and_lend(
        self, window: int, turns: list[tuple[float, int, SimulatedWorker]], reported: int, turn: int
    ) -> int:
        """Let members report and borrow after a coming, before the next; return how many have."""
        until_part = COMING_PARTS[turn + 1] if turn + 1 < len(COMING_PARTS) else 1.0
        if self.scenario.policy.lend_points:
            for part in LENDING_PARTS:
                if COMING_PARTS[turn] <= part < until_part:
                    reported = self._report_in_turn(window, turns, reported, part)
                    self._lend(window, part)
        return self._report_in_turn(window, turns, reported, until_part) if turns else reported

    def _lend(self, window: int, part: float) -> None:
        """Let those that have run out say so, run an early round, and let them look."""
        now_ms = self._start_ms + int(part * self._window_ms)
        faults = self.scenario.faults
        is_service = self.scenario.timetable is TimetableKind.SERVICE
        for worker in self._workers:
            if is_service:
                worker.bring_work(window, part)
            self._work(worker, self._start_ms, now_ms + worker.skew_ms)
            batch = worker.report_out_of_turn(now_ms)
            if batch is None:
                continue
            self._borrowers[worker] = None
            if not faults.lost_reports or self._random.random() >= faults.lost_reports:
                self.balancer.receive(batch, now_ms)
        if not self._borrowers or self._is_away(window):
            return
        self.balancer.round(RoundKind.EARLY, now_ms + LOOK_AGAIN_MS // 2)
        newest = self.balancer.newest_epoch()
        for worker in self._borrowers:
            if worker.read_epoch < newest and worker in self._workers and worker not in self._deaf:
                self._read(worker, now_ms + LOOK_AGAIN_MS)

    def _report_in_turn(
        self, window: int, turns: list[tuple[float, int, SimulatedWorker]], first: int, part: float
    ) -> int:
        """Let members report whose turn is before a part of the window; return how many have."""
        number = first
        while number < len(turns) and turns[number][0] < part * self.scenario.window_seconds:
            seconds, _, worker = turns[number]
            number += 1
            if worker not in self._workers:
                continue
            now_ms = self._start_ms + int(seconds * 1000)
            worker.bring_work(window, seconds / self.scenario.window_seconds)
            self._work(worker, self._start_ms, now_ms + worker.skew_ms)
            worker.refuse_waiting()
            self._report(worker, window, now_ms)
        return number

    # -- what happens in a window

    def _apply_events(self, window: int) -> None:
        events = self.scenario.events
        self.balancer.capacity = events.capacities.get(window, self.balancer.capacity)
        if window in events.lost_memory:
            self.balancer.forget_everything()

    def _is_away(self, window: int) -> bool:
        return any(start <= window < end for start, end in self.scenario.events.balancer_away)

    def _share_orphaned_work(self) -> None:
        if not self._orphaned_work or not self._workers:
            return
        each, odd = divmod(self._orphaned_work, len(self._workers))
        for number, worker in enumerate(self._workers):
            worker.backlog += each + (number < odd)
        self._orphaned_work = 0

    def _bring_work(self, window: int, part: float) -> None:
        for worker in self._workers:
            worker.bring_work(window, part)

    def _finish_work(self) -> None:
        guard_ms = self.scenario.policy.guard_ms
        until_ms = self._start_ms + self._window_ms - guard_ms - 1
        for worker in self._workers:
            self._work(worker, self._start_ms, until_ms)

    def _come_and_go(self, window: int, turn: int) -> None:
        # The fleet that is there at first comes at once.
        turns = len(COMING_PARTS) if window else 1
        going = self._going.get(window, ())[turn::turns] if turn < turns else ()
        coming = self._coming.get(window, ())[turn::turns] if turn < turns else ()
        is_uncovered = turn == 0 and self.balancer.ensure_cover(START_WINDOW + window)
        if not coming and not going and not is_uncovered:
            return
        part = COMING_PARTS[turn]
        now_ms = self._start_ms + int(part * self._window_ms)
        self._leave(window, now_ms, part, going)
        newcomers = self._come(window, now_ms, part, coming)
        self._bequeath(going, newcomers)

    def _leave(
        self, window: int, now_ms: int, part: float, going: Sequence[SimulatedWorker]
    ) -> None:
        for worker in going:
            worker.bring_work(window, part)  # that of the rest of the window does not arrive
            self._work(worker, self._start_ms, now_ms + worker.skew_ms)
            del self._workers[worker]
            self._gone.append(worker)
            if not worker.plan.is_killed:
                self.balancer.receive(worker.goodbye(now_ms), now_ms)

    def _bequeath(self, going: Sequence[SimulatedWorker], newcomers: list[SimulatedWorker]) -> None:
        """Hand on the work of those that ended."""
        if not self.scenario.keeps_backlog:
            return
        for leaver, heir in zip(going, newcomers, strict=False):
            heir.backlog += leaver.backlog
            self._heirs[leaver] = heir
        self._orphaned_work += sum(leaver.backlog for leaver in going[len(newcomers) :])

    def _come(
        self, window: int, now_ms: int, part: float, coming: Sequence[MemberPlan]
    ) -> list[SimulatedWorker]:
        newcomers = [self._start(plan, window, now_ms) for plan in coming]
        if not self._is_away(window):
            self.balancer.early_round(now_ms + LOOK_AGAIN_MS // 2)
        is_service = self.scenario.timetable is TimetableKind.SERVICE
        for worker in newcomers:
            worker.starts_at_part = part if window else 0.0
            if not is_service:
                worker.bring_work(window, 1.0)
            self._read(worker, now_ms + LOOK_AGAIN_MS)
        return newcomers

    def _start(self, plan: MemberPlan, window: int, now_ms: int) -> SimulatedWorker:
        number = len(self._everybody) + 1
        skew_ms = self.scenario.faults.skew_ms
        skew_ms = self._random.randint(-skew_ms, skew_ms) if skew_ms else 0
        hosts = self.outcome.hosts
        account = hosts.setdefault(plan.host, HostAccount(plan.host, window))
        instance = f"i{number}"
        timetable = make_timetable(self.scenario.window_seconds, instance)
        worker = SimulatedWorker(plan, instance, now_ms, skew_ms, account, timetable)
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
        worker.read(self.balancer.read(worker.member, worker.read_epoch), now_ms)

    def _report(self, worker: SimulatedWorker, window: int, now_ms: int) -> None:
        faults = self.scenario.faults
        batch = worker.report(now_ms)
        if batch is None:
            return
        if faults.lost_reports and self._random.random() < faults.lost_reports:
            worker.report_lost(batch)
            return
        arrives = window // self.scenario.round_windows + faults.delay_rounds - 1
        self.balancer.send(batch, arrives)
        if faults.doubled_reports and self._random.random() < faults.doubled_reports:
            self.balancer.send(batch, arrives + 1)

    def _round(self, window: int, now_ms: int) -> None:
        if self._is_away(window):
            return
        self.balancer.receive_due(window // self.scenario.round_windows, now_ms)
        self.balancer.round(RoundKind.REGULAR, now_ms)
        self._note_moves(window)
        lost = self.scenario.faults.lost_reads
        self._deaf = (
            {worker for worker in self._workers if self._random.random() < lost} if lost else set()
        )

    def _note_moves(self, window: int) -> None:
        shares = self.balancer.shares()
        before = self._last_shares
        if before:
            self.outcome.moved_points[window] = sum(
                points - before.get(member, 0)
                for member, points in shares.items()
                if points > before.get(member, 0)
            )
        self._last_shares = shares

    # -- the account

    def _close(self, window: int) -> WindowView:
        """Close the account of a window."""
        in_force = self.balancer.in_force(START_WINDOW + window)
        entries = {} if in_force is None else in_force.entries
        demand: dict[Hashable, int] = {}
        wanted = 0
        for worker in self._gone:
            wanted += worker.wanted_in_window
            worker.end_window(window, 0, keeps_backlog=False)
        keeps_backlog = self.scenario.keeps_backlog
        for worker in self._workers:
            demand[worker] = worker.wanted_in_window
            entry = entries.get(worker.member)
            points = 0 if entry is None else share_points(entry.intervals)
            worker.end_window(window, points, keeps_backlog=keeps_backlog)
        wanted += sum(demand.values())
        if in_force is not None:
            # What is set, or promised less, later is known to nobody before there is a document.
            self._capacity = in_force.terms.capacity
            promised = self.balancer.bounds.get(START_WINDOW + window, 0)
            self._bound = max(self._capacity, promised)
        capacity = self._capacity
        even = self._even.step(START_WINDOW + window, capacity, demand, self._heirs)
        self.outcome.even.arrived.append(even)
        view = WindowView(
            window=window,
            capacity=capacity,
            bound=self._bound,
            wanted=wanted,
            served=self._arrived[window],
            held_points=0 if in_force is None else in_force.held_points,
            members=len(self._workers),
        )
        self.outcome.views.append(view)
        return view

    def _finish(self) -> None:
        outcome, views = self.outcome, self.outcome.views
        figures = outcome.figures
        figures.hosts = outcome.even.hosts = len(outcome.hosts)
        for known in (figures, outcome.even):
            known.capacity = [view.capacity for view in views]
            known.wanted = [view.wanted for view in views]
        figures.arrived = [self._arrived[view.window] for view in views]
        outcome.over = [view.window for view in views if self._arrived[view.window] > view.bound]
        # A destination answers 429 beyond what it stands.
        figures.refused = [max(0, self._arrived[view.window] - view.bound) for view in views]
        outcome.even.refused = [0] * len(views)
        for worker in self._everybody:
            figures.zero_windows.append(worker.longest_zero_windows)
            account = worker.account
            account.longest_zero_windows = max(
                account.longest_zero_windows, worker.longest_zero_windows
            )
            if worker.first_permit_ms is not None:
                seconds = (worker.first_permit_ms - worker.started_ms) / 1000
                figures.first_permit_seconds.append(seconds)
        figures.share_sum_points = self.balancer.largest_sum_points
        outcome.broken = self.balancer.broken
        outcome.even.zero_windows = list(self._even.longest_zero_windows.values())


def _empty(name: str) -> Figures:
    return Figures(name, 0, [], [], [], [])
