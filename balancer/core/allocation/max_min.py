"""True max-min fairness, then spare capacity to what is likely to be wanted next.

Decides in steps: what will be wanted, up to the max-min level: a member that wants little gets all
of it; those that want more share the rest at one level, by weight. Then spare capacity: what is
usual; what is expected by recurrence; head-room; what came back but twice; recent peaks; the share
until now, so that small ups and downs move nothing; what is left evenly, by weight.
"""

from __future__ import annotations

import numpy as np

from balancer.core.allocation.claims import Claims, Division, approach, spread, waterfill
from balancer.core.columns import total


def max_min(claims: Claims, budget_points: int) -> Division:
    """Divide the budget; see the module."""

    def wants(points: np.ndarray) -> np.ndarray:
        return np.where(claims.silent, 0, np.minimum(points, claims.most))

    wanted = wants(claims.wanted)
    points, level = waterfill(claims.lower, wanted, budget_points, claims.weight)
    rules = _rules(claims, points, wanted, level)
    if level is not None:
        return Division(points, level, rules.tolist())
    for word, aim in (
        ("usual", claims.usual),
        ("expected", claims.expected),
        ("head-room", claims.with_head_room),
        ("repeated", claims.repeated),
        ("peak", claims.peak),
        ("kept", claims.share_before),
    ):
        before = points
        points, is_used_up = approach(before, wants(aim), budget_points)
        rules[points > before] = word
        if is_used_up:
            return Division(points, None, rules.tolist())
    room = np.where(claims.silent, 0, np.maximum(claims.most - points, 0))
    points = spread(points, budget_points - total(points), room, claims.weight)
    return Division(points, None, rules.tolist())


def _rules(claims: Claims, points: np.ndarray, wanted: np.ndarray, level: int | None) -> np.ndarray:
    words = np.full(len(points), "asked", dtype=object)
    words[claims.is_foreseen] = "foreseen"
    words[points < wanted] = "level"
    words[(wanted >= claims.maximum) & (points >= claims.maximum)] = "maximum"
    for word, members in claims.raised(points, wanted, level):
        words[members] = word
    words[claims.silent] = "silent"
    return words
