"""The values that planning speaks of: destinations with their policies, members, usage, plans.

Decides nothing beyond what a valid policy is. Knows no store, no clock and no strategy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from balancer.core.memory import Memory
from balancer.errors import PolicyError
from worker_sdk.wire.distribution import CLOSED, PERMILLE, Document, Member, OnExpiry, Pacing
from worker_sdk.wire.limits import PERMITS_MAX, SPAN_MAX_MS, WINDOW_SECONDS_MAX
from worker_sdk.wire.shares import POINTS
from worker_sdk.wire.usage import UsageTuple

PERCENT_POINTS: Final = POINTS // 100
"""One percent of a capacity."""

VALID_ROUNDS: Final = 3
"""A document's validity in rounds, where the policy sets none."""


class Strategy(StrEnum):
    """How shares come about."""

    MAX_MIN = "max_min"
    EQUAL = "equal"
    SURPLUS = "surplus"


WEIGHT_MAX: Final = 1000
WEIGHT_RULES_MAX: Final = 100
PATTERN_MAX_CHARS: Final = 255


@dataclass(frozen=True, slots=True)
class WeightRule:
    """What some members weigh.

    Attributes:
        weight: of two members that want more than they can get, one with weight 2 gets twice
            what one with weight 1 gets.
        host: a pattern of host names, with ``*``, ``?`` and ``[abc]``; None for any.
        group: a group's name; None for any.
    """

    weight: int
    host: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            PolicyError: naming the value, its bound and what was given.
        """
        _check("weights.weight", self.weight, 1, WEIGHT_MAX)
        if self.host is None and self.group is None:
            raise PolicyError("weights: a rule names a host pattern, a group, or both")
        for name, text in (("host", self.host), ("group", self.group)):
            if text is not None and not 0 < len(text) <= PATTERN_MAX_CHARS:
                raise PolicyError(
                    f"weights.{name} has {len(text)} characters; 1 to {PATTERN_MAX_CHARS} are good"
                )


@dataclass(frozen=True, slots=True)
class Policy:
    """How one destination is planned; every value may change while running.

    Attributes:
        strategy: which rule makes the shares.
        shadow: a second strategy, planned beside it and never published; None for none.
        weights: what members weigh; the first rule that fits counts, 1 where none does.
        minimum_points: the least share of a live member; where the minima of all pass the
            capacity they are cut alike, and whole permits go round.
        maximum_points: the largest share of a member.
        head_room_permille: spare capacity goes first to so much above each member's demand.
        newcomer_reserve_points: points that no regular document plans, free for early rounds.
        lend_points: points that no regular document plans; early rounds lend them within the
            window to members that run out.
        peak_decay_permille: what remains of a recent peak of demand after a round.
        expect_recurring: whether demand that came back at one lag is expected to come again.
        safe_permille: safe points are at most this part of a share.
        valid_for_seconds: how long safe points may be spent after publication; None: three rounds.
        on_expiry: what remains after that.
        guard_ms: nothing is granted so near a window's edge.
        pacing: release of permits within a window.
        enforce: False lets workers pass and only counts.
    """

    strategy: Strategy = Strategy.MAX_MIN
    shadow: Strategy | None = None
    weights: tuple[WeightRule, ...] = ()
    minimum_points: int = 0
    maximum_points: int = POINTS
    head_room_permille: int = 100
    newcomer_reserve_points: int = PERCENT_POINTS
    lend_points: int = 0
    peak_decay_permille: int = 900
    expect_recurring: bool = True
    safe_permille: int = 900
    valid_for_seconds: int | None = None
    on_expiry: OnExpiry = CLOSED
    guard_ms: int = 250
    pacing: Pacing = Pacing.EVEN
    enforce: bool = True

    def __post_init__(self) -> None:
        """Check every bound.

        Raises:
            PolicyError: naming the value, its bound and what was given.
        """
        if len(self.weights) > WEIGHT_RULES_MAX:
            raise PolicyError(
                f"weights has {len(self.weights)} rules; at most {WEIGHT_RULES_MAX} are good"
            )
        _check("minimum_points", self.minimum_points, 0, POINTS)
        _check("maximum_points", self.maximum_points, 1, POINTS)
        if self.minimum_points > self.maximum_points:
            raise PolicyError(
                f"minimum_points is {self.minimum_points}, above maximum_points, which is "
                f"{self.maximum_points}"
            )
        _check("head_room_permille", self.head_room_permille, 0, 10 * PERMILLE)
        _check("newcomer_reserve_points", self.newcomer_reserve_points, 0, POINTS // 2)
        _check("lend_points", self.lend_points, 0, POINTS)
        _check("peak_decay_permille", self.peak_decay_permille, 0, PERMILLE)
        _check("safe_permille", self.safe_permille, 0, PERMILLE)
        _check("guard_ms", self.guard_ms, 0, 60_000)
        if self.valid_for_seconds is not None:
            _check("valid_for_seconds", self.valid_for_seconds, 1, SPAN_MAX_MS // 1000)
        _check("on_expiry.permille", self.on_expiry.permille, 0, PERMILLE)
        _check("on_expiry.for_ms", self.on_expiry.for_ms, 0, SPAN_MAX_MS)

    @property
    def unplanned_points(self) -> int:
        """What no regular document plans."""
        return min(POINTS, self.newcomer_reserve_points + self.lend_points)

    def valid_for_ms(self, round_ms: int, window_ms: int) -> int:
        """Return how long safe points may be spent after publication."""
        if self.valid_for_seconds is None:
            return VALID_ROUNDS * max(round_ms, window_ms)
        return self.valid_for_seconds * 1000


@dataclass(frozen=True, slots=True)
class Destination:
    """What is protected.

    Attributes:
        name: its name on the wire.
        capacity: permits a window for all members together; 0 is closed.
        window_seconds: length of its windows; fixed while the destination exists.
        policy: how it is planned.
        changed_at_ms: Unix instant of the last change.
        removed: it was removed and is closed (capacity 0) until no document gives permits of it.
    """

    name: str
    capacity: int
    window_seconds: int = 60
    policy: Policy = field(default_factory=Policy)
    changed_at_ms: int = 0
    removed: bool = False

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            PolicyError: naming the value, its bound and what was given.
        """
        _check("capacity", self.capacity, 0, PERMITS_MAX)
        _check("window_seconds", self.window_seconds, 1, WINDOW_SECONDS_MAX)
        if 2 * self.policy.guard_ms >= self.window_seconds * 1000:
            raise PolicyError(
                f"guard_ms is {self.policy.guard_ms}, which leaves nothing of a window of "
                f"{self.window_seconds} s; it must be below half of the window"
            )


