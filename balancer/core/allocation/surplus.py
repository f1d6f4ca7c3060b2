"""Only use is known: what one member leaves goes to those at their limit.

Decides from use against grant alone, for workers that cannot tell what they were denied. A member
below its limit keeps its use and a tenth; the rest goes to saturated members by their share, a
tenth of it evenly, so that they drift towards the even share and a late-comer is not starved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from balancer.core.allocation.claims import Claim, Division, spread, waterfill

MARGIN_PARTS: Final = 10


def surplus(claims: Sequence[Claim], budget_points: int) -> Division:
    """Divide the budget; see the module."""
    lower = [claim.reserved for claim in claims]
    kept = [
        0 if claim.silent or claim.saturated else claim.used + claim.used // MARGIN_PARTS
        for claim in claims
    ]
    saturated = [claim.saturated and not claim.silent for claim in claims]
    pool = max(0, budget_points - sum(kept))
    wanted = [
        part if limited else keep
        for part, limited, keep in zip(
            _drift(claims, saturated, pool), saturated, kept, strict=True
        )
    ]
    points, level = waterfill(lower, wanted, budget_points)
    points = spread(points, budget_points - sum(points), [not claim.silent for claim in claims])
    rules = [
        "silent" if claim.silent else "surplus" if limited else "used"
        for claim, limited in zip(claims, saturated, strict=True)
    ]
    return Division(points, level, rules)


def _drift(claims: Sequence[Claim], saturated: Sequence[bool], pool: int) -> list[int]:
    count = sum(saturated)
    if not count:
        return [0] * len(claims)
    shares = sum(
        claim.share_before for claim, limited in zip(claims, saturated, strict=True) if limited
    )
    even = pool // count
    if shares == 0:
        return [even] * len(claims)
    return [
        (pool * claim.share_before // shares * (MARGIN_PARTS - 1) + even) // MARGIN_PARTS
        for claim in claims
    ]
