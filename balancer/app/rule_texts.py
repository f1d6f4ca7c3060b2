"""The rules that decide shares, in words: why each gave what it gave, and what would change it.

Decides only the words; the planner decides which rule it was. One function a rule, from the numbers
of one member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from balancer.core.foresight import PROVEN_ROUNDS
from balancer.core.model import PERCENT_POINTS, Destination, Policy, Reason, Strategy
from balancer.core.record import LEFT, NEWCOMER, TOPPED_UP
from worker_sdk.wire.shares import POINTS


@dataclass(frozen=True, slots=True)
class Case:
    """One member's share, and what it came from.

    Attributes:
        epoch: of the round's document.
        reason: the planner's.
        destination: as it is set now.
        reserved_until_ms: latest date of the points reserved in the share; None where not known.
    """

    epoch: int
    reason: Reason
    destination: Destination
    reserved_until_ms: int | None = None

    @property
    def policy(self) -> Policy:
        """The destination's."""
        return self.destination.policy

    def permits(self, points: int) -> int:
        """Return the permits a window of so many points, rounded down."""
        return self.destination.capacity * points // POINTS

    @property
    def is_expectation(self) -> bool:
        """Whether it has asked for nothing, so that what stands as asked is expected of it."""
        reason = self.reason
        has_asked = reason.used_permits or reason.denied_permits or reason.starved_ms
        return bool(reason.asked_permits) and not has_asked

    @property
    def lacking_permits(self) -> int:
        """What it wants and does not get, in permits a window."""
        return max(0, self.reason.wanted_permits - self.permits(self.reason.share_points))

    @property
    def is_limited(self) -> bool:
        """Whether there was not enough for all, and it wants more than it gets."""
        return self.reason.level_permits is not None and self.lacking_permits > 0

    @property
    def would_cut_permits(self) -> int | None:
        """What enforcement would take off its last demand, in permits a window; None if enforced.

        In a trial nothing is refused, so that all it wanted is in what it used.
        """
        if self.policy.enforce:
            return None
        asked_permits = 0 if self.is_expectation else self.reason.asked_permits
        return max(0, asked_permits - self.permits(self.reason.share_points))


@dataclass(frozen=True, slots=True)
class Words:
    """A rule in words.

    Attributes:
        because: why the member has its share; continues "The rule that decided is …: ".
        change: what would change it; a sentence.
    """

    because: str
    change: str


def count(permits: int) -> str:
    """Return a number of permits for people."""
    return f"{permits:,} permit{'' if permits == 1 else 's'}"


def percent(points: int) -> str:
    """Return points as a percentage for people."""
    digits = 3 if points >= POINTS // 10_000 or points == 0 else 7
    return f"{points / PERCENT_POINTS:.{digits}f} %"


def asked(case: Case) -> Words:
    """It got what it asked for."""
    spare = case.permits(case.reason.share_points) > case.reason.wanted_permits
    more = ", and a part of what nobody asked for" if spare else ""
    enough = (
        "there is enough for all"
        if case.reason.level_permits is None
        else "it wants no more than the level that limits others"
    )
    what = "what is expected of it" if case.is_expectation else "what it asked for"
    return Words(
        f"{enough}, so it gets {what}{more}",
        "Asking for more would bring it more with the next round; what it is refused counts as "
        "asked.",
    )


def foreseen(case: Case) -> Words:
    """It got what its past foretells."""
    return Words(
        f"its demand comes back at a fixed lag, and by that it will want "
        f"{count(case.reason.wanted_permits)}, which it gets",
        f"If the pattern breaks, its last demand counts again, within {PROVEN_ROUNDS} rounds; "
        "with --no-expect-recurring it counts at once.",
    )


