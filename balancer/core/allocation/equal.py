"""The even split: every live member the same, whatever it uses.

The first iteration of such systems, and a safe choice where demand cannot be measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from balancer.core.allocation.claims import Claim, Division, waterfill


def equal(claims: Sequence[Claim], budget_points: int) -> Division:
    """Divide the budget evenly; only what is reserved for a member stands above that."""
    lower = [claim.reserved for claim in claims]
    points, level = waterfill(lower, [budget_points] * len(claims), budget_points)
    return Division(points, level, ["even"] * len(claims))
