"""Why each member has its share, kept as columns until somebody asks.

Decides nothing. A round of many thousand members explains few of them to anybody; so a reason
becomes a value when it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import overload

from balancer.core.columns import Ints
from balancer.core.model import Reason
from balancer.core.usage_columns import UsageColumns
from worker_sdk.wire.distribution import Member


@dataclass(frozen=True, slots=True, eq=False)
class ReasonColumns:
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

    def reasons(self, rows: slice) -> Iterator[Reason]:
        """Yield the reasons of some rows."""

        def numbers(column: Ints) -> list[int]:
            listed: list[int] = column[rows].tolist()
            return listed

        members = self.members[rows]
        return map(
            Reason,
            repeat(self.destination),
            [host for host, _ in members],
            [instance for _, instance in members],
            self.rules[rows],
            numbers(self.asked_permits),
            numbers(self.accounts.column("used")),
            numbers(self.accounts.column("denied")),
            numbers(self.accounts.column("starved_ms")),
            numbers(self.peak_permits),
            numbers(self.expected_permits),
            numbers(self.reserved_points),
            numbers(self.share_points),
            numbers(self.safe_points),
            repeat(self.level_permits),
            numbers(self.wanted_permits),
            numbers(self.weights),
            repeat(None) if self.shadow_points is None else numbers(self.shadow_points),
        )


class Reasons(Sequence[Reason]):
    """The reasons of a round, destination by destination."""

    def __init__(self, columns: Sequence[ReasonColumns]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return sum(len(columns.members) for columns in self._columns)

    def __iter__(self) -> Iterator[Reason]:
        for columns in self._columns:
            yield from columns.reasons(slice(None))

    @overload
    def __getitem__(self, index: int) -> Reason: ...

    @overload
    def __getitem__(self, index: slice) -> list[Reason]: ...

    def __getitem__(self, index: int | slice) -> Reason | list[Reason]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        left = index + len(self) if index < 0 else index
        for columns in self._columns:
            if 0 <= left < len(columns.members):
                return next(columns.reasons(slice(left, left + 1)))
            left -= len(columns.members)
        raise IndexError(index)
