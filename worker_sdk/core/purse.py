"""Permits laid out so that they can be taken one by one without the member's lock.

Decides nothing about how many there are: the ledger lays out permits that it counts as gone, under
the lock, and takes back what is left before it answers anybody else. Who takes one looks first
whether the time is right, then takes it, then notes who it was:

    if purse.from_ns <= now_ns < purse.until_ns:
        for _ in purse.permits:
            purse.takers[caller] = now_ns
            ...  # granted

It rests on one thing: that a step of ``repeat``, ``sum`` over one, and ``setitem`` and ``popitem``
of a dictionary are each done in one go, as they are in CPython with its global lock. Then a permit
is either taken by one caller or taken back, whatever threads and signal handlers do. Where that
does not hold nothing may be laid out.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import repeat
from typing import Final

PURSE_PERMITS: Final = 512
"""Permits laid out at once; taking back the rest takes some microseconds."""

_NS_OF_A_MS: Final = 1_000_000


class Purse:
    """What may be taken without the lock.

    Attributes:
        permits: as many items as there are permits; whoever gets one has a permit.
        from_ns: Unix instant in nanoseconds from which they may be taken.
        until_ns: Unix instant before which they may be.
        takers: who took one and reports no end of its delivery, and when it did so last. No more
            than were laid out since `Account` looked at them last.
    """

    __slots__ = ("from_ns", "permits", "takers", "until_ns")

    def __init__(self) -> None:
        self.permits = repeat(1, 0)
        self.from_ns = 0
        self.until_ns = 0
        self.takers: dict[Hashable, int] = {}

    def lay_out(self, permits: int, from_ms: int, until_ms: int) -> None:
        """Offer so many within ``[from_ms, until_ms)``. Take back first."""
        self.from_ns = from_ms * _NS_OF_A_MS
        self.until_ns = until_ms * _NS_OF_A_MS
        self.permits = repeat(1, permits)

    def take_back(self) -> int:
        """Return how many nobody took; from here on nobody can."""
        return sum(self.permits)

    def pop_takers(self) -> list[tuple[int, Hashable]]:
        """Return (Unix instant in milliseconds, caller) of all noted, in time, and forget them."""
        found: list[tuple[int, Hashable]] = []
        while self.takers:
            caller, taken_ns = self.takers.popitem()
            found.append((taken_ns // _NS_OF_A_MS, caller))
        found.sort(key=_instant_of)
        return found


def _instant_of(taken: tuple[int, Hashable]) -> int:
    return taken[0]
