"""One simulated member: a real engine, a made-up clock and made-up work.

Decides when a member asks and for how much; what it gets is the engine's answer. Knows nothing of
the balancer: documents come in as they would be read, reports go out as the engine made them.
"""

from __future__ import annotations

from collections.abc import Sequence

from balancer.simulation.outcome import HostAccount
from balancer.simulation.scenario import MemberPlan, Style
from worker_sdk.core.engine import Engine
from worker_sdk.core.loans import Loans
from worker_sdk.core.waiters import Waiter
from worker_sdk.runtime.timetable import Timetable
from worker_sdk.wire.distribution import OwnShare
from worker_sdk.wire.usage import MemberState, UsageBatch

DESTINATION = "destination"


class SimulatedWorker:
    """A member at work; all instants are the balancer's, the member's clock is skewed.

    Attributes:
        plan: its life.
        member: (host, instance).
        account: where its windows are noted.
        timetable: its turns.
        starts_at_part: of the window in which it starts, the part gone by then; else 0.
        backlog: permits wanted and not served yet.
        wanted_in_window: of those, what arrived in this window.
        served_in_window: permits used in this window.
        read_epoch: newest epoch that it read.
        first_permit_ms: when it got its first permit; None before.
        zero_windows: windows in a row, up to now, with demand and nothing served.
        longest_zero_windows: the most of those.
    """

    def __init__(
        self,
        plan: MemberPlan,
        instance: str,
        start_ms: int,
        skew_ms: int,
        account: HostAccount,
        timetable: Timetable,
    ) -> None:
        self.plan = plan
        self.account = account
        self.timetable = timetable
        self.starts_at_part = 0.0
        self._refused_in_window = 0
        self.member = (plan.host, instance)
        self.backlog = 0
        self.wanted_in_window = 0
        self.read_epoch = 0
        self.started_ms = start_ms
        self.first_permit_ms: int | None = None
        self.zero_windows = 0
        self.longest_zero_windows = 0
        self.served_in_window = 0
        self._skew_ms = skew_ms
        self._engine = Engine(plan.host, instance, [DESTINATION], group=plan.group)
        self._ledger = self._engine.account(DESTINATION).ledger
        self._loans = Loans(self._engine)
        self._thread_free_ms = start_ms + skew_ms
        self._waiter: Waiter | None = None

    @property
    def skew_ms(self) -> int:
        """How far its clock is ahead of the balancer's."""
        return self._skew_ms

    # -- reports and documents

    def hello(self, now_ms: int) -> UsageBatch:
        """Return the batch that announces this member."""
        return self._engine.hello(now_ms + self._skew_ms, now_ms)

    def report(self, now_ms: int) -> UsageBatch | None:
        """Return the account of the time since the last one."""
        return self._engine.drain(now_ms + self._skew_ms, now_ms, MemberState.RUNNING)

    def report_lost(self, batch: UsageBatch) -> None:
        """Take back a report that did not arrive."""
        self._engine.restore(batch)

    def goodbye(self, now_ms: int) -> UsageBatch:
        """Return the batch that ends this member."""
        return self._engine.goodbye(now_ms + self._skew_ms, now_ms)

    def read(self, shares: Sequence[OwnShare], now_ms: int) -> None:
        """Take documents that it has not read yet, newest first."""
        if not shares:
            return
        self.read_epoch = max(self.read_epoch, shares[0].epoch)
        local_ms = now_ms + self._skew_ms
        self._engine.offer(shares, local_ms)
        if self.first_permit_ms is None:
            opens_ms = self._engine.opens_at_ms(DESTINATION, 1, local_ms)
            self.first_permit_ms = None if opens_ms is None else opens_ms - self._skew_ms

    def lacks_entry(self) -> bool:
        """Say whether it has no share in the newest document it knows."""
        return self._engine.lacks_entry()

    def report_out_of_turn(self, now_ms: int) -> UsageBatch | None:
        """Return the account of the present window if it has run out where points are lent.

        What it still has to do waits, for the moment of the look.
        """
        queue = self._engine.account(DESTINATION).queue
        waiter = Waiter(DESTINATION, self.backlog, self.member)
        if self.backlog and self._waiter is None:
            queue.join(waiter)
        batch = self._loans.report(now_ms + self._skew_ms)
        queue.give_up(waiter)
        return batch

    # -- work

    def work_until(self, from_ms: int, until_ms: int) -> int:
        """Serve what can be served of the backlog in a stretch of one window; return how much.

        The stretch is by this member's clock.
        """
        if self.plan.style is Style.BLOCKING:
            served = self._work_one_by_one(from_ms, until_ms)
        else:
            served = self._ledger.take_up_to(self.backlog, until_ms) if self.backlog > 0 else 0
        self.backlog -= served
        self.served_in_window += served
        return served

    def refuse_waiting(self) -> None:
        """Count what was asked for and not got, each piece once a window."""
        waiting = self.backlog - self._refused_in_window
        if waiting > 0 and self.plan.style is Style.ASKING:
            self._refused_in_window += waiting
            self._ledger.refuse(waiting)

    def _work_one_by_one(self, from_ms: int, until_ms: int) -> int:
        """Be a single thread that asks, waits, works and asks again."""
        served = 0
        local_ms = max(from_ms, self._thread_free_ms)
        while local_ms < until_ms and served < self.backlog:
            mono_ms = local_ms - self._skew_ms
            if self._waiter is None:
                self._waiter = self._engine.enqueue(DESTINATION, 1, self.member, local_ms, mono_ms)
                if self._waiter is None:
                    break
            elif not self._waiter.granted:
                self._engine.pump(DESTINATION, local_ms, mono_ms)
            if self._waiter.granted:
                self._waiter = None
                served += 1
                local_ms += self.plan.work_ms
                self._thread_free_ms = local_ms
                continue
            opens_ms = self._engine.opens_at_ms(DESTINATION, 1, local_ms)
            if opens_ms is None:
                break
            local_ms = max(local_ms + 1, opens_ms)
        return served

    def bring_work(self, window: int, part: float) -> None:
        """Let the work arrive that is due by a part of a window of the run.

        Asked for less than has arrived already, it takes back what was not served.
        """
        due = int(self.plan.demand(window) * max(0.0, part - self.starts_at_part))
        more = max(due - self.wanted_in_window, -self.backlog)
        self.wanted_in_window += more
        self.backlog += more

    def end_window(self, window: int, points: int, *, keeps_backlog: bool) -> None:
        """Close the account of a window of the run, in which its share was ``points``."""
        if self.backlog and not self.served_in_window:
            self.zero_windows += 1
            self.longest_zero_windows = max(self.longest_zero_windows, self.zero_windows)
        else:
            self.zero_windows = 0
        self.account.note(window, self.wanted_in_window, self.served_in_window, points)
        self.wanted_in_window = self.served_in_window = self._refused_in_window = 0
        self.starts_at_part = 0.0
        if not keeps_backlog:
            self.backlog = 0
