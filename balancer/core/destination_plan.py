"""One destination planned anew for coming windows: claims, shares, holds, safe points, reasons.

Decides each live member's interval and safe points (rules 8 to 10), and holds for those gone.
Knows the documents only as promises, and nothing of other destinations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from balancer.core import invariants
from balancer.core.allocation.claims import Claim, Division, waterfill
from balancer.core.allocation.equal import equal
from balancer.core.allocation.max_min import max_min
from balancer.core.allocation.surplus import surplus
from balancer.core.demand import demand_permits, enough_permits, is_new, is_saturated, rate_permits
from balancer.core.layout import (
    free_gaps,
    last_permit_window,
    lay_holds,
    lay_out,
    stable_order,
)
from balancer.core.learning import SILENCE_TENTHS
from balancer.core.memory import Trail, keep_only
from balancer.core.model import PERMILLE, Destination, MemberRecord, Reason, Strategy, Usage
from balancer.core.reservations import promises_of, reserved_permits, reserved_points
from worker_sdk.wire.distribution import (
    DestinationShares,
    Document,
    Entry,
    Hold,
    Member,
    Terms,
)
from worker_sdk.wire.limits import DESTINATION_MEMBERS_MAX
from worker_sdk.wire.shares import POINTS, points_for_permits, share_points

STRATEGIES: Final[Mapping[Strategy, Callable[[Sequence[Claim], int], Division]]] = {
    Strategy.MAX_MIN: max_min,
    Strategy.EQUAL: equal,
    Strategy.SURPLUS: surplus,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A destination's new line, why, what to remember, and what of it must not be."""

    line: DestinationShares
    reasons: list[Reason]
    trails: dict[Member, Trail]
    faults: list[str]


@dataclass(frozen=True, slots=True)
class _Wish:
    """What one live member wants, in permits."""

    member: Member
    usage: Usage
    rate: int
    asked: int
    silent: bool
    share_before: int


def plan_destination(
    destination: Destination,
    *,
    terms: Terms,
    before: DestinationShares | None,
    accounts: Mapping[Member, Usage],
    members: Mapping[Member, MemberRecord],
    documents: Sequence[Document],
    known: Mapping[Member, Trail],
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
    live = {} if destination.removed else _at_most(accounts, before)
    trails = keep_only(dict(known), live)
    wishes = _wishes(live, trails, before, terms, round_ms, now_ms)
    if notes_demand:
        for wish in wishes:
            trail = trails[wish.member]
            trail.note(
                wish.asked,
                wish.usage.instant_ms,
                destination.policy.peak_decay_permille,
                enough=enough_permits(wish.usage, wish.asked, trail.enough),
            )
    window_ms = terms.window_seconds * 1000
    promised = reserved_permits(
        promises_of(documents, terms.destination),
        members,
        start_ms=terms.from_window * window_ms,
        window_ms=window_ms,
        largest_epoch=max((document.epoch for document in documents), default=0),
    )
    kept, full = reserved_points(
        {member: permits for member, (permits, _) in promised.items()}, terms.capacity
    )
    gone = {
        member: (points, promised[member][1])
        for member, points in kept.items()
        if member not in live
    }
    claims = [_claim(destination, wish, trails, kept, terms.capacity) for wish in wishes]
    division = _divide(destination, claims, sum(points for points, _ in gone.values()), full=full)
    shares = {wish.member: points for wish, points in zip(wishes, division.points, strict=True)}
    safe = {} if full else _safe_points(destination, wishes, claims, shares, trails, terms.capacity)
    line = _line(terms, before, shares, safe, gone, trails)
    if full:
        line = _without_gaps(line, max(until_ms for _, until_ms in promised.values()))
    return Outcome(
        line,
        _reasons(terms, wishes, claims, division, safe, trails),
        trails,
        invariants.promises_kept(Document(0, 0, 0, 0, (line,)), terms.destination, kept),
    )


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
    trails: Mapping[Member, Trail],
    before: DestinationShares | None,
    terms: Terms,
    round_ms: int,
    now_ms: int,
) -> list[_Wish]:
    shares_before = (
        {entry.member: share_points(entry.intervals) for entry in before.entries} if before else {}
    )
    window_ms = terms.window_seconds * 1000
    even_permits = terms.capacity // max(1, len(live))
    asked = {
        member: demand_permits(usage, window_ms, even_permits, trails[member].enough)
        for member, usage in live.items()
    }
    # Whoever has only said hello wants what is usual here, at most the even share.
    reported = [asked[member] for member, usage in live.items() if not is_new(usage)]
    usual = min(even_permits, median_low(reported)) if reported else even_permits
    wishes = []
    for member in stable_order(live, before):
        usage = live[member]
        new = is_new(usage) and not trails[member].demands
        wishes.append(
            _Wish(
                member=member,
                usage=usage,
                rate=rate_permits(usage, window_ms),
                asked=max(asked[member], usual) if new else asked[member],
                silent=(now_ms - usage.seen_ms) * 10 > SILENCE_TENTHS * max(round_ms, window_ms),
                share_before=shares_before.get(member, 0),
            )
        )
    return wishes


