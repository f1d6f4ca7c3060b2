"""True max-min fairness, then spare capacity to what is likely to be wanted next.

Decides in four steps: what was asked, up to the max-min level; then what is expected by
recurrence; then recent peaks; then what is left, evenly. A member that asks for little gets all
of it; those that ask for more share the rest at one level.
"""

from __future__ import annotations

from collections.abc import Sequence

from balancer.core.allocation.claims import Claim, Division, spread, waterfill


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
    takes = [not claim.silent for claim in claims]
    return Division(spread(points, budget_points - sum(points), takes), None, rules)


def _rule(claim: Claim, got: int, want: int) -> str:
    if claim.silent:
        return "silent"
    if got > want:
        return "reserved"
    return "asked" if got == want else "level"
