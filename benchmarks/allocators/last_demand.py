"""Max-min over the last demand: all that want little get it, the others share one level.

Source: max-min fairness as textbooks give it (Bertsekas and Gallager, Data Networks): fill
all alike until a want is met or nothing is left. What no want needs is spread evenly.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.allocators.told import History, Shares


def max_min(wants: Mapping[str, float], capacity: float) -> dict[str, float]:
    """Return the max-min amounts; none is above its want."""
    amounts: dict[str, float] = {}
    left = capacity
    by_want = sorted(wants, key=wants.__getitem__)
    for number, name in enumerate(by_want):
        amounts[name] = min(wants[name], left / (len(by_want) - number))
        left -= amounts[name]
    return {name: amounts[name] for name in wants}


def fill(wants: Mapping[str, float], capacity: int) -> dict[str, float]:
    """Return the max-min amounts, and what is left spread evenly."""
    amounts = max_min(wants, capacity)
    spare = max(0.0, capacity - sum(amounts.values())) / len(amounts)
    return {name: amount + spare for name, amount in amounts.items()}


def allocate(history: History, capacity: int, _previous: Shares) -> dict[str, float]:
    """Take the last window's demand for the next one's."""
    return fill({name: float(account.wanted) for name, account in history[-1].items()}, capacity)