def level(case: Case) -> Words:
    """It wants more than the level."""
    reason = case.reason
    limit = reason.level_permits or 0
    lacking = case.lacking_permits
    weighed = (
        f", {count(limit * reason.weight)} for its weight of {reason.weight}"
        if reason.weight > 1
        else ""
    )
    lent_points = case.policy.lend_points
    lent = f"; {percent(lent_points)} is planned for nobody and lent within the window"
    return Words(
        "all together want more than there is, so whoever wants much gets no more than the level, "
        f"{count(limit)} for a weight of 1{weighed}{lent if lent_points else ''}",
        f"A larger capacity, {'a smaller --lend-percent, ' if lent_points else ''}less demand of "
        "others or a higher weight would bring it more"
        f"{f'; it lacks {count(lacking)} of what it wants' if lacking else ''}.",
    )


def usual(case: Case) -> Words:
    """Spare capacity went up to its usual demand."""
    del case
    return Words(
        "capacity was spare, and it asked for less than it usually does, so room is kept for that",
        "Others' demand takes the spare part away first, and what is usual follows its demand.",
    )


def expected(case: Case) -> Words:
    """Spare capacity went to what came back three times."""
    return Words(
        f"capacity was spare, and a demand of {count(case.reason.expected_permits)} came back "
        "three times at one lag, so room is kept for it",
        "Others' demand takes the spare part away first, and with --no-expect-recurring it is not "
        "given.",
    )


def head_room(case: Case) -> Words:
    """Spare capacity went to the policy's head-room."""
    return Words(
        f"capacity was spare, and of that each gets up to {case.policy.head_room_permille / 10:g} "
        "% above its demand first",
        "Others' demand takes the spare part away first; --head-room-percent says how much it is.",
    )


def repeated(case: Case) -> Words:
    """Spare capacity went to what came back twice."""
    del case
    return Words(
        "capacity was spare, and it had a larger demand twice at one lag, so room is kept for it",
        "Others' demand takes the spare part away first, and so do patterns that came back three "
        "times.",
    )


def peak(case: Case) -> Words:
    """Spare capacity went to a recent peak."""
    return Words(
        f"capacity was spare, and it needed up to {count(case.reason.peak_permits)} not long ago",
        "Others' demand takes the spare part away first, and of the peak "
        f"{case.policy.peak_decay_permille / 10:g} % remain after each round "
        "(--peak-decay-percent).",
    )


def kept(case: Case) -> Words:
    """Spare capacity stayed where it was."""
    del case
    return Words(
        "capacity was spare, and what it had is left to it, so that small ups and downs move "
        "nothing",
        "Anybody who comes to want the spare part takes it.",
    )


def minimum(case: Case) -> Words:
    """It has the policy's least share."""
    reason, least = case.reason, case.policy.minimum_points
    cut = " (the minima of all pass the capacity and are cut alike)"
    told = (
        f"the policy gives no live member less than {percent(least)}"
        f"{cut if reason.share_points < least else ''}"
    )
    if case.policy.strategy is not Strategy.MAX_MIN:
        return Words(
            f"the strategy {case.policy.strategy.value} would give it less, and {told}",
            "--minimum-percent sets it.",
        )
    if case.is_limited:
        return Words(
            "all together want more than there is and the level would give it less, but "
            f"{told}; it wants {count(reason.wanted_permits)}",
            "A larger capacity or less demand of others would bring it more; --minimum-percent "
            "sets what it has.",
        )
    return Words(
        f"it wants {count(reason.wanted_permits)}, and {told}{_spare(case, least)}",
        "Only a demand above that would bring it more; --minimum-percent sets it.",
    )


def maximum(case: Case) -> Words:
    """It has the policy's largest share."""
    wants = f"it wants {count(case.reason.wanted_permits)}"
    if case.policy.maximum_points >= POINTS:
        return Words(
            f"{wants}, and it has all there is", "Only a larger capacity would bring it more."
        )
    by = case.policy.strategy
    if by is not Strategy.MAX_MIN:
        wants = f"the strategy {by.value} would give it more"
    return Words(
        f"{wants}, and the policy gives no member more than {percent(case.policy.maximum_points)}",
        "Only --maximum-percent or a larger capacity would bring it more.",
    )


