"""A perfect forecaster: max-min over the demand of the window to come.

Nobody can build it; it is the ceiling. Source: none is needed, it is told the future.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.allocators.last_demand import fill
from benchmarks.allocators.told import Allocate, History, Shares


def told_the_future(coming: Callable[[], Mapping[str, int]]) -> Allocate:
    """Return the rule.

    Args:
        coming: member to what it will want in the window to come.
    """

    def allocate(_history: History, capacity: int, _previous: Shares) -> dict[str, float]:
        return fill({name: float(want) for name, want in coming().items()}, capacity)

    return allocate
