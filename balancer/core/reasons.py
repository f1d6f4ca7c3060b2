"""Why each member has its share, kept as columns until somebody asks.

Decides nothing. A round of many thousand members explains few of them to anybody; so a reason
becomes a value when it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from balancer.core.columns import Ints
from balancer.core.model import Reason, Usage
from worker_sdk.wire.distribution import Member


@dataclass(frozen=True, slots=True, eq=False)
class ReasonColumns:
    """One destination's reasons; one row a member.

    Attributes: as in `Reason`, a column each.
    """

    destination: str
    members: Sequence[Member]
    usages: Sequence[Usage]
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

    def reason(self, row: int) -> Reason:
        """Return the reason of a row."""
        host, instance = self.members[row]
        usage = self.usages[row]
        return Reason(
            destination=self.destination,
            host=host,
            instance=instance,
            rule=self.rules[row],
            asked_permits=int(self.asked_permits[row]),
            used_permits=usage.used,
            denied_permits=usage.denied,
            starved_ms=usage.starved_ms,
            peak_permits=int(self.peak_permits[row]),
            expected_permits=int(self.expected_permits[row]),
            wanted_permits=int(self.wanted_permits[row]),
            weight=int(self.weights[row]),
            reserved_points=int(self.reserved_points[row]),
            share_points=int(self.share_points[row]),
            safe_points=int(self.safe_points[row]),
            level_permits=self.level_permits,
            shadow_points=None if self.shadow_points is None else int(self.shadow_points[row]),
        )


class Reasons(Sequence[Reason]):
    """The reasons of a round, destination by destination."""

    def __init__(self, columns: Sequence[ReasonColumns]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return sum(len(columns.members) for columns in self._columns)

    def __iter__(self) -> Iterator[Reason]:
        for columns in self._columns:
            for row in range(len(columns.members)):
                yield columns.reason(row)

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
                return columns.reason(left)
            left -= len(columns.members)
        raise IndexError(index)
