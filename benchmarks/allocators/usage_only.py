"""The usage-only rule: a member's share is its part of what all used.

Source: the comments on the quota of resource groups in Apache Pulsar (PIP-82, "Tenant and namespace
level rate limiting"): the new quota is the use, plus what the limit leaves, divided in proportion
to the use. What was denied is not known. The floor of one permit is ours: without it a member that
was idle once could never show any use again. With nothing used at all the split is even.
"""

from __future__ import annotations

from benchmarks.allocators import even
from benchmarks.allocators.told import History, Shares

FLOOR_PERMITS = 1.0


def allocate(history: History, capacity: int, _previous: Shares) -> dict[str, float]:
    """Divide the capacity in proportion to what each used in the last window."""
    told = history[-1]
    used = sum(account.used for account in told.values())
    if not used:
        return even.split(told, capacity)
    floor = min(FLOOR_PERMITS, capacity / len(told))
    above = capacity - floor * len(told)
    return {name: floor + above * account.used / used for name, account in told.items()}
