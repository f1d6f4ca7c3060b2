"""Who waits for permits of one destination, and how long nothing could be delivered.

Decides the order of waiting (first come, first served) and which time counts as starved. Knows
nothing of permits left, of clocks or of threads: a waiter is a record that the caller hangs its own
way of waking on.

Starved is time with waiters and nothing in delivery, counted only while the waiters are no more
than the most permits ever in delivery at once (at least one): it speaks for workers that send,
wait and send again, whose unserved demand no refusal shows. A delivery lasts from the grant to its
reported end; after a bare acquire, whose end nobody reports, to the same caller's next acquire, at
most `BARE_DELIVERY_MAX_MS`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from itertools import islice
from typing import Final

WAITERS_MAX: Final = 100_000
CALLERS_MAX: Final = 1_024
LOOKED_AT_MAX: Final = 256
"""So many waiters are looked at one by one to tell somebody when to come; the rest as a whole."""

BARE_DELIVERY_MAX_MS: Final = 60_000


class Delivery:
    """One delivery whose end will be reported; it is asked for, and ended, by this mark."""

    __slots__ = ()


class Waiter:
    """One request in the queue.

    Attributes:
        destination: what it waits for.
        permits: how many it wants at once.
        caller: who asks: a thread or a task, or a `Delivery` if its end will be reported.
        granted: whether it has its permits.
        is_impossible: whether it was sent away because no window can give so many any more.
        reported: whether a report named it as waiting.
        wake: for the caller's use.
    """

    __slots__ = (
        "caller",
        "destination",
        "granted",
        "is_impossible",
        "permits",
        "reported",
        "wake",
    )

    def __init__(
        self, destination: str, permits: int, caller: Hashable, wake: object = None
    ) -> None:
        self.destination = destination
        self.permits = permits
        self.caller = caller
        self.granted = False
        self.is_impossible = False
        self.reported = False
        self.wake = wake


class WaitQueue:
    """The waiters of one destination, in order, and which of them stood in the last report.

    Attributes:
        waiters: first come first; for looking at only.
        permits: what all of them want together.
    """

    __slots__ = ("_gave_up_permits", "_standing_permits", "permits", "waiters")

    def __init__(self) -> None:
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.permits = 0
        self._standing_permits = 0
        self._gave_up_permits = 0

    def __len__(self) -> int:
        return len(self.waiters)

    @property
    def is_waiting(self) -> bool:
        """Whether anybody waits."""
        return bool(self.waiters)

    @property
    def is_full(self) -> bool:
        """Whether nobody more may wait."""
        return len(self.waiters) >= WAITERS_MAX

    def head(self) -> Waiter | None:
        """Return who is next."""
        return next(iter(self.waiters), None)

    def join(self, waiter: Waiter) -> None:
        """Put ``waiter`` at the end."""
        self.waiters[waiter] = None
        self.permits += waiter.permits

    def serve(self, waiter: Waiter) -> None:
        """Take ``waiter`` out as granted."""
        del self.waiters[waiter]
        self.permits -= waiter.permits
        waiter.granted = True

    def give_up(self, waiter: Waiter) -> int:
        """Take ``waiter`` out unserved; return the permits to count as denied.

        0 if a report named it as waiting before: each counts once.
        """
        if waiter not in self.waiters:
            return 0
        del self.waiters[waiter]
        self.permits -= waiter.permits
        if not waiter.reported:
            return waiter.permits
        self._gave_up_permits += waiter.permits
        return 0

    def clear(self) -> list[Waiter]:
        """Take everybody out unserved and return them."""
        waiters = list(self.waiters)
        self.waiters.clear()
        self.permits = 0
        return waiters

    def report(self) -> int:
        """Return the permits of those waiting now, and remember that a report named them."""
        total = 0
        for waiter in self.waiters:
            waiter.reported = True
            total += waiter.permits
        self._standing_permits = total
        self._gave_up_permits = 0
        return total

    def unreport(self) -> int:
        """Return how many permits of the last report's waiters to take out of it again.

        That report failed and is merged into the next: who still waits is counted there, who was
        served since was not denied; who gave up since stays denied.
        """
        back = self._standing_permits - self._gave_up_permits
        self._standing_permits = 0
        self._gave_up_permits = 0
        return max(0, back)


class Ahead:
    """Those who are served before somebody who comes now, in thought."""

    __slots__ = ("_costs", "_rest")

    def __init__(self, queue: WaitQueue) -> None:
        self._costs = deque(waiter.permits for waiter in islice(queue.waiters, LOOKED_AT_MAX))
        self._rest = queue.permits - sum(self._costs)

    @property
    def is_over(self) -> bool:
        """Whether all of them have theirs."""
        return not self._costs and not self._rest

    def take(self, room_permits: int) -> int:
        """Give them what a window has for them, in order; return how many they took.

        Who wants more than is left of it waits for the next one, and so do all behind.
        """
        taken = 0
        while self._costs and self._costs[0] <= room_permits - taken:
            taken += self._costs.popleft()
        if not self._costs:
            part = max(0, min(self._rest, room_permits - taken))
            self._rest -= part
            taken += part
        return taken


class DeliveryAccount:
    """Starved and busy time of one destination, from the monotonic clock's milliseconds.

    Attributes:
        ended: deliveries of which an end was reported that is not accounted for yet; each may be
            there several times. To append to it is all that a finaliser can do amid another call.
    """

    __slots__ = (
        *("_at_ms", "_bare", "_bare_permits", "_busy_ms", "_most_permits"),
        *("_reported", "_reported_permits", "_starved_ms", "ended"),
    )

    def __init__(self) -> None:
        self._bare: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()
        self._bare_permits = 0
        self._reported: dict[Delivery, int] = {}
        self._reported_permits = 0
        self.ended: list[Delivery] = []  # a deque takes ten times the room
        self._most_permits = 1
        self._at_ms: int | None = None
        self._starved_ms = 0
        self._busy_ms = 0

    @property
    def in_delivery(self) -> int:
        """Deliveries that have begun and whose end will be reported."""
        return len(self._reported)

    def advance(self, mono_ms: int, waiters: int) -> None:
        """Account for the time up to ``mono_ms``, during which ``waiters`` were waiting."""
        if self._at_ms is None or mono_ms > self._at_ms:  # calls are many in a millisecond
            self._pass(mono_ms, waiters)
        while self.ended:
            # An exception may come between any two steps, as by Ctrl-C; each may be done again.
            self._reported_permits -= self._reported.pop(self.ended[0], 0)
            if not self._reported:
                self._reported_permits = 0
            del self.ended[0]

    def _pass(self, mono_ms: int, waiters: int) -> None:
        elapsed_ms = 0 if self._at_ms is None else mono_ms - self._at_ms
        self._at_ms = mono_ms
        self._busy_ms += elapsed_ms * len(self._reported)
        while self._bare:
            _, since_ms = next(iter(self._bare.values()))
            if mono_ms - since_ms <= BARE_DELIVERY_MAX_MS:
                break
            self._forget_oldest()
        nothing_delivers = not self._reported and self._bare_permits == 0
        if nothing_delivers and 0 < waiters <= self._most_permits:
            self._starved_ms += elapsed_ms

    def asks(self, caller: Hashable) -> None:
        """Note that ``caller`` asks again: its bare delivery has ended. Advance first."""
        if caller in self._bare:
            self._bare_permits -= self._bare.pop(caller)[0]

    def begin(self, permits: int, caller: Hashable) -> None:
        """Note a grant; its end is the caller's next `asks`, or `end`. Advance first."""
        if isinstance(caller, Delivery):
            self._reported[caller] = permits
            self._reported_permits += permits
        else:
            self.asks(caller)
            self._bare[caller] = (permits, self._at_ms or 0)
            self._bare_permits += permits
            if len(self._bare) > CALLERS_MAX:
                self._forget_oldest()
        in_delivery = self._bare_permits + self._reported_permits
        self._most_permits = max(self._most_permits, in_delivery)

    def _forget_oldest(self) -> None:
        _, (permits, _) = self._bare.popitem(last=False)
        self._bare_permits -= permits

    def drain(self) -> tuple[int, int]:
        """Return (starved_ms, busy_ms) since the last call."""
        account = (self._starved_ms, self._busy_ms)
        self._starved_ms = 0
        self._busy_ms = 0
        return account
