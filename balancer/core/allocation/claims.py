"""What a strategy is told of each member, and the filling rules that all of them share.

Decides the max-min level between lower and upper bounds, and who gets the points that no level
can divide. Knows no member's name and no unit beyond whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One live member's claim to points of a destination.

    Attributes:
        reserved: points it may still be spending by earlier documents: its lower bound.
        asked: points that its last account's demand needs.
        expected: points expected by recurrence.
        peak: points of its recent peak.
        used: points that it used by its last account.
        share_before: points of its share until now.
        saturated: whether it wants anything and used (nearly) all that it was granted.
        silent: whether it has not reported for 1.4 rounds; it gets what is reserved, no more.
    """

    reserved: int
    asked: int
    expected: int
    peak: int
    used: int
    share_before: int
    saturated: bool
    silent: bool


@dataclass(frozen=True, slots=True)
class Division:
    """Points a claim, in the order of the claims, and the max-min level if somebody was limited."""

    points: list[int]
    level: int | None
    rules: list[str]


def waterfill(
    lower: Sequence[int], upper: Sequence[int], budget: int
) -> tuple[list[int], int | None]:
    """Return the max-min amounts ``clamp(level, lower, max(lower, upper))`` within a budget.

    The level is the largest whole number at which the sum stays within the budget. The rest, less
    than one a limited member, goes to the first of those, so that the sum is exact and two runs
    agree. Lower bounds are always honoured, also where they pass the budget.

    Args:
        lower: least amounts.
        upper: wanted amounts; below the lower bound they count as the lower bound.
        budget: what may be given in all.

    Returns:
        The amounts, and the level; None where every want fits.
    """
    tops = [max(low, top) for low, top in zip(lower, upper, strict=True)]
    left = budget - sum(lower)
    if sum(tops) - sum(lower) <= left:
        return tops, None
    if left <= 0:
        return list(lower), 0
    level = _level(sorted(lower), sorted(tops), left)
    amounts = [min(max(low, level), top) for low, top in zip(lower, tops, strict=True)]
    rest = budget - sum(amounts)
    if rest > 0:
        for index, (low, top) in enumerate(zip(lower, tops, strict=True)):
            if low <= level < top:
                amounts[index] += 1
                rest -= 1
                if not rest:
                    break
    return amounts, level


def _level(lows: list[int], tops: list[int], left: int) -> int:
    """Raise the level from the lowest bound on until ``left`` is used up; both lists ascend."""
    level = lows[0]
    entered = left_behind = 0
    while True:
        while entered < len(lows) and lows[entered] <= level:
            entered += 1
        while left_behind < len(tops) and tops[left_behind] <= level:
            left_behind += 1
        rising = entered - left_behind
        stops = [tops[left_behind]]
        if entered < len(lows):
            stops.append(lows[entered])
        step = min(stops) - level
        if rising * step > left:
            return level + left // rising
        left -= rising * step
        level += step


def spread(amounts: Sequence[int], spare: int, takes: Sequence[bool]) -> list[int]:
    """Return the amounts with ``spare`` given evenly to those that take, the first one more each.

    Nothing is given where nobody takes.
    """
    takers = sum(takes)
    if not takers or spare <= 0:
        return list(amounts)
    each, rest = divmod(spare, takers)
    spread_amounts = []
    for amount, is_taker in zip(amounts, takes, strict=True):
        if not is_taker:
            spread_amounts.append(amount)
            continue
        spread_amounts.append(amount + each + (1 if rest > 0 else 0))
        rest -= 1
    return spread_amounts
