"""How many permits a window a member wants, from its own account of a stretch of time.

Decides the demand of one account. Knows no share, no round and no other member.
"""

from __future__ import annotations

from typing import Final

from balancer.core.model import Usage

SATURATED_PERCENT: Final = 95
"""A member that used so much of its grant is at its limit."""

STARVED_PERCENT: Final = 90
SLACK_PARTS: Final = 4
"""A member that neither waited nor delivered for this part of a stretch had time to spare."""

GROWTH_PERCENT: Final = 110
"""Without time to spare for the first time, a member is believed to want so much of enough."""

SHORTEST_PART: Final = 10
"""A stretch counts as at least this part of a window, so that a short one is not blown up."""


def is_new(usage: Usage) -> bool:
    """Say whether this is a hello: an account of no time at all."""
    return usage.instant_ms == usage.from_ms


def is_saturated(usage: Usage) -> bool:
    """Say whether the member used nearly all that it was granted, and wanted any.

    Who was granted nothing and asked for nothing is idle, not at its limit; a new one may be.
    """
    if usage.used * 100 < SATURATED_PERCENT * usage.granted:
        return False
    return bool(usage.used or usage.denied or usage.starved_ms or is_new(usage))


def rate_permits(usage: Usage, window_ms: int) -> int:
    """Return what the member used, in permits a window: the nearest number, 1 where it used any.

    Rounded up, a stretch a millisecond short would claim a permit more each round.
    """
    elapsed_ms = _elapsed_ms(usage, window_ms)
    nearest = (2 * usage.used * window_ms + elapsed_ms) // (2 * elapsed_ms)
    return max(nearest, min(usage.used, 1))


def _elapsed_ms(usage: Usage, window_ms: int) -> int:
    return max(usage.instant_ms - usage.from_ms, window_ms // SHORTEST_PART, 1)


def has_slack(usage: Usage) -> bool:
    """Say whether the member had time in which it neither waited nor delivered."""
    elapsed_ms = usage.instant_ms - usage.from_ms
    idle_ms = elapsed_ms - min(usage.starved_ms, elapsed_ms) - usage.busy_ms
    return idle_ms * SLACK_PARTS >= elapsed_ms


def enough_permits(usage: Usage, asked_permits: int, before_permits: int) -> int:
    """Return the demand that the member showed when nothing limited it; 0 for not known.

    Whoever left permits unused showed it. It is remembered while the member has time to spare. The
    first time it has none the number turns negative, the second time it is forgotten: a share one
    permit short takes all the spare time of a worker that sends one by one, and only if more does
    not help has its demand outgrown what was enough.
    """
    if not is_saturated(usage):
        return asked_permits
    if has_slack(usage):
        return abs(before_permits)
    return -before_permits if before_permits > 0 else 0


def demand_permits(
    usage: Usage, window_ms: int, even_share_permits: int, known_enough_permits: int = 0
) -> int:
    """Return the demand in permits a window.

    ``used·window/elapsed + max(denied, x)``, where x extrapolates what a blocking worker would have
    used in the time in which it had to wait: ``used·window/elapsed · starved/max(elapsed - starved,
    elapsed/4)``, if the member was saturated. Who starved for nine tenths of the time and got
    nothing wants at least the even share.

    A member whose share is just enough waits for the pace of its permits too, and x would take
    that for want. What `enough_permits` knows bounds it then.

    Args:
        usage: the account.
        window_ms: length of a window.
        even_share_permits: what an even split would give the member.
        known_enough_permits: what `enough_permits` returned last; 0 for not known.
    """
    elapsed_ms = _elapsed_ms(usage, window_ms)
    starved_ms = min(usage.starved_ms, elapsed_ms)
    rate = rate_permits(usage, window_ms)
    unseen = 0
    if is_saturated(usage):
        divisor_ms = max(elapsed_ms - starved_ms, elapsed_ms // 4, 1)
        unseen = rate * starved_ms // divisor_ms
        most = _most_permits(usage, known_enough_permits)
        if most is not None:
            unseen = min(unseen, max(0, most - rate))
    demand = rate + max(usage.denied, unseen)
    if usage.used == 0 and starved_ms * 100 >= STARVED_PERCENT * elapsed_ms:
        demand = max(demand, even_share_permits)
    return demand


def _most_permits(usage: Usage, known_enough_permits: int) -> int | None:
    """Return what a member at its limit may be believed to want; None for no bound."""
    if known_enough_permits == 0:
        return None
    if has_slack(usage):
        return abs(known_enough_permits)
    if known_enough_permits < 0:
        return None
    return -(-known_enough_permits * GROWTH_PERCENT // 100)
