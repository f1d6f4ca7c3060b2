"""One life of a client: engine, clock and counters under one lock.

Decides nothing that the engine decides; it gives it the time, keeps threads out of each other's way
and wakes who was granted. A life ends with close or, in the child, with a fork; its instance id is
never used again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Final

from worker_sdk.core.clockcheck import ClockCheck
from worker_sdk.core.engine import Engine
from worker_sdk.core.ledger import Allowance
from worker_sdk.core.loans import Loans
from worker_sdk.core.machines import Machines
from worker_sdk.core.waiters import Delivery, Waiter
from worker_sdk.runtime.clocks import Clock
from worker_sdk.runtime.guard import entered, is_interrupted, make_guard
from worker_sdk.runtime.options import Options
from worker_sdk.runtime.remedies import Lookout
from worker_sdk.runtime.shelter import ends_its_greenlet
from worker_sdk.transports.base import Identity, Reading, names_of
from worker_sdk.wire.usage import MemberState, UsageBatch

logger: Final = logging.getLogger("worker_sdk")
logger.addHandler(logging.NullHandler())

WARNING_MS: Final = 60_000
CAUSES_MAX: Final = 64
DATED_AGO_MS: Final = 60_000
"""A look at the distribution takes less."""
PUMP_LEAST_MS: Final = 4
"""Waiters are served at most so often: where permits come faster, several at a time."""

Wake = Callable[[], None]


class Statistics:
    """What a member counted beside permits; under the member's lock."""

    def __init__(self) -> None:
        self.flushes_delivered = 0
        self.flushes_failed = 0
        self.tuples_delivered = 0
        self.tuples_undelivered = 0
        self.tuples_dropped = 0
        self.reads = 0
        self.documents_taken = 0
        self.failures: Counter[str] = Counter()

    def failed(self, what: str, cause: str) -> None:
        """Count a failure by its cause; the number of causes is limited."""
        key = f"{what}:{cause}"
        if key not in self.failures and len(self.failures) >= CAUSES_MAX:
            key = f"{what}:other"
        self.failures[key] += 1