def _check(name: str, value: int, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise PolicyError(f"{name} is {value!r}; it must be an integer from {least} to {most}")


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """What is known of a member, live or gone.

    Attributes:
        host: its host's name.
        instance: id of its client's start.
        group: optional name for policies.
        instant_ms: the newest instant by the member's own clock.
        seen_ms: when it was last heard of, by the trusted clock; its life runs from here.
        left_ms: when its goodbye was seen by the balancer's clock; None while it has not left.
        acknowledged_epoch: newest epoch of this shard that it reported to hold, of those on record
            when the report came.
        acknowledged_ms: when that epoch was first seen by the balancer's clock.
        spent: of a goodbye, destination to (window, permits spent in it).
    """

    host: str
    instance: str
    group: str | None
    instant_ms: int
    seen_ms: int
    left_ms: int | None = None
    acknowledged_epoch: int = 0
    acknowledged_ms: int = 0
    spent: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def member(self) -> Member:
        """(host, instance)."""
        return (self.host, self.instance)


@dataclass(frozen=True, slots=True)
class Usage:
    """The newest account of one member for one destination, not older than the TTL."""

    host: str
    instance: str
    destination: str
    from_ms: int
    instant_ms: int
    epoch: int
    granted: int
    used: int
    denied: int
    starved_ms: int
    busy_ms: int
    seen_ms: int

    @classmethod
    def of(cls, member: Member, entry: UsageTuple, seen_ms: int) -> Usage:
        """Return the account that a member's tuple gives, heard of at ``seen_ms``."""
        host, instance = member
        return cls(host, instance, *entry, seen_ms)

    @property
    def member(self) -> Member:
        """(host, instance)."""
        return (self.host, self.instance)


class RoundKind(StrEnum):
    """Why a round runs."""

    REGULAR = "regular"
    EARLY = "early"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a round of one shard decides from.

    Attributes:
        shard: its number.
        kind: regular, or early for newcomers and leavers.
        round_ms: length of a round.
        ttl_ms: a member unheard of for this long or longer is not live.
        destinations: of this shard, removed ones included while documents name them.
        members: live ones, and gone ones while a document that names them is unexpired.
        usage: newest accounts; at most one a (member, destination).
        documents: every published document that is unexpired or covers a window not yet past,
            newest first; those found in the store without a pointer included.
        current_epoch: epoch of the newest document that the pointer names; 0 for none.
        epoch_floor: largest epoch known from lease, store and reports.
        learning: nothing may be planned from what is known; repeat what is in force.
        pointed_epochs: all epochs that the pointer names; None where only the newest is known, and
            every older document counts as named.
    """

    shard: int
    kind: RoundKind
    round_ms: int
    ttl_ms: int
    destinations: tuple[Destination, ...]
    members: tuple[MemberRecord, ...]
    usage: Sequence[Usage]
    documents: tuple[Document, ...]
    current_epoch: int
    epoch_floor: int
    learning: bool = False
    pointed_epochs: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one member has its share of one destination; permits are per window.

    Attributes:
        rule: the rule that decided, a word of the documentation's list.
        asked_permits: demand by its last account.
        used_permits: what it used of that.
        denied_permits: what it was refused.
        starved_ms: how long it waited.
        peak_permits: recent peak of its demand.
        expected_permits: demand expected by recurrence.
        wanted_permits: what it was planned by: what was asked, or what is foreseen.
        weight: what it weighs.
        shadow_points: what the shadow strategy would give it; None where there is none.
        reserved_points: points kept for its outstanding safe shares.
        share_points: what it got.
        safe_points: the part it may spend without a document.
        level_permits: the max-min level of this round; None where nobody was limited.
    """

    destination: str
    host: str
    instance: str
    rule: str
    asked_permits: int
    used_permits: int
    denied_permits: int
    starved_ms: int
    peak_permits: int
    expected_permits: int
    reserved_points: int
    share_points: int
    safe_points: int
    level_permits: int | None = None
    wanted_permits: int = 0
    weight: int = 1
    shadow_points: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of a round of one shard.

    Attributes:
        document: what to publish; None where nothing is to be published.
        reasons: one a member and destination planned.
        memory: what to carry on; stored with the epoch in one transaction.
        sentence: what was done and why, in one sentence for the log.
        broken: invariants that the document would break; it must not be published then.
        forget: removed destinations of which no document gives permits any more.
        keep: older epochs that the pointer must name beside the new one, newest first.
    """

    document: Document | None
    reasons: Sequence[Reason]
    memory: Memory
    sentence: str
    broken: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()
    keep: tuple[int, ...] = ()
