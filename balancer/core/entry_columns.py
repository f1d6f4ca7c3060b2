"""Entries of a line as columns: how a document speaks of a million of them.

Decides nothing; an entry becomes a value only when somebody looks at it. Code that goes over all
of them reads the columns: `EntryColumns.of` gives those of any line, whether planned or read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import overload

import numpy as np

from balancer.core.columns import SMALL, Ints, ints, zeros
from balancer.core.interval_columns import IntervalColumns
from worker_sdk.wire.distribution import Entry, Member
from worker_sdk.wire.entries import Columns

_member_of = attrgetter("host", "instance")
_intervals_of = attrgetter("intervals")
_safe_points_of = attrgetter("safe_points")


@dataclass(frozen=True, slots=True, eq=False)
class EntryColumns(Sequence[Entry]):
    """Entries of one line, one row each, in the order of the line; nothing in it ever changes.

    Attributes:
        members: whose row is which.
        intervals: of each, none, one or several.
        safe_points: of each.
    """

    members: tuple[Member, ...]
    intervals: IntervalColumns
    safe_points: Ints

    @classmethod
    def of(
        cls, entries: Iterable[Entry] | Columns, known: dict[Member, Member] | None = None
    ) -> EntryColumns:
        """Return the columns of ``entries``, themselves where they are some.

        Args:
            entries: any; `Columns` as they are read.
            known: members, so that one stands only once in many lines; those missing are added.
        """
        if isinstance(entries, EntryColumns):
            return entries
        if isinstance(entries, Columns):
            members, starts, ends, points = entries
            safe_points = ints(points)
            start, end = ints(starts), ints(ends)
            has = start < end
            intervals = IntervalColumns(start[has], end[has], has.astype(SMALL))
        else:
            listed = list(entries)
            members = list(map(_member_of, listed))
            safe_points = ints(map(_safe_points_of, listed))
            intervals = IntervalColumns.of(list(map(_intervals_of, listed)))
        if known is not None:
            members = list(map(known.setdefault, members, members))
        return cls(tuple(members), intervals, safe_points)

    def columns(self) -> Columns | None:
        """Return them as the wire writes them; None where one has several intervals."""
        intervals = self.intervals
        if intervals.count.max(initial=0) > 1:
            return None
        start, end = zeros(len(self)), zeros(len(self))
        has = intervals.owners()
        start[has], end[has] = intervals.start, intervals.end
        return Columns(self.members, start.tolist(), end.tolist(), self.safe_points.tolist())

    def picked(self, rows: Ints) -> EntryColumns:
        """Return these rows, in this order."""
        members = self.members
        return EntryColumns(
            tuple([members[row] for row in rows.tolist()]),
            self.intervals.picked(rows),
            self.safe_points[rows],
        )

    def changed(
        self, changes: Mapping[int, Entry | None], more: Sequence[Entry] = ()
    ) -> EntryColumns:
        """Return the entries with some rows replaced, or taken out, and more at the end."""
        if not changes and not more:
            return self
        added = EntryColumns.of(
            [entry for entry in (*changes.values(), *more) if entry is not None]
        )
        order = np.arange(len(self))
        place = len(self)
        for row, entry in changes.items():
            order[row] = -1 if entry is None else place
            place += entry is not None
        order = np.concatenate((order[order >= 0], np.arange(place, len(self) + len(added))))
        intervals = (
            np.concatenate((getattr(self.intervals, name), getattr(added.intervals, name)))
            for name in ("start", "end", "count")
        )
        safe_points = np.concatenate((self.safe_points, added.safe_points))
        joined = EntryColumns(
            self.members + added.members, IntervalColumns(*intervals), safe_points
        )
        return joined.picked(order)

    def __len__(self) -> int:
        return len(self.members)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> EntryColumns: ...

    def __getitem__(self, index: int | slice) -> Entry | EntryColumns:
        if isinstance(index, slice):
            return self.picked(np.arange(len(self))[index])
        return next(iter(self.picked(np.arange(len(self))[[index]])))

    def __iter__(self) -> Iterator[Entry]:
        safe_points: list[int] = self.safe_points.tolist()
        for (host, instance), intervals, safe in zip(
            self.members, self.intervals.as_tuples(), safe_points, strict=True
        ):
            yield Entry(host, instance, intervals, safe)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, EntryColumns):
            return self is other or (
                self.members == other.members
                and self.intervals.is_same(other.intervals)
                and np.array_equal(self.safe_points, other.safe_points)
            )
        if isinstance(other, tuple):
            return tuple(self) == other
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))
