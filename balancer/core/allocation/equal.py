"""The even split: every live member the same by weight, whatever it uses.

The first iteration of such systems, and a safe choice where demand cannot be measured.
"""

from __future__ import annotations

from balancer.core.allocation.claims import Claims, Division, waterfill


def equal(claims: Claims, budget_points: int) -> Division:
    """Divide the budget evenly; only what each must get stands above that."""
    points, level = waterfill(claims.lower, claims.most, budget_points, claims.weight)
    return Division(points, level, ["even"] * len(claims))
