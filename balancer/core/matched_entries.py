"""A line's entries matched with live members' accounts: who reports, and who is new.

Decides nothing but the order of newcomers. Knows no demand and no share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from balancer.core.columns import Ints
from balancer.core.entry_columns import EntryColumns
from balancer.core.rows import Rows
from balancer.core.usage_columns import UsageColumns
from worker_sdk.wire.distribution import Entry, Member


@dataclass(frozen=True, slots=True, eq=False)
class MatchedEntries:
    """A line's entries beside live members' accounts.

    Attributes:
        entries: of the line.
        accounts: of the live members.
        account: of each entry, the row of its member's account; -1 where it has none.
    """

    entries: EntryColumns
    accounts: UsageColumns
    account: Ints

    @classmethod
    def of(cls, entries: Sequence[Entry], accounts: UsageColumns, rows: Rows) -> MatchedEntries:
        """Find them in one another; ``rows`` are those of the accounts."""
        columns = EntryColumns.of(entries)
        return cls(columns, accounts, rows.find(columns.members))

    def newcomers(self) -> list[Member]:
        """Return the live members without an entry: who was heard of first comes first."""
        has_entry = np.zeros(len(self.accounts), dtype=np.bool_)
        has_entry[self.account[self.account >= 0]] = True
        rows = np.flatnonzero(~has_entry)
        seen_ms = self.accounts.column("seen_ms")[rows].tolist()
        members = [self.accounts.members[row] for row in rows.tolist()]
        return [member for _, member in sorted(zip(seen_ms, members, strict=True))]

    def accounts_of(self, rows: Ints) -> UsageColumns:
        """Return the accounts of these entries' members."""
        return self.accounts.picked(self.account[rows])
