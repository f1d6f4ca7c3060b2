"""Intervals of many entries as columns, so that a rule over them costs no step an entry.

Decides nothing; it measures. Entries mostly have one interval, some have none or several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final

import numpy as np

from balancer.core.columns import Ints, ints, zeros
from worker_sdk.wire.distribution import Entry

NO_ENTRY: Final = Entry("", "", (), 0)
"""Stands in a row of whoever has no entry."""

_intervals_of = attrgetter("intervals")
_safe_points_of = attrgetter("safe_points")


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The intervals of entries; one row an interval, in the order of the entries.

    Attributes:
        start, end: of each interval.
        count: how many each entry has.
    """

    start: Ints
    end: Ints
    count: Ints

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Pieces:
        """Return the intervals of ``entries``."""
        intervals = list(map(_intervals_of, entries))
        bounds = ints(chain.from_iterable(chain.from_iterable(intervals)))
        return cls(bounds[0::2], bounds[1::2], ints(map(len, intervals)))

    def firsts(self) -> tuple[Ints, Ints]:
        """Return start and end of each entry's first interval; -1 where it has none."""
        has = self.count > 0
        row = (np.cumsum(self.count) - self.count)[has]
        start, end = zeros(len(has)) - 1, zeros(len(has)) - 1
        start[has], end[has] = self.start[row], self.end[row]
        return start, end

    def points(self) -> Ints:
        """Return the points that each entry's intervals cover together."""
        until = np.concatenate((zeros(1), np.cumsum(self.end - self.start)))
        row = np.cumsum(self.count)
        return np.asarray(until[row] - until[row - self.count])

    def longest(self) -> Ints:
        """Return the length of each entry's longest interval; 0 where it has none."""
        longest = zeros(len(self.count))
        owner = np.repeat(np.arange(len(self.count)), self.count)
        np.maximum.at(longest, owner, self.end - self.start)
        return longest


def safe_points_of(entries: Iterable[Entry]) -> Ints:
    """Return the safe points of each entry."""
    return ints(map(_safe_points_of, entries))