class Member:
    """A member and everything that threads may ask of it."""

    def __init__(self, options: Options, instance: str, clock: Clock) -> None:
        self.instance = instance
        self.clock = clock
        self.lock = make_guard()
        self.engine = Engine(options.host, instance, options.destinations, group=options.group)
        self._loans = Loans(self.engine)
        self.identity = Identity(options.host, instance, self.engine.destinations)
        self.machines = Machines(instance, round(options.flush_seconds * 1000))
        self.clock_ahead_ms = 0
        self._clock_check = ClockCheck()
        self._lookout = Lookout(options)
        self.statistics = Statistics()
        self.is_closed = False
        self.is_told_of_standstill = False
        self._goodbye: UsageBatch | None = None
        self.on_waiting: Wake | None = None
        self._waiting: set[str] = set()
        self._warned_at_ms: dict[str, int] = {}

    # -- permits

    def take(self, destination: str, permits: int, caller: Hashable) -> bool:
        """Take permits that can be had at once; a refusal is not counted."""
        clock = self.clock
        with entered(self.lock):
            return self.engine.account(destination).take(
                permits, caller, clock.wall_ms(), clock.mono_ms()
            )

    def enqueue(self, waiter: Waiter) -> bool:
        """Ask for permits; False if too many wait. Its ``wake`` is called once it is decided.

        A waiter that is not granted must be waited for, then given up or taken; and given up by
        whoever is interrupted in this call.
        """
        clock, destination = self.clock, waiter.destination
        with entered(self.lock):
            if not self.engine.join(waiter, clock.wall_ms(), clock.mono_ms()):
                return False
            if waiter.granted:
                return True
            self._waiting.add(destination)
            is_next = self.engine.head(destination) is waiter
        if is_next:  # else it is known already when to come for who is before it
            self._call_pacer()
        return True

    def _call_pacer(self) -> None:
        on_waiting = self.on_waiting
        if on_waiting is not None:
            on_waiting()

    def top_up(self, destination: str, permits: int, caller: Hashable) -> int:
        """Take up to so many permits more for a caller that just got one; return how many."""
        with entered(self.lock):
            return self.engine.top_up(
                destination, permits, caller, self.clock.wall_ms(), self.clock.mono_ms()
            )

    def can_ever_give(self, destination: str, permits: int) -> bool:
        """Say whether waiting for so many at once can have an end, by the newest document."""
        with entered(self.lock):
            return self.engine.can_ever_give(destination, permits)

    def give_up(self, waiter: Waiter) -> bool:
        """Take a waiter out; False if it was granted before."""
        with entered(self.lock):
            was_next = self.engine.head(waiter.destination) is waiter
            given_up = self.engine.give_up(waiter, self.clock.mono_ms())
            is_waited_for = was_next and self.engine.waiting(waiter.destination) > 0
        if is_waited_for:  # whoever is next now may want less
            self._call_pacer()
        return given_up

    def return_granted(self, waiter: Waiter) -> None:
        """Give back what a waiter was granted that nobody will use."""
        if isinstance(waiter.caller, Delivery):
            self.end_delivery(waiter.destination, waiter.caller)
        self.refund(waiter.destination, waiter.permits)

    def refund(self, destination: str, permits: int) -> int:
        """Give permits back; return how many may be spent again."""
        with entered(self.lock):
            back = self.engine.refund(destination, permits, self.clock.wall_ms())
        self.pump()
        return back

    def end_delivery(self, destination: str, delivery: Delivery) -> None:
        """Note the end of a delivery; a finaliser may come here amid any call of its thread."""
        if is_interrupted(self.lock):
            self.engine.account(destination).deliveries.ended.append(delivery)
            return
        with self.lock:
            self.engine.end_delivery(destination, delivery, self.clock.mono_ms())

    def pump(self) -> int | None:
        """Grant to whom it is due; return in how many milliseconds to come again.

        None: nobody waits for a permit that is in sight; a new document or waiter calls again.
        """
        next_ms: int | None = None
        woken: list[Waiter] = []
        try:
            with entered(self.lock):
                now_ms, mono_ms = self.clock.wall_ms(), self.clock.mono_ms()
                for destination in list(self._waiting):
                    wait_ms = self._pump_one(destination, now_ms, mono_ms, woken)
                    if wait_ms is not None:
                        next_ms = wait_ms if next_ms is None else min(next_ms, wait_ms)
        finally:  # a caller may be interrupted anywhere, as by Ctrl-C; those granted know nothing
            for waiter in woken:
                self._wake(waiter)
        return next_ms

    def _pump_one(
        self, destination: str, now_ms: int, mono_ms: int, woken: list[Waiter]
    ) -> int | None:
        self.engine.pump(destination, now_ms, mono_ms, woken)
        while (head := self.engine.head(destination)) is not None:
            if self.engine.can_ever_give(destination, head.permits):
                opens_at_ms = self.engine.opens_at_ms(destination, head.permits, now_ms)
                return None if opens_at_ms is None else max(PUMP_LEAST_MS, opens_at_ms - now_ms)
            # A new document made it impossible; it must not block those behind it.
            head.is_impossible = True
            woken.append(head)
            self.engine.give_up(head, mono_ms)
            self.engine.pump(destination, now_ms, mono_ms, woken)
        self._waiting.discard(destination)
        return None

    def _wake(self, waiter: Waiter) -> None:
        wake = waiter.wake
        if not callable(wake):
            return
        try:
            wake()
        except RuntimeError:  # its event loop was closed: nobody is there to take it
            if waiter.granted:
                self.return_granted(waiter)

    def allowance(self, destination: str) -> Allowance:
        """Return what may be spent now, and why."""
        with entered(self.lock):
            return self.engine.allowance(destination, self.clock.wall_ms())

    def retry_after_seconds(self, destination: str, permits: int) -> float | None:
        """Return how long until so many permits can be had, as known now."""
        with entered(self.lock):
            now_ms = self.clock.wall_ms()
            opens_at_ms = self.engine.retry_at_ms(destination, permits, now_ms)
        return None if opens_at_ms is None else max(0, opens_at_ms - now_ms) / 1000

    # -- documents

    def take_reading(self, reading: Reading) -> bool:
        """Take what a look brought; say whether there was something new."""
        with entered(self.lock):
            self.statistics.reads += 1
            for cause in reading.failures:
                self.statistics.failed("read", cause)
            before = self.engine.epochs()
            taken = self.engine.offer(reading.shares, self.clock.wall_ms())
            after = self.engine.epochs()
            self.statistics.documents_taken += sum(
                1 for shard, epoch in after.items() if before.get(shard) != epoch
            )
            is_crowded = reading.instances is not None and self.machines.note(
                reading.instances, self.clock.mono_ms()
            )
            mono_ms = self.clock.mono_ms()
            advice = self._lookout.note(self.engine, reading, mono_ms)
            for dated in reading.dates:
                # A clock that is set by hand, in tests, is not the one that the driver reads.
                if 0 <= mono_ms - dated.answered_mono_ms <= DATED_AGO_MS:
                    self._clock_check.note(dated)
        self.mind_clock()
        if is_crowded:
            self.warn(
                "host",
                "host: %d machines seem to use the name %r; give each a PERMIT_HOST of its own",
                self.machines.count,
                self.identity.host,
            )
        for entry in advice:
            self.warn(entry.cause, "%s", entry.words)
        return taken

    def mind_clock(self) -> None:
        """Compare the clock with the dates of answers; beyond the guard only safe points count."""
        with entered(self.lock):
            now_ms = self.clock.wall_ms()
            ahead_ms = self._clock_check.ahead_ms(now_ms, self.clock.mono_ms())
            if ahead_ms == self.clock_ahead_ms:
                return
            self.clock_ahead_ms = ahead_ms
            ledgers = [self.engine.account(name).ledger for name in self.engine.destinations]
            skewed = [ledger.mind_skew(abs(ahead_ms), now_ms) for ledger in ledgers]
        if any(skewed):
            self.warn(
                "clock",
                "clock: it is %.1f s %s those of the answers; only safe permits are given so long",
                abs(ahead_ms) / 1000,
                "ahead of" if ahead_ms > 0 else "behind",
            )

    def held_epochs(self) -> Mapping[int, int]:
        """Return the newest epoch held of each shard."""
        with entered(self.lock):
            return self.engine.epochs()

    def lacks_entry(self) -> bool:
        """Say whether some destination has no share yet in its newest document."""
        with entered(self.lock):
            return self.engine.lacks_entry()

    def covered_for_ms(self) -> int:
        """Return how long documents cover every destination from now on; 0 if some are not."""
        with entered(self.lock):
            now_ms = self.clock.wall_ms()
            return max(0, self.engine.covered_until_ms(now_ms) - now_ms)

    # -- reports

    def hello(self) -> UsageBatch:
        """Return a hello of now."""
        with entered(self.lock):
            return self.engine.hello(self.clock.wall_ms(), self.clock.mono_ms())

    def drain(self) -> UsageBatch | None:
        """Take the counters."""
        with entered(self.lock):
            return self.engine.drain(
                self.clock.wall_ms(), self.clock.mono_ms(), MemberState.RUNNING
            )

    def may_borrow(self) -> bool:
        """Say whether some destination lends points within the window."""
        with entered(self.lock):
            return self._loans.may_borrow()

    def run_out(self) -> UsageBatch | None:
        """Return what to report out of turn; None if nothing has run out where points are lent."""
        with entered(self.lock):
            return self._loans.report(self.clock.wall_ms())

    def delivered(self, batch: UsageBatch) -> None:
        """Note that a batch arrived."""
        with entered(self.lock):
            self.statistics.flushes_delivered += 1
            self.statistics.tuples_delivered += len(batch.tuples)

    def undelivered(self, batch: UsageBatch, rest: UsageBatch, cause: str) -> None:
        """Merge back what did not arrive of a batch, and count it."""
        with entered(self.lock):
            if rest.state is MemberState.RUNNING and self._goodbye is None:
                self.engine.restore(rest)
            elif rest.state is not MemberState.STARTING:
                self.statistics.tuples_dropped += len(rest.tuples)
            self.statistics.flushes_failed += 1
            self.statistics.tuples_delivered += len(batch.tuples) - len(rest.tuples)
            self.statistics.tuples_undelivered += len(rest.tuples)
            self.statistics.failed("flush", cause)

    def goodbye(self) -> UsageBatch:
        """End the life: dismiss the waiters, grant nothing more, return the last batch.

        It is the same one whenever it is asked for again.
        """
        with entered(self.lock):
            if self._goodbye is not None:
                return self._goodbye
            self.is_closed = True
            now_ms, mono_ms = self.clock.wall_ms(), self.clock.mono_ms()
            dismissed = self.engine.dismiss(mono_ms)
            batch = self._goodbye = self.engine.goodbye(now_ms, mono_ms)
        for waiter in dismissed:
            self._wake(waiter)
        return batch

    # -- failures

    def failed(self, what: str, cause: str) -> None:
        """Count a failure of the background work by its cause."""
        with entered(self.lock):
            self.statistics.failed(what, cause)

    def warn(self, cause: str, message: str, *arguments: object) -> None:
        """Log a warning, at most one a minute for each cause.

        What the host's log raises is counted: it must end none of the client's threads.
        """
        now_ms = self.clock.mono_ms()
        with entered(self.lock):
            if cause not in self._warned_at_ms and len(self._warned_at_ms) >= CAUSES_MAX:
                cause = "other"
            last_ms = self._warned_at_ms.get(cause)
            if last_ms is not None and 0 <= now_ms - last_ms < WARNING_MS:
                return
            self._warned_at_ms[cause] = now_ms
        try:
            logger.warning(message, *arguments)
        except BaseException as error:
            if ends_its_greenlet(error):
                raise
            self.failed("log", names_of(error))
