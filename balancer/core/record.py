"""What is kept of rounds, so that what happened at some instant can be told and run again.

Decides which of several records was in force at an instant, and whose numbers count then. Knows no
store, no clock, and not how records are made or for how long they are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from balancer.core.model import Reason, RoundKind
from worker_sdk.wire.distribution import Member

SPAN_MS: Final = 600_000
"""Records of rounds that are older than a day are summed up over so long."""

NEWCOMER: Final = "newcomer"
TOPPED_UP: Final = "topped-up"
LEFT: Final = "left"
"""Rules of early rounds, which plan nothing anew: a first share before the demand is known, a
second interval of points that nobody had, and a goodbye, after which only what may have been spent
is left of a share."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A round of a shard as a whole.

    Attributes:
        shard: its number.
        epoch: of its document; 0 where none was published.
        kind: regular or early.
        outcome: ``published``, ``broken`` or ``waits``.
        planned_at_ms: Unix instant of planning.
        took_ms: from the snapshot to the published pointer.
        destinations: in its document.
        entries: members with a share, over all destinations.
        holds: over all destinations.
        held_points: over all destinations.
        sentence: what was done and why.
    """

    shard: int
    epoch: int
    kind: RoundKind
    outcome: str
    planned_at_ms: int
    took_ms: int
    destinations: int
    entries: int
    holds: int
    held_points: int
    sentence: str


@dataclass(frozen=True, slots=True)
class DestinationRecord:
    """A destination in a round that changed something of it; permits are per window.

    Asked, wanted, used and denied are sums over members by their last accounts; None where the
    round did not plan by accounts (an early one, or one that repeats shares).

    Attributes:
        destination: its name.
        shard: its shard.
        epoch: of the round's document.
        kind: of the round.
        planned_at_ms: Unix instant of planning.
        from_ms: start of the first window covered.
        until_ms: end of the last window covered.
        window_seconds: length of its windows.
        capacity: of the document.
        members: with a share.
        asked_permits: demand.
        wanted_permits: what was planned by.
        used_permits: what was used.
        denied_permits: what was refused.
        level_permits: the max-min level; None where nobody was limited.
        given_points: shares.
        held_points: kept back for somebody who may still be spending them.
        free_points: neither.
        shadow_moved_points: what the shadow strategy would give to others; None without one.
    """

    destination: str
    shard: int
    epoch: int
    kind: RoundKind
    planned_at_ms: int
    from_ms: int
    until_ms: int
    window_seconds: int
    capacity: int
    members: int
    asked_permits: int | None
    wanted_permits: int | None
    used_permits: int | None
    denied_permits: int | None
    level_permits: int | None
    given_points: int
    held_points: int
    free_points: int
    shadow_moved_points: int | None = None


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """Rounds of a destination over ten minutes: sums and extremes of `DestinationRecord`.

    Attributes:
        destination: its name.
        shard: its shard.
        from_ms: start of the ten minutes in which the rounds were planned.
        rounds: how many.
        planned_rounds: those of them that planned by accounts; the four sums of permits are theirs.
        capacity_least: smallest capacity.
        capacity_most: largest capacity.
        members_least: fewest members.
        members_most: most members.
        asked_permits: sum.
        asked_most: of one round.
        wanted_permits: sum.
        used_permits: sum.
        denied_permits: sum.
        denied_most: of one round.
        level_least: smallest level; None where nobody was limited.
        level_most: largest level.
        given_points: sum.
        held_points: sum.
        held_most: of one round.
        free_points: sum.
        shadow_moved_most: of one round; None without a shadow.
    """

    destination: str
    shard: int
    from_ms: int
    rounds: int
    planned_rounds: int
    capacity_least: int
    capacity_most: int
    members_least: int
    members_most: int
    asked_permits: int
    asked_most: int | None
    wanted_permits: int
    used_permits: int
    denied_permits: int
    denied_most: int | None
    level_least: int | None
    level_most: int | None
    given_points: int
    held_points: int
    held_most: int
    free_points: int
    shadow_moved_most: int | None = None


@dataclass(frozen=True, slots=True)
class DetailRecord:
    """The members of one destination in one round.

    Attributes:
        destination: its name.
        epoch: of the round's document.
        planned_at_ms: Unix instant of planning.
        from_ms: start of the first window covered.
        until_ms: end of the last window covered.
        window_seconds: length of its windows.
        capacity: of the document.
        whole: whether all members are named; else only those whose share an early round changed,
            and whatever was said before of the others still counts.
        reasons: one a member.
        left_out: members that are not kept, since they were too many.
        groups: of each reason's member, None for none; empty where nobody has one.
    """

    destination: str
    epoch: int
    planned_at_ms: int
    from_ms: int
    until_ms: int
    window_seconds: int
    capacity: int
    whole: bool
    reasons: Sequence[Reason]
    left_out: int = 0
    groups: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """All that is kept of one round."""

    round: RoundRecord
    destinations: tuple[DestinationRecord, ...] = ()
    details: tuple[DetailRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """What is known of a destination in a stretch of time, by instant of planning, ascending.

    Attributes:
        spans: the older part, summed up.
        destinations: the newer part, round by round.
        rounds: those of its shard.
        more: whether there is more of it than was asked for; the latest is missing then.
    """

    spans: Sequence[SpanRecord] = ()
    destinations: Sequence[DestinationRecord] = ()
    rounds: Sequence[RoundRecord] = ()
    more: bool = False


def in_force(details: Iterable[DetailRecord], at_ms: int | None = None) -> list[DetailRecord]:
    """Return what members' shares at an instant came from: a whole record, then additions to it.

    Where no document covered the instant it is what the last one said.

    Args:
        details: of one destination.
        at_ms: the instant; None for the newest there is, whether or not it has begun.
    """
    begun = sorted(
        (
            detail
            for detail in details
            if at_ms is None or (detail.planned_at_ms <= at_ms and detail.from_ms <= at_ms)
        ),
        key=lambda detail: (detail.planned_at_ms, detail.epoch),
    )
    last = max((place for place, detail in enumerate(begun) if detail.whole), default=0)
    return begun[last:]


def reasons_in_force(
    details: Iterable[DetailRecord], host: str | None, limit: int
) -> list[tuple[int, Reason]]:
    """Return (epoch, reason) of a host's members or of all, largest shares first.

    Args:
        details: as `in_force` gives them; what comes later counts.
        host: whose members; None for all.
        limit: so many at most.
    """
    newest: dict[Member, tuple[int, Reason]] = {}
    for detail in details:
        for reason in detail.reasons:
            member = (reason.host, reason.instance)
            if host not in (None, reason.host):
                continue
            if reason.rule == LEFT and not reason.share_points:
                newest.pop(member, None)
                continue
            known = newest.get(member)
            newest[member] = (detail.epoch, reason if known is None else _added(known[1], reason))
    found = sorted(newest.items(), key=lambda item: (-item[1][1].share_points, item[0]))
    return [told for _, told in found[:limit]]


def _added(known: Reason, change: Reason) -> Reason:
    """Return the newer reason; of a share that only grew or ends the other numbers stay."""
    if change.rule not in {TOPPED_UP, LEFT}:
        return change
    return replace(
        known,
        rule=change.rule,
        share_points=change.share_points,
        safe_points=change.safe_points,
    )
