"""When a member reports out of turn: it has run out where points are lent.

Decides, for destinations whose document says that it lends, whether more was refused or waits in
the present window than is left of it. What comes of the report is the balancer's matter. Knows no
timer: whoever asks does so about once a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from worker_sdk.core.engine import Engine
from worker_sdk.core.ladder import Mode
from worker_sdk.wire.shares import window_at

PAUSE_PART: Final = 12
"""Two reports out of turn are at least a twelfth of a window apart."""


@dataclass(slots=True)
class _Want:
    """What was refused of one destination: by the last look, and before what counts now."""

    window: int
    refused_seen: int
    refused_before: int
    not_before_ms: int = 0


class Loans:
    """One member's needs beyond its shares."""

    def __init__(self) -> None:
        self._wants: dict[str, _Want] = {}

    def is_due(self, engine: Engine, now_ms: int) -> bool:
        """Say whether to report now, and to look for what comes of it; then not for a while."""
        due = [self._is_due(engine, name, now_ms) for name in engine.destinations]
        return any(due)

    def _is_due(self, engine: Engine, name: str, now_ms: int) -> bool:
        account = engine.account(name)
        newest = account.ledger.newest
        if newest is None or not newest.terms.lends:
            return False
        window_ms = newest.terms.window_seconds * 1000
        window = window_at(now_ms, newest.terms.window_seconds)
        refused_total = account.ledger.refused_total
        want = self._wants.setdefault(name, _Want(window, refused_total, refused_total))
        if want.window != window:
            # What was refused before this window says nothing about it.
            want.window, want.refused_before = window, want.refused_seen
        want.refused_seen = refused_total
        waiting = sum(waiter.permits for waiter in account.queue.waiters)
        wanted = refused_total - want.refused_before + waiting
        if not wanted or now_ms < want.not_before_ms:
            return False
        allowance = account.ledger.allowance(now_ms)
        left = allowance.granted_permits - allowance.spent_permits
        if allowance.mode is not Mode.FRESH or wanted <= left:
            return False
        want.refused_before = refused_total
        want.not_before_ms = now_ms + window_ms // PAUSE_PART
        return True
