"""Weights by exponentially averaged use; whoever weighs little may take what is unused.

Source: the comments of the global rate limiter of Cadence (uber/cadence, common/quotas/global): a
host's weight is its part of the averaged requests, accepted and rejected, with half the weight on
the newest; a host whose part is below an even one may go up to that by what all together leave
unused. Every such host is promised the same unused permits: the shares can add up to more than the
capacity, which the description says and accepts. Nothing counted at all: an even split.
"""

from __future__ import annotations

from typing import Final

from benchmarks.allocators import even
from benchmarks.allocators.told import History, Shares

NEW_WEIGHT: Final = 0.5


def allocate(history: History, capacity: int, _previous: Shares) -> dict[str, float]:
    """Divide the capacity by averaged requests, and promise what is unused."""
    members = history[-1]
    wanted: dict[str, float] = {}
    used: dict[str, float] = {}
    for window in history:
        for name, account in window.items():
            if name in members:
                wanted[name] = _average(wanted.get(name), account.wanted)
                used[name] = _average(used.get(name), account.used)
    total = sum(wanted.values())
    if not total:
        return even.split(members, capacity)
    unused = max(0.0, capacity - sum(used.values()))
    most = capacity / len(members)
    shares = {}
    for name in members:
        part = capacity * wanted[name] / total
        shares[name] = part if part >= most else min(most, part + unused)
    return shares


def _average(before: float | None, now: float) -> float:
    return now if before is None else NEW_WEIGHT * now + (1 - NEW_WEIGHT) * before
