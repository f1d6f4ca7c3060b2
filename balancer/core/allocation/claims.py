"""What a strategy is told of the members, and the filling rules that all of them share.

Decides the max-min level between lower and upper bounds, who gets the points that no level can
divide, and whose share a bound made rather than the strategy. Knows no member's name and no unit
beyond whole numbers. One row a member.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from balancer.core.columns import Flags, Ints, total


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """The members' claims to points of a destination, as columns.

    Attributes:
        reserved: points each may still be spending by earlier documents.
        lower: the least that each must get: what is reserved, and its minimum as far as it fits.
        maximum: the policy's largest share.
        most: the most that each may get: the maximum, or what is reserved where that is more.
        weight: of two limited members one with weight 2 gets twice what one with weight 1 gets.
        wanted: points that each will want: its last demand, or what is foreseen.
        is_foreseen: whose want is foreseen.
        usual: points of the usual demand.
        with_head_room: points of what each will want, with the policy's head-room.
        expected: points of a demand that came back three times at one lag.
        repeated: points of a demand that came back twice.
        peak: points of the recent peak.
        used: points used by the last account.
        share_before: points of the share until now.
        saturated: who wants anything and used (nearly) all that it was granted.
        silent: who has not reported for 1.4 rounds; it gets its lower bound, no more.
    """

    reserved: Ints
    lower: Ints
    maximum: Ints
    most: Ints
    weight: Ints
    wanted: Ints
    is_foreseen: Flags
    usual: Ints
    with_head_room: Ints
    expected: Ints
    repeated: Ints
    peak: Ints
    used: Ints
    share_before: Ints
    saturated: Flags
    silent: Flags

    def __len__(self) -> int:
        return len(self.lower)

    def raised(self, points: Ints, aims: Ints, level: int | None) -> list[tuple[str, Flags]]:
        """Return the rules of lower bounds, and whose points only such a bound explains.

        Args:
            points: as `waterfill` gave them, before anything spare is added.
            aims: what the strategy would give each if there were enough for all.
            level: as `waterfill` gave it.
        """
        reach = np.minimum(aims, self.maximum)
        if level is not None:
            reach = np.minimum(reach, level * self.weight)
        raised = (points <= self.lower) & (self.lower > reach)
        is_reserved = self.lower <= self.reserved
        return [("minimum", raised & ~is_reserved), ("reserved", raised & is_reserved)]


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Points a claim, the max-min level of weight 1 if somebody was limited, a word a claim."""

    points: Ints
    level: int | None
    rules: list[str]


def waterfill(
    lower: Ints, upper: Ints, budget: int, weight: Ints | None = None
) -> tuple[Ints, int | None]:
    """Return the max-min amounts ``clamp(level·weight, lower, max(lower, upper))`` within a budget.

    The level is the largest whole number at which the sum stays within the budget. What is left
    then goes to the first limited ones, so that the sum is exact and two runs agree. Lower bounds
    are always honoured, also where they pass the budget.

    Args:
        lower: least amounts.
        upper: wanted amounts; below the lower bound they count as the lower bound.
        budget: what may be given in all.
        weight: of each, at least 1; None for 1.

    Returns:
        The amounts, and the level; None where every want fits.
    """
    tops = np.maximum(lower, upper)
    if total(tops) <= budget:
        return tops, None
    if total(lower) >= budget:
        return lower.copy(), 0
    steps = np.ones_like(lower) if weight is None else weight

    fits = _level(lower, tops, steps, budget)
    amounts = np.clip(fits * steps, lower, tops)
    rest = budget - total(amounts)
    rises = np.clip((fits + 1) * steps, lower, tops) - amounts
    before = np.cumsum(rises) - rises
    return amounts + np.clip(rest - before, 0, rises), fits


def _level(lower: Ints, tops: Ints, steps: Ints, budget: int) -> int:
    """Return the largest level at which the amounts sum to at most the budget.

    The sum grows with the level, along a line between two levels at which somebody begins or ceases
    to rise with it.
    """
    begins = -(-lower // steps)
    ceases = tops // steps + 1  # at the first level that gives less to it than to others
    turns = np.concatenate((begins, ceases))
    order = np.argsort(turns)
    slopes = np.cumsum(np.concatenate((steps, -steps))[order])
    bases = total(lower) + np.cumsum(np.concatenate((-lower, tops))[order])
    # From each turn on, up to the next, the sum is base + slope · level; of equal turns the last.
    last = np.flatnonzero(np.append(np.diff(turns[order]), 1))
    turns, slopes, bases = turns[order][last], slopes[last], bases[last]
    passes = int(np.searchsorted(bases + slopes * turns, budget, side="right"))
    highest = int(turns[passes]) - 1
    if passes == 0 or slopes[passes - 1] == 0:
        return highest
    return min(highest, int((budget - bases[passes - 1]) // slopes[passes - 1]))


def approach(amounts: Ints, aims: Ints, budget: int) -> tuple[Ints, bool]:
    """Return the amounts raised to their aims, or all by the same part of what they lack.

    Spare points do most good in proportion: a level would fill small members' aims first, whose
    demand wavers by less.

    Returns:
        The amounts, and whether the budget is used up before the aims are reached.
    """
    gaps = np.maximum(aims - amounts, 0)
    lacking, left = total(gaps), budget - total(amounts)
    if lacking <= left:
        return amounts + gaps, False
    if left <= 0:
        return amounts, True
    parts = gaps * left // lacking
    rest = left - total(parts)
    before = np.cumsum(gaps > parts) - (gaps > parts)
    return amounts + parts + ((gaps > parts) & (before < rest)), True


def spread(amounts: Ints, spare: int, room: Ints, weight: Ints) -> Ints:
    """Return the amounts with ``spare`` given by weight, to each at most its ``room``."""
    if spare <= 0:
        return amounts
    extra, _ = waterfill(np.zeros_like(amounts), room, spare, weight)
    return amounts + extra
