"""Only use is known: what one member leaves goes to those at their limit.

Decides from use against grant alone, for workers that cannot tell what they were denied. A member
below its limit keeps its use and a tenth; the rest goes to saturated members by their share, a
tenth of it evenly, so that they drift towards the even share and a late-comer is not starved.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from balancer.core.allocation.claims import Claims, Division, spread, waterfill
from balancer.core.columns import Flags, Ints, total
from worker_sdk.wire.shares import POINTS

MARGIN_PARTS: Final = 10


def surplus(claims: Claims, budget_points: int) -> Division:
    """Divide the budget; see the module."""
    limited = claims.saturated & ~claims.silent
    kept = np.where(claims.silent | claims.saturated, 0, claims.used + claims.used // MARGIN_PARTS)
    pool = max(0, budget_points - total(kept))
    wanted = np.minimum(np.where(limited, _drift(claims, limited, pool), kept), claims.most)
    points, level = waterfill(claims.lower, wanted, budget_points, claims.weight)
    words = np.where(limited, "surplus", "used").astype(object)
    words[points < wanted] = "level"
    bounds = claims.raised(points, wanted, level)
    room = np.where(claims.silent, 0, np.maximum(claims.most - points, 0))
    points = spread(points, budget_points - total(points), room, claims.weight)
    words[limited & (points >= claims.maximum) & (claims.maximum < POINTS)] = "maximum"
    for word, members in bounds:
        words[members] = word
    words[claims.silent] = "silent"
    return Division(points, level, words.tolist())


def _drift(claims: Claims, limited: Flags, pool: int) -> Ints:
    """Return the parts of the pool: nine tenths by weighted share until now, a tenth evenly."""
    weights = np.where(limited, claims.weight, 0)
    count = total(weights)
    if not count:
        return np.zeros_like(claims.lower)
    even = pool * weights // count
    shares = total(np.where(limited, claims.share_before, 0))
    if shares == 0:
        return even
    by_share = pool * claims.share_before // shares
    return np.asarray((by_share * (MARGIN_PARTS - 1) + even) // MARGIN_PARTS)
