"""What a member reports out of turn, where points are lent within the window.

Decides, for destinations whose document says that it lends, when a member has run out: it was
refused or waits, and its share will not last if it goes on like this. Then it gives an account of
the present window so far, beside those in its turn, which say all of it again. What comes of that
is the balancer's matter. Knows no timer: whoever asks does so about once a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from worker_sdk.core.engine import Engine
from worker_sdk.core.ladder import Mode
from worker_sdk.wire.shares import window_at
from worker_sdk.wire.usage import UsageBatch, UsageTuple

PAUSE_PART: Final = 12
"""Two reports out of turn are at least a twelfth of a window apart."""

SHORTEST_PART: Final = 10
"""What was asked for is taken to go on like that from a tenth of a window on."""


@dataclass(slots=True)
class _Refusals:
    """What was refused before the first look in the present window, and by the last report."""

    window: int
    before: int
    told: int
    not_before_ms: int = 0


class Loans:
    """One member's needs beyond its shares.

    Args:
        engine: of the member.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._refusals: dict[str, _Refusals] = {}

    def may_borrow(self) -> bool:
        """Say whether some destination lends, by the newest document."""
        newest = (self._engine.account(name).ledger.newest for name in self._engine.destinations)
        return any(share is not None and share.terms.lends for share in newest)

    def report(self, now_ms: int) -> UsageBatch | None:
        """Return what to report now, and then to look for what comes of it; None for nothing."""
        accounts = [self._account(name, now_ms) for name in self._engine.destinations]
        tuples = tuple(account for account in accounts if account is not None)
        return self._engine.beside(now_ms, tuples) if tuples else None

    def _account(self, name: str, now_ms: int) -> UsageTuple | None:
        account = self._engine.account(name)
        ledger = account.ledger
        if ledger.newest is None or not ledger.newest.terms.lends:
            return None
        window_ms = ledger.newest.terms.window_seconds * 1000
        window = window_at(now_ms, ledger.newest.terms.window_seconds)
        total = ledger.refused_total
        known = self._refusals.get(name)
        if known is None or known.window != window:
            self._refusals[name] = _Refusals(window, total, total)
            return None
        waiting = account.queue.permits
        if (total == known.told and not waiting) or now_ms < known.not_before_ms:
            return None
        allowance = ledger.allowance(now_ms)
        elapsed_ms = now_ms - window * window_ms
        counted_ms = max(elapsed_ms, window_ms // SHORTEST_PART)
        denied = total - known.before + waiting
        asked = allowance.spent_permits + denied
        suffices = asked * window_ms <= allowance.granted_permits * counted_ms
        if allowance.mode is not Mode.FRESH or suffices or elapsed_ms <= 0:
            return None
        known.told = total
        known.not_before_ms = now_ms + window_ms // PAUSE_PART
        return UsageTuple(
            destination=name,
            from_ms=window * window_ms,
            instant_ms=now_ms,
            epoch=allowance.epoch,
            granted=allowance.granted_permits * elapsed_ms // window_ms,
            used=allowance.spent_permits,
            denied=denied,
            starved_ms=0,
            busy_ms=0,
        )
