"""Which row of a destination's columns belongs to which member.

Decides nothing. Names are looked up here alone, as seldom as can be; everything else works on
numbers of rows. Where every worker sends to every destination, line after line has the same
members, and those that were looked up once are not looked up again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Final

import numpy as np

from balancer.core.columns import Ints, ints
from worker_sdk.wire.distribution import Member

_REMEMBERED: Final = 8
"""So many look-ups are remembered: a destination's trails, and its line in each document."""


class MemberIndex:
    """The places of some members in a list of them, and what was asked of them lately."""

    def __init__(self, members: Sequence[Member]) -> None:
        """Take members, each of which stands there once."""
        self.members = members
        self._place_of = dict(zip(members, range(len(members)), strict=True))
        self._found: list[tuple[Sequence[Member], Ints]] = []
        self._values: tuple[Mapping[Member, int], Ints] | None = None

    def find(self, members: Sequence[Member]) -> Ints:
        """Return the place of each of ``members``; -1 for none."""
        for known, places in self._found:
            if known is members or known == members:
                return places
        places = ints(map(self._place_of.get, members, repeat(-1)))
        self._found = [(members, places), *self._found[: _REMEMBERED - 1]]
        return places

    def values_of(self, numbers: Mapping[Member, int]) -> Ints:
        """Return what ``numbers`` says of each; 0 where it says nothing."""
        if self._values is None or self._values[0] is not numbers:
            self._values = numbers, ints(map(numbers.get, self.members, repeat(0)))
        return self._values[1]


class Rows:
    """The rows of some members.

    Attributes:
        members: whose row is which.
    """

    def __init__(self, members: Sequence[Member], index: MemberIndex, place: Ints) -> None:
        """Take members, their places in a list, and which place each row has."""
        self.members = members
        self._index = index
        self._place = place
        row_of_place = np.empty(len(place) + 1, dtype=place.dtype)
        row_of_place[place] = np.arange(len(place))
        row_of_place[-1] = -1  # a place of -1 (not found) indexes the last element
        self._row_of_place = row_of_place

    @classmethod
    def of(cls, members: Sequence[Member]) -> Rows:
        """Return the rows of ``members``, one after another; each stands there once."""
        return cls(members, MemberIndex(members), np.arange(len(members)))

    def moved(self, row: Ints, members: Sequence[Member]) -> Rows:
        """Return the rows of the same members after row k has come from ``row[k]``."""
        return Rows(members, self._index, self._place[row])

    def find(self, members: Sequence[Member]) -> Ints:
        """Return the row of each of ``members``; -1 for none."""
        return np.asarray(self._row_of_place[self._index.find(members)])

    def values_of(self, numbers: Mapping[Member, int]) -> Ints:
        """Return what ``numbers`` says of each row's member; 0 where it says nothing."""
        return np.asarray(self._index.values_of(numbers)[self._place])

    def __len__(self) -> int:
        return len(self.members)
