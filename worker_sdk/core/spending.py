"""What was spent in recent windows, whatever the wall clock does.

Decides how much of a window is gone already (rule 4). Knows nothing of documents: spending is by
window, so that a new epoch, or a clock that steps back, never gives a permit twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOWS_KEPT: Final = 8
"""Windows of which the account is kept; older ones count as spent in full."""


@dataclass(slots=True)
class _Account:
    start_ms: int
    end_ms: int
    permits: int


class Spending:
    """Permits spent in recent windows of one destination.

    A window is asked for by its span, and everything spent in a span that overlaps it counts: if
    the length of windows changes, permits are rather counted in two windows than in none.
    """

    __slots__ = ("_accounts", "_forgotten_until_ms")

    def __init__(self) -> None:
        self._accounts: list[_Account] = []  # ascending
        self._forgotten_until_ms = 0

    def spent(self, start_ms: int, end_ms: int) -> int | None:
        """Return the permits spent in a window; None where that is forgotten: take it as all."""
        if start_ms < self._forgotten_until_ms:
            return None
        permits = 0
        for account in self._accounts:
            if account.start_ms < end_ms and start_ms < account.end_ms:
                permits += account.permits
        return permits

    def add(self, start_ms: int, end_ms: int, permits: int) -> None:
        """Count permits as spent in a window."""
        for account in reversed(self._accounts):
            if account.start_ms == start_ms and account.end_ms == end_ms:
                account.permits += permits
                return
        is_latest = not self._accounts or self._accounts[-1].start_ms <= start_ms
        self._accounts.append(_Account(start_ms, end_ms, permits))
        if not is_latest:
            self._accounts.sort(key=lambda account: account.start_ms)
        while len(self._accounts) > WINDOWS_KEPT:
            oldest = self._accounts.pop(0)
            self._forgotten_until_ms = max(self._forgotten_until_ms, oldest.end_ms)

    def give_back(self, start_ms: int, end_ms: int, permits: int) -> int:
        """Count permits of a window as unspent; return how many, never more than were spent."""
        for account in reversed(self._accounts):
            if account.start_ms == start_ms and account.end_ms == end_ms:
                back = min(permits, account.permits)
                account.permits -= back
                return back
        return 0
