"""Accounts as columns: how a round speaks of a million of them without a value for each.

Decides how accounts are told apart by destination, and which count as live. An account becomes a
value only when somebody looks at it. Knows no demand and no share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, repeat
from operator import attrgetter
from typing import Final, overload

import numpy as np

from balancer.core.chained import Chained
from balancer.core.columns import Ints, ints
from balancer.core.model import Usage
from worker_sdk.wire.distribution import Member

NUMBERS: Final = (
    "from_ms",
    "instant_ms",
    "epoch",
    "granted",
    "used",
    "denied",
    "starved_ms",
    "busy_ms",
    "seen_ms",
)
"""The numbers of an account, in the order of `Usage` and of the lines of a table."""

_numbers_of = attrgetter(*NUMBERS)


@dataclass(frozen=True, slots=True, eq=False)
class UsageColumns(Sequence[Usage]):
    """Accounts of one destination, one row a member.

    Attributes:
        destination: its name.
        members: whose row is which; each once.
        table: a line for each of `NUMBERS`, with a value a row.
    """

    destination: str
    members: Sequence[Member]
    table: Ints

    @classmethod
    def of(cls, usages: Sequence[Usage]) -> UsageColumns:
        """Return the columns of accounts of one destination, in their order."""
        if isinstance(usages, UsageColumns):
            return usages
        flat = ints(chain.from_iterable(map(_numbers_of, usages)))
        return cls(
            destination=usages[0].destination if usages else "",
            members=[(usage.host, usage.instance) for usage in usages],
            table=np.ascontiguousarray(flat.reshape(len(usages), len(NUMBERS)).T),
        )

    def column(self, name: str) -> Ints:
        """Return the column of one of `NUMBERS`."""
        column: Ints = self.table[NUMBERS.index(name)]
        return column

    def columns(self) -> dict[str, Ints]:
        """Return all of them by name."""
        return dict(zip(NUMBERS, self.table, strict=True))

    def picked(self, rows: Ints, members: Sequence[Member] | None = None) -> UsageColumns:
        """Return these rows, in this order; ``members`` are theirs, if somebody has them."""
        if members is None:
            members = [self.members[row] for row in rows.tolist()]
        return UsageColumns(self.destination, members, self.table[:, rows])

    def live(self, oldest_ms: int, gone: Set[Member]) -> UsageColumns:
        """Return the rows that are newer than ``oldest_ms`` of members that are not gone."""
        is_live = self.column("seen_ms") > oldest_ms
        if not gone.isdisjoint(self.members):
            is_live &= ~np.fromiter(map(gone.__contains__, self.members), np.bool_)
        return self if is_live.all() else self.picked(np.flatnonzero(is_live))

    def __len__(self) -> int:
        return len(self.members)

    @overload
    def __getitem__(self, index: int) -> Usage: ...

    @overload
    def __getitem__(self, index: slice) -> list[Usage]: ...

    def __getitem__(self, index: int | slice) -> Usage | list[Usage]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return Usage(*self.members[index], self.destination, *self.table[:, index].tolist())

    def __iter__(self) -> Iterator[Usage]:
        numbers = self.table.tolist()
        hosts_and_instances = zip(*self.members, strict=True) if self.members else ((), ())
        return map(Usage, *hosts_and_instances, repeat(self.destination), *numbers)


class UsageTable(Chained[Usage]):
    """Accounts of many destinations, each with columns of its own."""

    parts: Mapping[str, UsageColumns]

    @classmethod
    def of(cls, usages: Sequence[Usage]) -> UsageTable:
        """Return the table of accounts, each destination's in their order."""
        if isinstance(usages, UsageTable):
            return usages
        by_destination: dict[str, list[Usage]] = {}
        for usage in usages:
            by_destination.setdefault(usage.destination, []).append(usage)
        return cls({name: UsageColumns.of(known) for name, known in by_destination.items()})
