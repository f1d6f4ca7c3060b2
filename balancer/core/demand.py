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
    """Return what the member used, in permits a window, rounded up."""
    return -(-usage.used * window_ms // _elapsed_ms(usage, window_ms))


def _elapsed_ms(usage: Usage, window_ms: int) -> int:
    return max(usage.instant_ms - usage.from_ms, window_ms // SHORTEST_PART, 1)


def has_slack(usage: Usage) -> bool:
    """Say whether the member had time in which it neither waited nor delivered."""
    elapsed_ms = usage.instant_ms - usage.from_ms
    idle_ms = elapsed_ms - min(usage.starved_ms, elapsed_ms) - usage.busy_ms
    return idle_ms * SLACK_PARTS >= elapsed_ms


def enough_permits(usage: Usage, asked_permits: int, before_permits: int) -> int:
    """Return the demand that the member showed when nothing limited it; 0 for not known.

    Whoever left permits unused showed it. It is remembered while the member has time to spare, and
    forgotten once it has none: then its demand has outgrown it.
    """
    if not is_saturated(usage):
        return asked_permits
    return before_permits if has_slack(usage) else 0


def demand_permits(
    usage: Usage, window_ms: int, even_share_permits: int, known_enough_permits: int = 0
) -> int:
    """Return the demand in permits a window, rounded up.

    ``used·window/elapsed + max(denied, x)``, where x extrapolates what a blocking worker would have
    used in the time in which it had to wait: ``used·window/elapsed · starved/max(elapsed - starved,
    elapsed/4)``, if the member was saturated. Who starved for nine tenths of the time and got
    nothing wants at least the even share.

    A member whose share is just enough waits for the pace of its permits too, and x would take
    that for want. If it had time to spare and showed before what is enough, that bounds it.

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
        if known_enough_permits and has_slack(usage):
            unseen = min(unseen, max(0, known_enough_permits - rate))
    demand = rate + max(usage.denied, unseen)
    if usage.used == 0 and starved_ms * 100 >= STARVED_PERCENT * elapsed_ms:
        demand = max(demand, even_share_permits)
    return demand