def reserved(case: Case) -> Words:
    """It may still be spending more than it would get."""
    policy, reason = case.policy, case.reason
    if reason.share_points > policy.maximum_points:
        less = "the policy's maximum allows"
    elif policy.strategy is not Strategy.MAX_MIN:
        less = f"the strategy {policy.strategy.value} would give it"
    elif case.is_limited:
        level_permits = count((reason.level_permits or 0) * reason.weight)
        less = f"the level would give it, {level_permits} for its weight of {reason.weight}"
    else:
        less = "it wants"
    return Words(
        f"by earlier documents it may still spend {percent(reason.reserved_points)}, more than "
        f"{less}, so that much stays its own{_spare(case, reason.reserved_points)}",
        "It falls to that once it reports to hold a newer document.",
    )


def _spare(case: Case, points: int) -> str:
    """Return what stands above the points of a bound, if anything does."""
    return ", and a part of what nobody asked for" if case.reason.share_points > points else ""


def silent(case: Case) -> Words:
    """It was not heard of."""
    del case
    return Words(
        "it was not heard of for 1.4 rounds, so it keeps what it may still spend by earlier "
        "documents, has no minimum, and nothing is promised to it anew",
        "A report brings it back with the next round; without one it is forgotten, and what is "
        "still promised to it is held until its date.",
    )


def even(case: Case) -> Words:
    """The strategy is `equal`."""
    del case
    return Words(
        "the strategy is equal, so every live member gets the same by its weight, asked or not",
        "Fewer live members, a higher weight or --strategy max_min, which goes by demand, would "
        "change it; asking for more would not.",
    )


def used(case: Case) -> Words:
    """The strategy is `surplus`, and it is below its limit."""
    del case
    return Words(
        "the strategy is surplus, and it left a part of its share unused, so it keeps what it used "
        "and a tenth, and a part of what nobody needs",
        "Using nearly all of its share would bring it a part of what others leave.",
    )


def surplus(case: Case) -> Words:
    """The strategy is `surplus`, and it is at its limit."""
    del case
    return Words(
        "the strategy is surplus, and it used nearly all of its share, so it gets a part of what "
        "others leave, nine tenths by the share it had and a tenth evenly",
        "It drifts towards the even share of those at their limit; less use by others or a higher "
        "weight would bring it more.",
    )


def held(case: Case) -> Words:
    """The capacity was lowered below what is promised."""
    del case
    return Words(
        "the capacity was lowered below what earlier documents promise, so each keeps what it may "
        "still spend and nobody gets anything beside it",
        "It ends when members report to hold a newer document, at the latest at the promises' "
        "date; a larger capacity ends it too.",
    )


def newcomer(case: Case) -> Words:
    """It came, and an early round gave it a first share."""
    del case
    return Words(
        "it is new, and an early round gave it a part of what nobody had, as to all that came with "
        "it",
        "The next regular round plans it by what it asks for.",
    )


def topped_up(case: Case) -> Words:
    """An early round gave it a second interval."""
    del case
    return Words(
        "it wanted more than it had, and an early round gave it points beside its share that "
        "nobody had",
        "The next regular round plans its whole share anew.",
    )


def left(case: Case) -> Words:
    """It said goodbye."""
    del case
    return Words(
        "it said goodbye; what its account proves unspent is free for others, and this is the rest",
        "Nothing: the rest is free when the window is over.",
    )


RULES: Final[Mapping[str, Callable[[Case], Words]]] = {
    "asked": asked,
    "foreseen": foreseen,
    "level": level,
    "usual": usual,
    "expected": expected,
    "head-room": head_room,
    "repeated": repeated,
    "peak": peak,
    "kept": kept,
    "minimum": minimum,
    "maximum": maximum,
    "reserved": reserved,
    "silent": silent,
    "even": even,
    "used": used,
    "surplus": surplus,
    "held": held,
    NEWCOMER: newcomer,
    TOPPED_UP: topped_up,
    LEFT: left,
}


def words_of(case: Case) -> Words:
    """Return the words of the rule that decided; a newer version may know more rules."""
    rule = RULES.get(case.reason.rule)
    if rule is None:
        return Words(
            "this version has no words for it", "The version that planned it can say more."
        )
    return rule(case)
