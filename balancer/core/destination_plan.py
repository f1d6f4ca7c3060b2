"""One destination planned anew for coming windows: claims, shares, holds, safe points, reasons.

Decides each live member's interval and safe points (rules 8 to 10 of docs/explanation/safety.md),
and holds for members that are gone. Knows the documents only as promises, and nothing of other
destinations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from balancer.core import invariants
from balancer.core.allocation.claims import Claims, Division, waterfill
from balancer.core.allocation.equal import equal
from balancer.core.allocation.max_min import max_min
from balancer.core.allocation.surplus import surplus
from balancer.core.columns import Flags, Ints, points_of, total, zeros
from balancer.core.demand import (
    Accounts,
    demands,
    demands_with_loans,
    enough_after,
    waits_as_a_pool,
)
from balancer.core.entry_columns import EntryColumns
from balancer.core.interval_columns import IntervalColumns
from balancer.core.layout import Layout, PreviousLayout, free_gaps, lay_holds, lay_out
from balancer.core.learning import SILENCE_TENTHS
from balancer.core.memory import Trails
from balancer.core.model import Destination, MemberRecord, Policy, Strategy
from balancer.core.reasons import ReasonColumns
from balancer.core.reservations import Promises, reserved_permits, reserved_points
from balancer.core.rows import Rows
from balancer.core.usage_columns import UsageColumns
from balancer.core.weights import weights_of
from worker_sdk.wire.distribution import PERMILLE, DestinationShares, Hold, Member, Terms
from worker_sdk.wire.limits import DESTINATION_MEMBERS_MAX, PERMITS_MAX
from worker_sdk.wire.shares import POINTS

STRATEGIES: Final[Mapping[Strategy, Callable[[Claims, int], Division]]] = {
    Strategy.MAX_MIN: max_min,
    Strategy.EQUAL: equal,
    Strategy.SURPLUS: surplus,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A destination's new line, why, what to remember, and what of it must not be."""

    line: DestinationShares
    reasons: ReasonColumns
    trails: Trails
    faults: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class _Wishes:
    """What the live members want, in permits; one row a member, in the order of the trails."""

    accounts: Accounts
    rates: Ints
    asked: Ints
    wanted: Ints
    is_foreseen: Flags
    usual: Ints
    expected: Ints
    repeated: Ints
    silent: Flags


