"""Intervals of many entries as columns, so that a rule over them costs no step an entry.

Decides nothing; it measures. Entries mostly have one interval, some have none or several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np

from balancer.core.columns import Ints, ints, zeros
from worker_sdk.wire.shares import Interval


@dataclass(frozen=True, slots=True, eq=False)
class IntervalColumns:
    """The intervals of entries; one row an interval, in the order of the entries.

    Attributes:
        start, end: of each interval.
        count: how many each entry has.
    """

    start: Ints
    end: Ints
    count: Ints

    @classmethod
    def of(cls, intervals: Sequence[Sequence[Interval]]) -> IntervalColumns:
        """Return the intervals of entries."""
        bounds = ints(chain.from_iterable(chain.from_iterable(intervals)))
        return cls(bounds[0::2], bounds[1::2], ints(map(len, intervals)))

    def are_single(self) -> bool:
        """Say whether each entry has one interval."""
        return len(self.start) == len(self.count) and bool((self.count == 1).all())

    def as_tuples(self) -> Iterable[tuple[Interval, ...]]:
        """Return the intervals of each entry as values."""
        intervals: list[Interval] = list(zip(self.start.tolist(), self.end.tolist(), strict=True))
        if self.are_single():
            return zip(intervals, strict=True)
        bounds = pairwise(accumulate(self.count.tolist(), initial=0))
        return (tuple(intervals[first:last]) for first, last in bounds)

    def picked(self, rows: Ints) -> IntervalColumns:
        """Return the intervals of these entries, in this order."""
        if self.are_single():
            return IntervalColumns(self.start[rows], self.end[rows], self.count[rows])
        count = self.count[rows]
        until = np.cumsum(count)
        # Of each entry the first row here, less the first row there; then on by one an interval.
        shift = (np.cumsum(self.count) - self.count)[rows] - (until - count)
        chosen = np.arange(int(until[-1]) if len(until) else 0) + np.repeat(shift, count)
        return IntervalColumns(self.start[chosen], self.end[chosen], count)

    def owners(self) -> Ints:
        """Return whose each interval is, as a row of an entry."""
        return np.repeat(np.arange(len(self.count)), self.count)

    def firsts(self) -> Ints:
        """Return where each entry's first interval starts; -1 where it has none."""
        if self.are_single():
            return self.start
        has = self.count > 0
        start = zeros(len(has)) - 1
        start[has] = self.start[(np.cumsum(self.count) - self.count)[has]]
        return start

    def points(self) -> Ints:
        """Return the points that each entry's intervals cover together."""
        if self.are_single():
            return np.asarray(self.end - self.start)
        until = np.concatenate((zeros(1), np.cumsum(self.end - self.start)))
        row = np.cumsum(self.count)
        return np.asarray(until[row] - until[row - self.count])

    def longest(self) -> Ints:
        """Return the length of each entry's longest interval; 0 where it has none."""
        if self.are_single():
            return np.asarray(self.end - self.start)
        longest = zeros(len(self.count))
        np.maximum.at(longest, self.owners(), self.end - self.start)
        return longest

    def is_same(self, other: IntervalColumns) -> bool:
        """Say whether the intervals are the same."""
        return (
            np.array_equal(self.count, other.count)
            and np.array_equal(self.start, other.start)
            and np.array_equal(self.end, other.end)
        )
