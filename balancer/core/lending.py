"""What early rounds lend within a window to members that have run out.

Decides, where a policy lends, who gets how much of the points that nobody has: half of them in each
round, so that whoever runs out a moment later finds something too, and after a few rounds nothing
is left lying. First what was asked for in this window already, then what it comes to if that goes
on; both to the same level. Knows nothing of newcomers and of other windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from balancer.core.allocation.claims import waterfill
from balancer.core.columns import Ints, kind_for, points_of, zeros
from balancer.core.demand import Accounts
from balancer.core.layout import take_slice, with_further
from balancer.core.matched_entries import MatchedEntries
from worker_sdk.wire.distribution import DestinationShares, Member, Terms
from worker_sdk.wire.shares import Interval, points_for_permits

LOANS_MAX = 7
"""A member may have at most so many intervals beside its first."""

SHORTEST_PART = 20
"""A rate is taken over at least this part of a window, so that a first moment is not blown up."""


@dataclass(frozen=True, slots=True, eq=False)
class Wants:
    """Who has run out.

    Attributes:
        members: who.
        asked: points beyond their share for what was asked for already.
        at_rate: points beyond it if that goes on to the window's end; at least ``asked``.
        spare_points: are left for newcomers.
    """

    members: Sequence[Member]
    asked: Ints
    at_rate: Ints
    spare_points: int


def wants_of(terms: Terms, matched: MatchedEntries, *, spare_points: int, present: int) -> Wants:
    """Return who has run out in the present window, by accounts of nothing but that.

    Args:
        terms: of the newest document's line; nothing is lent where it does not cover the present
            window.
        matched: its entries, and live members' newest accounts.
        spare_points: what is left for newcomers.
        present: index of the present window.
    """
    capacity, window_ms = terms.capacity, terms.window_seconds * 1000
    from_ms, instant_ms = matched.accounts.column("from_ms"), matched.accounts.column("instant_ms")
    is_of_window = (present * window_ms <= from_ms) & (from_ms < instant_ms)
    may_borrow = (matched.account >= 0) & (matched.entries.intervals.count <= LOANS_MAX)
    rows = np.flatnonzero(may_borrow)
    rows = rows[is_of_window[matched.account[rows]]]
    if not terms.covers(present) or capacity <= 0:
        rows = rows[:0]
    accounts = Accounts.of(matched.accounts_of(rows), window_ms)
    shares = matched.entries.intervals.points()[rows]
    asked = np.minimum(accounts.used + accounts.denied, capacity)
    counted_ms = np.maximum(accounts.span_ms, max(1, window_ms // SHORTEST_PART))
    rate = asked.astype(kind_for(capacity * window_ms)) * window_ms // counted_ms
    at_once = np.maximum(points_of(asked, capacity) - shares, 0)
    at_rate = np.maximum(points_of(rate, capacity) - shares, at_once)
    members = [matched.entries.members[row] for row in rows.tolist()]
    return Wants(members, at_once, at_rate, spare_points)


def lend(line: DestinationShares, gaps: list[Interval], wants: Wants) -> DestinationShares:
    """Return the line with further intervals for those that have run out; the gaps shrink."""
    budget = (sum(end - start for start, end in gaps) - wants.spare_points + 1) // 2
    if budget <= 0 or not wants.at_rate.any():
        return line
    at_once, _ = waterfill(zeros(len(wants.asked)), wants.asked, budget)
    points, _ = waterfill(at_once, wants.at_rate, budget)
    least = points_for_permits(1, line.terms.capacity)
    given: dict[Member, Interval] = {}
    for row in np.argsort(-points, kind="stable").tolist():
        # Less than a permit is of no use: rather a permit for a few than a part of one for all.
        wanted = min(max(int(points[row]), least), budget)
        if wanted < least or not wants.at_rate[row]:
            break
        interval = take_slice(gaps, wanted)
        if interval is None or interval[1] - interval[0] < least:
            break
        given[wants.members[row]] = interval
        budget -= interval[1] - interval[0]
    return with_further(line, given)
