"""Everything of one destination: ledger, queue and deliveries.

Decides that nobody passes those who wait, and what is known of deliveries whose permits were taken
without the lock. Knows no clock and no thread.
"""

from __future__ import annotations

from collections.abc import Hashable

from worker_sdk.core.ledger import Ledger, check_permits
from worker_sdk.core.waiters import Delivery, DeliveryAccount, WaitQueue


class Account:
    """Everything of one destination.

    Attributes:
        ledger: what may be spent.
        queue: who waits for it.
        deliveries: what is under way.
        lays_out: whether permits may be laid out to be taken without the lock; see `purse`.
    """

    __slots__ = ("_wall_less_mono_ms", "deliveries", "lays_out", "ledger", "queue")

    def __init__(self) -> None:
        self.lays_out = False
        self.ledger = Ledger()
        self.queue = WaitQueue()
        self.deliveries = DeliveryAccount()
        self._wall_less_mono_ms = 0

    def try_acquire(self, permits: int, now_ms: int) -> bool:
        """Spend permits if they may be spent now and nobody waits; a refusal is counted.

        Raises:
            ValueError: if ``permits`` is not a whole number of at least 1.
        """
        if self.queue.waiters:
            check_permits(permits)
            self.ledger.refuse(permits)
            return False
        return self.ledger.try_acquire(permits, now_ms)

    def take(self, permits: int, caller: Hashable, now_ms: int, mono_ms: int) -> bool:
        """Spend permits for a delivery if they may be spent now and nobody waits.

        A refusal is not counted.

        Args:
            permits: how many, at least 1.
            caller: who asks; a `Delivery` if its end will be reported.
            now_ms: Unix instant.
            mono_ms: monotonic instant.

        Raises:
            ValueError: if ``permits`` is not a whole number of at least 1.
        """
        check_permits(permits)
        self.advance(mono_ms)
        self.deliveries.asks(caller)
        if self.queue.waiters or not self.ledger.take(permits, now_ms):
            return False
        self.deliveries.begin(permits, caller)
        if permits == 1 and not isinstance(caller, Delivery):
            self.lay_out(now_ms, mono_ms)
        return True

    def lay_out(self, now_ms: int, mono_ms: int) -> None:
        """Lay out permits to be taken without the lock, if that is allowed and nobody waits."""
        if not self.lays_out or self.queue.waiters or not self.ledger.has_more:
            return
        self.advance(mono_ms)
        self._wall_less_mono_ms = now_ms - mono_ms
        self.ledger.lay_out()

    def advance(self, mono_ms: int) -> None:
        """Account for the time up to ``mono_ms``."""
        purse = self.ledger.purse
        if purse.takers:
            for taken_ms, caller in purse.pop_takers():
                began_ms = min(mono_ms, taken_ms - self._wall_less_mono_ms)
                self.deliveries.advance(began_ms, len(self.queue))
                self.deliveries.begin(1, caller)
        self.deliveries.advance(mono_ms, len(self.queue))
