"""Why each member has its share, kept as columns until somebody asks.

Decides nothing. Of a round of many thousand members few are ever explained to anybody; so a reason
becomes a value only when it is looked at. Code that wants something of all of them reads columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import repeat
from typing import Any, Final, cast, overload

import numpy as np

from balancer.core.chained import Chained
from balancer.core.columns import Ints
from balancer.core.model import Reason
from balancer.core.usage_columns import UsageColumns
from worker_sdk.wire.distribution import Member

REASON_FIELDS: Final = tuple(field.name for field in fields(Reason))[1:]
"""What is told of a member, in the order of `Reason`: all but the destination, its first."""

_OF_ACCOUNTS: Final = {
    "used_permits": "used",
    "denied_permits": "denied",
    "starved_ms": "starved_ms",
}

Column = Ints | Sequence[Any] | int | None
"""A value a row, or one value that is that of every row."""


@dataclass(frozen=True, slots=True, eq=False)
class ReasonColumns(Sequence[Reason]):
    """One destination's reasons; one row a member.

    Attributes: as in `Reason`, a column each; what is only told of an account stands there.
    """

    destination: str
    members: Sequence[Member]
    accounts: UsageColumns
    rules: Sequence[str]
    asked_permits: Ints
    wanted_permits: Ints
    peak_permits: Ints
    expected_permits: Ints
    weights: Ints
    reserved_points: Ints
    share_points: Ints
    safe_points: Ints
    level_permits: int | None
    shadow_points: Ints | None = None

    def column(self, name: str) -> Column:
        """Return the column of one of `REASON_FIELDS`."""
        match name:
            case "host":
                return [host for host, _ in self.members]
            case "instance":
                return [instance for _, instance in self.members]
            case "rule":
                return self.rules
            case "weight":
                return self.weights
            case _ if name in _OF_ACCOUNTS:
                return self.accounts.column(_OF_ACCOUNTS[name])
        column: Column = getattr(self, name)
        return column

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Reason]:
        return self._reasons(slice(None))

    @overload
    def __getitem__(self, index: int) -> Reason: ...

    @overload
    def __getitem__(self, index: slice) -> list[Reason]: ...

    def __getitem__(self, index: int | slice) -> Reason | list[Reason]:
        if isinstance(index, slice):
            return list(self._reasons(index))
        row = range(len(self))[index]
        return next(self._reasons(slice(row, row + 1)))

    def _reasons(self, rows: slice) -> Iterator[Reason]:
        def part(name: str) -> Iterable[Any]:
            column = self.column(name)
            if column is None or isinstance(column, int):
                return repeat(column)
            some = column[rows]
            return some.tolist() if isinstance(some, np.ndarray) else some

        members = self.members[rows]
        names = ([host for host, _ in members], [instance for _, instance in members])
        return map(Reason, repeat(self.destination), *names, *map(part, REASON_FIELDS[2:]))


class Reasons(Chained[Reason]):
    """The reasons of a round, destination by destination."""

    parts: Mapping[str, ReasonColumns]

    @classmethod
    def of(cls, columns: Iterable[ReasonColumns]) -> Reasons:
        """Return the reasons of several destinations."""
        return cls({part.destination: part for part in columns})


def column_of(reasons: Sequence[Reason], name: str) -> Column:
    """Return what reasons of one destination say in one of `REASON_FIELDS`."""
    if isinstance(reasons, ReasonColumns):
        return reasons.column(name)
    return [getattr(reason, name) for reason in reasons]


def values_of(reasons: Sequence[Reason], name: str) -> Sequence[Any]:
    """Return the same, a value a reason."""
    column = column_of(reasons, name)
    if isinstance(column, np.ndarray):
        return cast("list[int]", column.tolist())
    return [column] * len(reasons) if column is None or isinstance(column, int) else column


def parts_of(reasons: Iterable[Reason]) -> Mapping[str, Sequence[Reason]]:
    """Return the reasons of each destination."""
    if isinstance(reasons, Reasons):
        return reasons.parts
    found: dict[str, list[Reason]] = {}
    for reason in reasons:
        found.setdefault(reason.destination, []).append(reason)
    return found
