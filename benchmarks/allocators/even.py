"""The even split: every member the same, whatever it uses.

Source: what most services do that know how many they are; the first iteration of this project, and
"strict" in the documentation of Hermes (allegro/hermes, docs/docs/configuration/rate-limiting.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.allocators.told import History, Shares


def split(members: Iterable[str], capacity: int) -> dict[str, float]:
    """Return an equal part of the capacity for each member."""
    names = list(members)
    return {name: capacity / len(names) for name in names}


def allocate(history: History, capacity: int, _previous: Shares) -> dict[str, float]:
    """Divide the capacity by the number of members."""
    return split(history[-1], capacity)