def _points(permits: int, capacity: int) -> int:
    return min(POINTS, points_for_permits(permits, capacity)) if capacity > 0 else 0


def _claim(
    destination: Destination,
    wish: _Wish,
    trails: Mapping[Member, Trail],
    kept: Mapping[Member, int],
    capacity: int,
) -> Claim:
    trail = trails[wish.member]
    expected = trail.expected() if destination.policy.expect_recurring else 0
    return Claim(
        reserved=kept.get(wish.member, 0),
        asked=_points(wish.asked, capacity),
        expected=_points(expected, capacity),
        peak=_points(trail.peak, capacity),
        used=_points(wish.rate, capacity),
        share_before=wish.share_before,
        saturated=is_saturated(wish.usage),
        silent=wish.silent,
    )


def _divide(
    destination: Destination, claims: Sequence[Claim], held: int, *, full: bool
) -> Division:
    """Divide what neither holds nor the newcomers' reserve keep; ``full`` leaves promises only."""
    if full:
        return Division([claim.reserved for claim in claims], None, ["held"] * len(claims))
    promised = held + sum(claim.reserved for claim in claims)
    reserve = min(destination.policy.newcomer_reserve_points, POINTS - promised)
    return STRATEGIES[destination.policy.strategy](claims, POINTS - held - reserve)


def _safe_points(
    destination: Destination,
    wishes: Sequence[_Wish],
    claims: Sequence[Claim],
    shares: Mapping[Member, int],
    trails: Mapping[Member, Trail],
    capacity: int,
) -> dict[Member, int]:
    """Return safe points: the least of a part of the share, the low-water mark, the target.

    The target is the max-min division without reservations: what the planner is moving to. More
    would tie up points that newcomers must get.
    """
    budget = POINTS - destination.policy.newcomer_reserve_points
    targets, _ = waterfill([0] * len(claims), [claim.asked for claim in claims], budget)
    safe: dict[Member, int] = {}
    for wish, claim, target in zip(wishes, claims, targets, strict=True):
        low_water = _points(trails[wish.member].low_water(), capacity)
        part = shares[wish.member] * destination.policy.safe_permille // PERMILLE
        safe[wish.member] = 0 if claim.silent else min(part, low_water, target)
    return safe


def _line(
    terms: Terms,
    before: DestinationShares | None,
    shares: Mapping[Member, int],
    safe: Mapping[Member, int],
    gone: Mapping[Member, tuple[int, int]],
    trails: Mapping[Member, Trail],
) -> DestinationShares:
    windows = range(terms.from_window, terms.until_window)
    placed = lay_out(
        stable_order(shares, before),
        shares,
        capacity=terms.capacity,
        windows=windows,
        served_window={member: trail.served_window for member, trail in trails.items()},
    )
    for member, interval in placed.items():
        served = last_permit_window(terms.capacity, interval, windows)
        if served is not None:
            trails[member].served_window = served
    offset = max((end for _, end in placed.values()), default=0)
    holds, _ = lay_holds(gone, offset)
    entries = [
        Entry(host, instance, (interval,), safe.get((host, instance), 0))
        for (host, instance), interval in sorted(placed.items(), key=lambda item: item[1])
    ]
    # Whoever got nothing stands there too, so that an early round does not take it for new.
    entries += [Entry(*member, (), 0) for member in sorted(shares) if member not in placed]
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
    wishes: Sequence[_Wish],
    claims: Sequence[Claim],
    division: Division,
    safe: Mapping[Member, int],
    trails: Mapping[Member, Trail],
) -> list[Reason]:
    level = None if division.level is None else terms.capacity * division.level // POINTS
    reasons = []
    for wish, claim, points, rule in zip(
        wishes, claims, division.points, division.rules, strict=True
    ):
        host, instance = wish.member
        trail = trails[wish.member]
        reasons.append(
            Reason(
                destination=terms.destination,
                host=host,
                instance=instance,
                rule=rule,
                asked_permits=wish.asked,
                used_permits=wish.usage.used,
                denied_permits=wish.usage.denied,
                starved_ms=wish.usage.starved_ms,
                peak_permits=trail.peak,
                expected_permits=terms.capacity * claim.expected // POINTS,
                reserved_points=claim.reserved,
                share_points=points,
                safe_points=safe.get(wish.member, 0),
                level_permits=level,
            )
        )
    return reasons
