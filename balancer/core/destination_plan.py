"""One destination planned anew for coming windows: claims, shares, holds, safe points, reasons.

Decides each live member's interval and safe points (rules 8 to 10), and holds for those gone.
Knows the documents only as promises, and nothing of other destinations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

import numpy as np

from balancer.core import invariants
from balancer.core.allocation.claims import Claims, Division, waterfill
from balancer.core.allocation.equal import equal
from balancer.core.allocation.max_min import max_min
from balancer.core.allocation.surplus import surplus
from balancer.core.columns import Flags, Ints, ints, points_of, total, zeros
from balancer.core.demand import Accounts, demands, enough_after, shows_a_pool
from balancer.core.layout import Layout, free_gaps, lay_holds, lay_out, stable_order
from balancer.core.learning import SILENCE_TENTHS
from balancer.core.memory import Trails
from balancer.core.model import (
    PERMILLE,
    Destination,
    MemberRecord,
    Policy,
    Strategy,
    Usage,
)
from balancer.core.reasons import ReasonColumns
from balancer.core.reservations import promises_of, reserved_permits, reserved_points
from balancer.core.weights import weights_of
from worker_sdk.wire.distribution import (
    DestinationShares,
    Document,
    Entry,
    Hold,
    Member,
    Terms,
)
from worker_sdk.wire.limits import DESTINATION_MEMBERS_MAX, PERMITS_MAX
from worker_sdk.wire.shares import POINTS, share_points

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

    members: Sequence[Member]
    usages: Sequence[Usage]
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
    accounts: Mapping[Member, Usage],
    members: Mapping[Member, MemberRecord],
    documents: Sequence[Document],
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
        members: everybody known.
        documents: every unexpired one.
        known: what is remembered of its members.
        round_ms: length of a round.
        now_ms: the present Unix instant.
        notes_demand: whether this round's demand enters the memory (once a regular round).
    """
    policy = destination.policy
    live = {} if destination.removed else _at_most(accounts, before)
    trails = known.follow(list(live))
    wishes, trails = _wishes(live, trails, terms, policy, round_ms, now_ms, notes=notes_demand)
    promises = _promises(terms, documents, members, live)
    reserved = ints(promises.kept.get(member, 0) for member in wishes.members)
    budget = POINTS - sum(points for points, _ in promises.gone.values())
    if not promises.full:
        budget -= min(policy.newcomer_reserve_points, budget - total(reserved))
    weights = weights_of(policy.weights, wishes.members, members)
    claims = _claims(policy, wishes, trails, reserved, weights, before, (terms.capacity, budget))
    shadow: Ints | None = None
    if promises.full:
        division = Division(reserved, None, ["held"] * len(claims))
        safe = zeros(len(claims))
    else:
        division = STRATEGIES[policy.strategy](claims, budget)
        safe = _safe_points(policy, claims, division, trails.low_water(), terms.capacity)
        if policy.shadow is not None:
            shadow = STRATEGIES[policy.shadow](claims, budget).points
    layout = _layout(terms, before, wishes.members, division.points, trails.served_window)
    line = _line(terms, before, wishes.members, layout, safe, promises.gone)
    if promises.full:
        line = _without_gaps(line, promises.until_ms)
    return Outcome(
        line,
        _reasons(terms, wishes, claims, division, (safe, shadow), trails),
        replace(
            trails, served_window=np.where(layout.served > 0, layout.served, trails.served_window)
        ),
        invariants.promises_kept(Document(0, 0, 0, 0, (line,)), terms.destination, promises.kept),
    )


@dataclass(frozen=True, slots=True)
class _Promises:
    """What earlier documents still promise.

    Attributes:
        kept: points of each member that are to be kept for it.
        gone: of those no longer live: points, and until when.
        full: nobody else may be given any.
        until_ms: the last of the dates.
    """

    kept: Mapping[Member, int]
    gone: Mapping[Member, tuple[int, int]]
    full: bool
    until_ms: int


def _promises(
    terms: Terms,
    documents: Sequence[Document],
    members: Mapping[Member, MemberRecord],
    live: Mapping[Member, Usage],
) -> _Promises:
    window_ms = terms.window_seconds * 1000
    promised = reserved_permits(
        promises_of(documents, terms.destination),
        members,
        start_ms=terms.from_window * window_ms,
        window_ms=window_ms,
        published_ms={document.epoch: document.published_at_ms for document in documents},
    )
    kept, full = reserved_points(
        {member: permits for member, (permits, _) in promised.items()}, terms.capacity
    )
    gone = {
        member: (points, promised[member][1])
        for member, points in kept.items()
        if member not in live
    }
    return _Promises(kept, gone, full, max((until for _, until in promised.values()), default=0))


def _at_most(
    accounts: Mapping[Member, Usage], before: DestinationShares | None
) -> Mapping[Member, Usage]:
    """Return as many members as a document may name; those that have an entry come first."""
    if len(accounts) <= DESTINATION_MEMBERS_MAX:
        return accounts
    order = stable_order(accounts, before)
    return {member: accounts[member] for member in order[:DESTINATION_MEMBERS_MAX]}