def plan_destination(
    destination: Destination,
    *,
    terms: Terms,
    before: DestinationShares | None,
    accounts: UsageColumns,
    rows: Rows,
    members: Mapping[Member, MemberRecord],
    oldest: Mapping[Member, int],
    promises: Sequence[Promises],
    known: Trails,
    round_ms: int,
    now_ms: int,
    notes_demand: bool,
) -> Outcome:
    """Plan one destination for the windows of ``terms``.

    Args:
        destination: with its policy.
        terms: of the new line; its capacity is 0 where the destination was removed.
        before: its line in the newest document.
        accounts: live members' newest accounts.
        rows: of these accounts.
        members: everybody known.
        oldest: the oldest epoch that each may still go by, from the start of these windows on.
        promises: of every unexpired document.
        known: what is remembered of its members.
        round_ms: length of a round.
        now_ms: the present Unix instant.
        notes_demand: whether this round's demand enters the memory (once a regular round).
    """
    policy = destination.policy
    entries = EntryColumns.of(() if before is None else before.entries)
    if len(accounts) > DESTINATION_MEMBERS_MAX:  # more than readers take: newcomers have to wait
        previous = PreviousLayout.of(rows, entries)
        accounts = accounts.picked(previous.order()[:DESTINATION_MEMBERS_MAX])
        rows = Rows.of(accounts.members)
    trails, row = known.followed(rows)
    live = rows.moved(row, trails.members)
    accounts = accounts.picked(row, trails.members)
    previous = PreviousLayout.of(live, entries)
    wishes, trails = _wishes(accounts, trails, terms, policy, round_ms, now_ms, notes=notes_demand)
    promised = promised_points(terms, promises, oldest, live)
    budget = POINTS - sum(points for points, _ in promised.gone.values())
    if not promised.is_full:
        budget -= min(policy.unplanned_points, budget - total(promised.kept))
    weights = weights_of(policy.weights, trails.members, members)
    claims = _claims(
        policy, wishes, trails, promised.kept, weights, previous.points, (terms.capacity, budget)
    )
    division, shadow = _divided(policy, claims, budget, promised)
    safe = zeros(len(claims))
    if not promised.is_full:
        safe = _safe_points(policy, claims, division, trails.low_water(), terms.capacity)
    layout = lay_out(
        previous.order(),
        division.points,
        capacity=terms.capacity,
        windows=range(terms.from_window, terms.until_window),
        served_window=trails.served_window,
    )
    line = line_of(terms, previous, layout, safe, promised)
    return Outcome(
        line,
        _reasons(terms, accounts, wishes, claims, division, (safe, shadow), trails),
        replace(
            trails, served_window=np.where(layout.served > 0, layout.served, trails.served_window)
        ),
        promised.faults(line, live),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Promised:
    """What is to be kept since earlier documents promise it.

    Attributes:
        kept: points of each live member.
        gone: of those no longer live: points, and until when.
        is_full: nobody else may be given any.
        until_ms: the last of the dates.
    """

    kept: Ints
    gone: Mapping[Member, tuple[int, int]]
    is_full: bool
    until_ms: int

    def faults(self, line: DestinationShares, live: Rows) -> list[str]:
        """Return what of it the new line does not keep."""
        gone = {member: points for member, (points, _) in self.gone.items()}
        return invariants.promises_kept(line, live, self.kept, gone)


def promised_points(
    terms: Terms,
    promises: Sequence[Promises],
    oldest: Mapping[Member, int],
    live: Rows,
) -> Promised:
    """Return what windows of ``terms`` must keep for the live members, and for all others."""
    window_ms = terms.window_seconds * 1000
    reserved = reserved_permits(
        promises, oldest, live, start_ms=terms.from_window * window_ms, window_ms=window_ms
    )
    kept, of_others, is_full = reserved_points(reserved, terms.capacity)
    gone = {
        member: (points, until_ms)
        for (member, (_, until_ms)), points in zip(
            reserved.others.items(), of_others.tolist(), strict=True
        )
    }
    return Promised(kept, gone, is_full, reserved.until_ms)


def _wishes(
    usages: UsageColumns,
    trails: Trails,
    terms: Terms,
    policy: Policy,
    round_ms: int,
    now_ms: int,
    *,
    notes: bool,
) -> tuple[_Wishes, Trails]:
    """Return what members want, and the trails with this round's demand where it is noted."""
    window_ms = terms.window_seconds * 1000
    count = len(usages)
    even_permits = terms.capacity // max(1, count)
    accounts = Accounts.of(usages, window_ms)
    asked = demands(accounts, even_permits, trails.enough)
    asked = np.where(
        waits_as_a_pool(accounts, trails.last(), trails.denied, trails.enough),
        np.maximum(asked, np.minimum(2 * accounts.rates, PERMITS_MAX)),
        asked,
    ).astype(np.int64)
    if policy.lend_points:
        asked = demands_with_loans(accounts, asked, trails.last())
    # A member that has only said hello is taken to want what it, or its host's member before it,
    # wanted last; one of which nothing is known, the median of the others, at most the even share.
    asked = np.where(accounts.is_new, np.maximum(asked, trails.last()), asked)
    is_unknown = (accounts.granted == 0) & (trails.rounds == 0)
    reported = np.sort(asked[~is_unknown])
    common = even_permits
    if len(reported):
        common = min(even_permits, int(reported[(len(reported) - 1) // 2]))
    asked = np.where(is_unknown, np.maximum(asked, common), asked)
    if notes:
        enough = enough_after(accounts, asked, trails.enough)
        denied = np.minimum(accounts.denied, PERMITS_MAX).astype(np.int64)
        trails = trails.note(asked, denied, enough, policy.peak_decay_permille)
    rates = accounts.rates.astype(np.int64)
    wanted, is_foreseen = asked, np.zeros(count, dtype=np.bool_)
    usual = expected = repeated = zeros(count)
    if policy.expect_recurring:
        expected, repeated = trails.history.recurring(count)
        foreseen, has = trails.history.foreseen(count)
        # Where work was refused it will come again, so that no lower demand is foreseen.
        is_foreseen = has & ((foreseen > asked) | (asked <= rates))
        wanted = np.where(is_foreseen, foreseen, asked)
        usual = np.where(has, 0, trails.history.usual(count))
    silence_ms = SILENCE_TENTHS * max(round_ms, window_ms)
    wishes = _Wishes(
        accounts=accounts,
        rates=rates,
        asked=asked,
        wanted=wanted,
        is_foreseen=is_foreseen,
        usual=usual,
        expected=expected,
        repeated=repeated,
        silent=np.asarray((now_ms - usages.column("seen_ms")) * 10 > silence_ms),
    )
    return wishes, trails


def _divided(
    policy: Policy, claims: Claims, budget: int, promised: Promised
) -> tuple[Division, Ints | None]:
    """Return the division, and the points that the shadow strategy would give."""
    if promised.is_full:
        return Division(promised.kept, None, ["held"] * len(claims)), None
    shadow = None
    if policy.shadow is not None:
        shadow = STRATEGIES[policy.shadow](claims, budget).points
    return STRATEGIES[policy.strategy](claims, budget), shadow


def _claims(
    policy: Policy,
    wishes: _Wishes,
    trails: Trails,
    reserved: Ints,
    weights: Ints,
    share_before: Ints,
    limits: tuple[int, int],
) -> Claims:
    """Return the claims in points; ``limits`` are the capacity and the budget."""
    capacity, budget = limits
    lower = reserved
    if policy.minimum_points:
        minimum = np.where(wishes.silent, 0, policy.minimum_points)
        lower, _ = waterfill(reserved, minimum, budget)
    head_room = wishes.wanted + wishes.wanted * policy.head_room_permille // PERMILLE
    return Claims(
        reserved=reserved,
        lower=lower,
        maximum=np.full(len(reserved), policy.maximum_points),
        most=np.maximum(reserved, policy.maximum_points),
        weight=weights,
        wanted=points_of(wishes.wanted, capacity),
        is_foreseen=wishes.is_foreseen,
        usual=points_of(wishes.usual, capacity),
        with_head_room=points_of(head_room, capacity),
        expected=points_of(wishes.expected, capacity),
        repeated=points_of(wishes.repeated, capacity),
        peak=points_of(trails.peak, capacity),
        used=points_of(wishes.rates, capacity),
        share_before=share_before,
        saturated=wishes.accounts.is_saturated,
        silent=wishes.silent,
    )


def _safe_points(
    policy: Policy, claims: Claims, division: Division, low_water: Ints, capacity: int
) -> Ints:
    """Return safe points: the least of a part of the share, the low-water mark, and the target.

    The target is the max-min division without reservations, which the planner is moving to. More
    would tie up points that newcomers must get. Where nobody is limited newcomers find enough, so
    the whole share counts instead of a part of it.
    """
    budget = POINTS - policy.unplanned_points
    targets, _ = waterfill(zeros(len(claims)), claims.wanted, budget, claims.weight)
    part = division.points
    if division.level is not None:
        part = part * policy.safe_permille // PERMILLE
    least = np.minimum(np.minimum(part, points_of(low_water, capacity)), targets)
    return np.where(claims.silent, 0, least)


def line_of(
    terms: Terms,
    previous: PreviousLayout,
    layout: Layout,
    safe: Ints,
    promised: Promised,
) -> DestinationShares:
    """Return the line with an entry for each member and a hold for each that is not live."""
    names, order = previous.members, layout.order
    members = [names[row] for row in order.tolist()]
    start, end, count = layout.start[order], layout.end[order], zeros(len(names))
    count[: len(order)] = 1
    if len(order) < len(names):
        # Members that got nothing are listed too, else an early round would take them for new.
        without = np.flatnonzero(layout.start == layout.end).tolist()
        members += sorted(names[row] for row in without)
    safe_points = zeros(len(names))
    safe_points[: len(order)] = safe[order]
    entries = EntryColumns(tuple(members), IntervalColumns(start, end, count), safe_points)
    holds, _ = lay_holds(promised.gone, int(layout.end.max(initial=0)))
    line = DestinationShares(terms, holds, entries)
    return _without_gaps(line, promised.until_ms) if promised.is_full else line


def _without_gaps(line: DestinationShares, until_ms: int) -> DestinationShares:
    """Return the line with a hold over its last points: promises fill the whole capacity.

    Otherwise an early round would give points to newcomers while everybody may spend all.
    """
    holds = list(line.holds)
    for start, end in free_gaps([EntryColumns.of(line.entries).intervals], line.holds):
        holds.append(Hold(start, end, until_ms))
    return DestinationShares(line.terms, tuple(sorted(holds, key=_start)), line.entries)


def _start(hold: Hold) -> int:
    return hold.start


def _reasons(
    terms: Terms,
    accounts: UsageColumns,
    wishes: _Wishes,
    claims: Claims,
    division: Division,
    points: tuple[Ints, Ints | None],
    trails: Trails,
) -> ReasonColumns:
    """Return why; ``points`` are the safe ones and those of the shadow strategy."""
    safe, shadow = points
    level = None if division.level is None else terms.capacity * division.level // POINTS
    return ReasonColumns(
        destination=terms.destination,
        members=trails.members,
        accounts=accounts,
        rules=division.rules,
        asked_permits=wishes.asked,
        wanted_permits=wishes.wanted,
        peak_permits=trails.peak,
        expected_permits=wishes.expected,
        weights=claims.weight,
        reserved_points=claims.reserved,
        share_points=division.points,
        safe_points=safe,
        level_permits=level,
        shadow_points=shadow,
    )
