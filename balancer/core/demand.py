"""How many permits a window members want, each from its own account of a stretch of time.

Decides the demand of each account by itself. Knows no share, no round and no other member. All
functions work on columns, one row an account.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from balancer.core.columns import Flags, Ints, kind_for
from balancer.core.model import Usage
from balancer.core.usage_columns import UsageColumns
from worker_sdk.wire.limits import PERMITS_MAX

SATURATED_PERCENT: Final = 95
"""A member that used so much of its grant is at its limit."""

STARVED_PERCENT: Final = 90
"""A member that starved for so much of a stretch could not show how much it wants."""

SLACK_PARTS: Final = 4
"""A member that neither waited nor delivered for a quarter of a stretch had time to spare."""

GROWTH_PERCENT: Final = 110
"""The first time that a member has no time to spare it is believed to want at most so much of what
was enough."""

POOL_DIFFERENCE: Final = 1
"""Numbers of waiters that differ by no more are those of one pool: one of it may be at work."""

SHORTEST_PART: Final = 10
"""A stretch counts as at least this part of a window, so that a short one is not blown up."""


@dataclass(frozen=True, eq=False)
class Accounts:
    """Accounts of one destination as columns; what several rules ask of them is found once.

    Attributes:
        span_ms: length of each stretch.
        counted_ms: the same, but at least a tenth of a window.
        granted, used, denied, starved_ms, busy_ms: as in `Usage`.
        begins_with_window: whether the stretch does.
        window_ms: length of a window.
    """

    span_ms: Ints
    counted_ms: Ints
    granted: Ints
    used: Ints
    denied: Ints
    starved_ms: Ints
    busy_ms: Ints
    begins_with_window: Flags
    window_ms: int

    @classmethod
    def of(cls, usages: Sequence[Usage], window_ms: int) -> Accounts:
        """Return the columns of ``usages``."""
        column = UsageColumns.of(usages).columns()
        span_ms = column["instant_ms"] - column["from_ms"]
        longest_ms = max(int(span_ms.max(initial=0)), window_ms)
        most = max(int(column["used"].max(initial=0)), int(column["granted"].max(initial=0)))
        kind = kind_for(2 * SHORTEST_PART * most * longest_ms)
        span_ms = span_ms.astype(kind, copy=False)
        return cls(
            span_ms=span_ms,
            counted_ms=np.maximum(span_ms, max(window_ms // SHORTEST_PART, 1)),
            granted=column["granted"].astype(kind, copy=False),
            used=column["used"].astype(kind, copy=False),
            denied=column["denied"].astype(kind, copy=False),
            starved_ms=column["starved_ms"].astype(kind, copy=False),
            busy_ms=column["busy_ms"].astype(kind, copy=False),
            begins_with_window=np.asarray(column["from_ms"] % window_ms == 0),
            window_ms=window_ms,
        )

    @cached_property
    def is_new(self) -> Flags:
        """Which are hellos: accounts of no time at all."""
        return np.asarray(self.span_ms == 0)

    @cached_property
    def is_saturated(self) -> Flags:
        """Which members used nearly all that they were granted, and wanted any.

        One that was granted nothing and asked for nothing is idle; a new one may be at its limit.
        """
        wanted = (self.used > 0) | (self.denied > 0) | (self.starved_ms > 0) | self.is_new
        return np.asarray((self.used * 100 >= SATURATED_PERCENT * self.granted) & wanted)

    @cached_property
    def rates(self) -> Ints:
        """What each used, in permits a window: the nearest number, 1 where it used any.

        Rounded up, a stretch a millisecond short would claim a permit more each round.
        """
        nearest = (2 * self.used * self.window_ms + self.counted_ms) // (2 * self.counted_ms)
        return np.asarray(np.maximum(nearest, np.minimum(self.used, 1)))

    @cached_property
    def has_slack(self) -> Flags:
        """Which members had time in which they neither waited nor delivered."""
        idle_ms = self.span_ms - np.minimum(self.starved_ms, self.span_ms) - self.busy_ms
        return np.asarray(idle_ms * SLACK_PARTS >= self.span_ms)


def demands_with_loans(accounts: Accounts, asked: Ints, last: Ints) -> Ints:
    """Return demands where accounts may be those by which members borrow.

    Such an account begins with a window and ends within it. A burst at the window's start must not
    be extrapolated to the whole window, and steady work must not be taken for the part of it that
    was seen. So demand is what was asked for, or its extrapolation as far as the demand known
    before bears it out.

    Args:
        accounts: the accounts.
        asked: what `demands` says.
        last: the demand known before.
    """
    is_loan = accounts.begins_with_window & (accounts.span_ms > 0)
    is_loan &= accounts.span_ms < accounts.window_ms
    seen = np.minimum(accounts.used + accounts.denied, PERMITS_MAX)
    return np.where(is_loan, np.maximum(seen, np.minimum(asked, last)), asked).astype(np.int64)


def demands(accounts: Accounts, even_share_permits: int, enough: Ints) -> Ints:
    """Return the demands in permits a window, at most `PERMITS_MAX`.

    ``used·window/elapsed + max(denied, x)``, where x extrapolates what a blocking worker would have
    used in the time in which it had to wait: ``used·window/elapsed · starved/max(elapsed - starved,
    elapsed/4)``, if the member was saturated. A member that starved for nine tenths of the time, or
    starved and was granted nothing, has shown too little: it is taken to want at least the even
    share, or what is known to be enough.

    A member whose share is just enough waits for the pace of its permits too, and x would take
    that for want. What `enough_after` knows bounds it then.

    Args:
        accounts: the accounts.
        even_share_permits: what an even split would give each.
        enough: what `enough_after` returned last; 0 for not known.
    """
    rates = accounts.rates
    counted_ms = accounts.counted_ms
    starved_ms = np.minimum(accounts.starved_ms, counted_ms)
    divisor_ms = np.maximum(np.maximum(counted_ms - starved_ms, counted_ms // 4), 1)
    unseen = rates * starved_ms // divisor_ms
    most = _most_permits(accounts, enough)
    unseen = np.where(most >= 0, np.minimum(unseen, np.maximum(most - rates, 0)), unseen)
    saturated = accounts.is_saturated
    unseen = np.where(saturated, unseen, 0)
    wanted = rates + np.maximum(accounts.denied, unseen)
    starving = (starved_ms * 100 >= STARVED_PERCENT * counted_ms) & saturated
    ungranted = (accounts.granted == 0) & (accounts.starved_ms > 0)
    least = np.where(most >= 0, most, even_share_permits)
    wanted = np.where(starving | ungranted, np.maximum(wanted, least), wanted)
    return np.asarray(np.minimum(wanted, PERMITS_MAX)).astype(np.int64)


def _most_permits(accounts: Accounts, enough: Ints) -> Ints:
    """Return what members at their limit may be believed to want; -1 for no bound."""
    grown = -(-enough * GROWTH_PERCENT // 100)
    unknown = (enough == 0) | ((enough < 0) & ~accounts.has_slack)
    most = np.where(accounts.has_slack, np.abs(enough), grown)
    return np.where(unknown, -1, most)


def enough_after(accounts: Accounts, asked: Ints, enough: Ints) -> Ints:
    """Return the demands that members showed when nothing limited them; 0 for not known.

    A member that left permits unused showed it. The number is remembered while the member has time
    to spare. The first time it has none the number turns negative, the second time it is forgotten:
    a share one permit short takes all the spare time of a worker that sends one by one, and only if
    a larger share does not help has its demand outgrown what was enough.
    """
    limited = np.where(accounts.has_slack, np.abs(enough), np.where(enough > 0, -enough, 0))
    return np.where(accounts.is_saturated, limited, asked).astype(np.int64)


def waits_as_a_pool(accounts: Accounts, asked_last: Ints, denied_last: Ints, enough: Ints) -> Flags:
    """Say which members wait with a whole pool, whose size hides how much they want.

    A pool of threads or tasks never has more waiters than threads or tasks, however much work lies
    behind them. It shows in two accounts: the member had what it asked for last, used it up, and
    yet as many wait as did then. A member that asks for all it wants is served in full by what it
    asked for, or asks for another number the next time; and where it is known what was enough for a
    member, that bounds its want.
    """
    # What was asked for last may be more than anything in these accounts.
    longest_ms = int(accounts.counted_ms.max(initial=0))
    last = asked_last.astype(kind_for(int(asked_last.max(initial=0)) * longest_ms), copy=False)
    had_it = accounts.granted * accounts.window_ms >= last * accounts.counted_ms
    denied = accounts.denied
    as_many = np.abs(denied - denied_last) <= POOL_DIFFERENCE
    waited = (denied > 0) & (denied_last > 0) & (asked_last > 0)
    unbounded = _most_permits(accounts, enough) < 0
    return np.asarray(accounts.is_saturated & had_it & waited & as_many & unbounded)
