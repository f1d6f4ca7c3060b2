"""Doorman's FAIR_SHARE: an equal share, then what others leave, in two rounds.

Source: youtube/doorman, doc/algorithms.md, and the account of the rule there and in its comments.
Clients ask in turn. One that wants no more than its equal share gets what it wants. One that wants
more also gets a part of what others leave of their equal shares; then, in a second round, a part of
what those leave that want less than equal share and first part together. No answer passes what is
not leased to others. Two faults belong to the rule and are kept: an answer can be above the want,
and in the second round another client's want is compared with this client's total, though the two
may stand for different numbers of clients.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.allocators.told import History, Shares


def fair_share(
    wants: Mapping[str, float], weights: Mapping[str, int], capacity: float, has: Shares
) -> dict[str, float]:
    """Let each client ask once, in order; return what each then has.

    Args:
        wants: client to what it wants.
        weights: client to the number of clients that it stands for.
        capacity: of the resource.
        has: client to what it has leased until now.
    """
    leases = {name: has.get(name, 0.0) for name in wants}
    leased = sum(leases.values())
    equal = capacity / sum(weights.values())
    spare = sum(max(0.0, equal * weights[name] - want) for name, want in wants.items())
    eager = {name: want for name, want in wants.items() if want > equal * weights[name]}
    eager_weight = sum(weights[name] for name in eager)
    for name, want in wants.items():
        answer = want
        if name in eager:
            weight = weights[name]
            first = equal * weight + spare / eager_weight * weight
            if want >= first:
                answer = first + _second_part(name, first, eager, weights)
        available = capacity - leased + leases[name]
        leased -= leases[name]
        leases[name] = max(0.0, min(answer, available))
        leased += leases[name]
    return leases


def _second_part(
    name: str, first: float, eager: Mapping[str, float], weights: Mapping[str, int]
) -> float:
    left, rivals = 0.0, weights[name]
    for other, want in eager.items():
        if other == name:
            continue
        if want < first:
            left += first - want
        elif want > first:
            rivals += weights[other]
    return left / rivals * weights[name]


def allocate(history: History, capacity: int, previous: Shares) -> dict[str, float]:
    """Lease to each member by its last demand."""
    wants = {name: float(account.wanted) for name, account in history[-1].items()}
    return fair_share(wants, dict.fromkeys(wants, 1), capacity, previous)
