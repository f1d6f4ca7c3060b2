"""True max-min fairness, then spare capacity to what is likely to be wanted next.

Decides in four steps: what was asked, up to the max-min level; then what is expected by
recurrence; then recent peaks; then what is left, evenly. A member that asks for little gets all
of it; those that ask for more share the rest at one level.
"""

from __future__ import annotations

from collections.abc import Sequence

from balancer.core.allocation.claims import Claim, Division, waterfill


def max_min(claims: Sequence[Claim], budget_points: int) -> Division:
    """Divide the budget; see the module."""
    lower = [claim.reserved for claim in claims]
    asked = [0 if claim.silent else claim.asked for claim in claims]
    points, level = waterfill(lower, asked, budget_points)
    rules = [
        _rule(claim, got, want) for claim, got, want in zip(claims, points, asked, strict=True)
    ]
    if level is not None:
        return Division(points, level, rules)
    for name, wishes in (
        ("expected", [claim.expected for claim in claims]),
        ("peak", [claim.peak for claim in claims]),
    ):
        before = points
        wanted = [
            got if claim.silent else max(got, wish)
            for claim, got, wish in zip(claims, points, wishes, strict=True)
        ]
        points, limited = waterfill(before, wanted, budget_points)
        rules = [
            name if got > old else rule
            for got, old, rule in zip(points, before, rules, strict=True)
        ]
        if limited is not None:
            return Division(points, None, rules)
    return Division(_spread(claims, points, budget_points), None, rules)


def _rule(claim: Claim, got: int, want: int) -> str:
    if claim.silent:
        return "silent"
    if got > want:
        return "reserved"
    return "asked" if got == want else "level"


def _spread(claims: Sequence[Claim], points: list[int], budget_points: int) -> list[int]:
    open_claims = sum(1 for claim in claims if not claim.silent)
    spare = (budget_points - sum(points)) // open_claims if open_claims else 0
    return [got if claim.silent else got + spare for claim, got in zip(claims, points, strict=True)]
