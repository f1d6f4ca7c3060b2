"""Which row of a destination's columns belongs to which member.

Decides nothing. Names are looked up here alone, as seldom as can be: everything else that is done
to members is done to numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

import numpy as np

from balancer.core.columns import Ints, ints, zeros
from worker_sdk.wire.distribution import Member


class Rows:
    """The rows of some members.

    Attributes:
        members: whose row is which.
    """

    def __init__(
        self, members: Sequence[Member], place_of: Mapping[Member, int], row_of_place: Ints
    ) -> None:
        """Take members and, since they were numbered otherwise before, the row of each number."""
        self.members = members
        self._place_of = place_of
        self._row_of_place = np.append(row_of_place, -1)  # so that -1 stays what it is
        self._found: tuple[Sequence[Member], Ints] = ((), zeros(0))

    @classmethod
    def of(cls, members: Sequence[Member]) -> Rows:
        """Return the rows of ``members``, one after another; each stands there once."""
        count = len(members)
        return cls(members, dict(zip(members, range(count), strict=True)), np.arange(count))

    def moved(self, place: Ints, members: Sequence[Member]) -> Rows:
        """Return the rows of the same members after row k has come from ``place[k]``."""
        row_of_place = np.empty_like(place)
        row_of_place[place] = np.arange(len(place))
        return Rows(members, self._place_of, row_of_place)

    def find(self, members: Sequence[Member]) -> Ints:
        """Return the row of each of ``members``; -1 for none."""
        if self._found[0] is not members:  # the newest document is asked about twice
            places = ints(map(self._place_of.get, members, repeat(-1)))
            self._found = members, self._row_of_place[places]
        return self._found[1]

    def __len__(self) -> int:
        return len(self.members)