def _wishes(
    live: Mapping[Member, Usage],
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
    even_permits = terms.capacity // max(1, len(live))
    usages = [live[member] for member in trails.members]
    accounts = Accounts.of(usages, window_ms)
    asked = demands(accounts, even_permits, trails.enough)
    asked = np.where(
        shows_a_pool(accounts, trails.last(), trails.denied, trails.enough),
        np.maximum(asked, np.minimum(2 * accounts.rates(), PERMITS_MAX)),
        asked,
    ).astype(np.int64)
    # Who has only said hello goes on where it, or one of its host before it, was; of whom nothing
    # is known yet wants what is common here, at most the even share.
    asked = np.where(accounts.is_new(), np.maximum(asked, trails.last()), asked)
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
    count = len(usages)
    rates = accounts.rates().astype(np.int64)
    wanted, is_foreseen = asked, np.zeros(count, dtype=np.bool_)
    usual = expected = repeated = zeros(count)
    if policy.expect_recurring:
        expected, repeated = trails.history.recurring(count)
        foreseen, has = trails.history.foreseen(count)
        # Work that was refused will come again: what is foreseen must not stand below it.
        is_foreseen = has & ((foreseen > asked) | (asked <= rates))
        wanted = np.where(is_foreseen, foreseen, asked)
        usual = np.where(has, 0, trails.history.usual(count))
    silence_ms = SILENCE_TENTHS * max(round_ms, window_ms)
    seen_ms = ints(map(attrgetter("seen_ms"), usages))
    wishes = _Wishes(
        members=trails.members,
        usages=usages,
        accounts=accounts,
        rates=rates,
        asked=asked,
        wanted=wanted,
        is_foreseen=is_foreseen,
        usual=usual,
        expected=expected,
        repeated=repeated,
        silent=np.asarray((now_ms - seen_ms) * 10 > silence_ms),
    )
    return wishes, trails


def _claims(
    policy: Policy,
    wishes: _Wishes,
    trails: Trails,
    reserved: Ints,
    weights: Ints,
    before: DestinationShares | None,
    limits: tuple[int, int],
) -> Claims:
    """Return the claims in points; ``limits`` are the capacity and the budget."""
    capacity, budget = limits
    known = before.by_member if before is not None else {}
    lower = reserved
    if policy.minimum_points:
        minimum = np.where(wishes.silent, 0, policy.minimum_points)
        lower, _ = waterfill(reserved, minimum, budget)
    head_room = wishes.wanted + wishes.wanted * policy.head_room_permille // PERMILLE
    return Claims(
        reserved=reserved,
        lower=lower,
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
        share_before=ints(
            share_points(entry.intervals) if (entry := known.get(member)) is not None else 0
            for member in wishes.members
        ),
        saturated=wishes.accounts.is_saturated(),
        silent=wishes.silent,
    )


def _safe_points(
    policy: Policy, claims: Claims, division: Division, low_water: Ints, capacity: int
) -> Ints:
    """Return safe points: the least of a part of the share, the low-water mark, the target.

    The target is the max-min division without reservations: what the planner is moving to. More
    would tie up points that newcomers must get. Where nobody is limited they find enough, and the
    part is the whole share.
    """
    budget = POINTS - policy.newcomer_reserve_points
    targets, _ = waterfill(zeros(len(claims)), claims.wanted, budget, claims.weight)
    part = division.points
    if division.level is not None:
        part = part * policy.safe_permille // PERMILLE
    least = np.minimum(np.minimum(part, points_of(low_water, capacity)), targets)
    return np.where(claims.silent, 0, least)


def _layout(
    terms: Terms,
    before: DestinationShares | None,
    members: Sequence[Member],
    points: Ints,
    served_window: Ints,
) -> Layout:
    rows = {member: row for row, member in enumerate(members)}
    return lay_out(
        [rows[member] for member in stable_order(rows, before)],
        points,
        capacity=terms.capacity,
        windows=range(terms.from_window, terms.until_window),
        served_window=served_window,
    )


def _line(
    terms: Terms,
    before: DestinationShares | None,
    members: Sequence[Member],
    layout: Layout,
    safe: Ints,
    gone: Mapping[Member, tuple[int, int]],
) -> DestinationShares:
    known = before.by_member if before is not None else {}
    starts, ends, safes = layout.start.tolist(), layout.end.tolist(), safe.tolist()
    entries = []
    for row in layout.order:
        member = members[row]
        intervals = ((starts[row], ends[row]),)
        old = known.get(member)
        if old is None or old.intervals != intervals or old.safe_points != safes[row]:
            old = Entry(*member, intervals, safes[row])
        entries.append(old)
    holds, _ = lay_holds(gone, max(ends, default=0))
    if len(entries) < len(members):
        # Whoever got nothing stands there too, so that an early round does not take it for new.
        placed = set(layout.order)
        without = sorted(member for row, member in enumerate(members) if row not in placed)
        entries += [Entry(*member, (), 0) for member in without]
    return DestinationShares(terms, holds, tuple(entries))


def _without_gaps(line: DestinationShares, until_ms: int) -> DestinationShares:
    """Return the line with a hold over its last points: promises fill the whole capacity.

    Otherwise an early round would give points to newcomers while everybody may spend all.
    """
    holds = list(line.holds)
    for start, end in free_gaps(line.entries, line.holds):
        holds.append(Hold(start, end, until_ms))
    return DestinationShares(line.terms, tuple(sorted(holds, key=_start)), line.entries)


def _start(hold: Hold) -> int:
    return hold.start


def _reasons(
    terms: Terms,
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
        members=wishes.members,
        usages=wishes.usages,
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
