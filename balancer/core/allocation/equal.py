"""The even split: every live member the same by weight, whatever it uses.

The first iteration of such systems, and a safe choice where demand cannot be measured.
"""

from __future__ import annotations

import numpy as np

from balancer.core.allocation.claims import Claims, Division, waterfill
from worker_sdk.wire.shares import POINTS


def equal(claims: Claims, budget_points: int) -> Division:
    """Divide the budget evenly; only what each must get stands above that."""
    points, level = waterfill(claims.lower, claims.most, budget_points, claims.weight)
    words = np.full(len(points), "even", dtype=object)
    words[(points >= claims.maximum) & (claims.maximum < POINTS)] = "maximum"
    for word, members in claims.raised(points, claims.maximum, level):
        words[members] = word
    return Division(points, level, words.tolist())
