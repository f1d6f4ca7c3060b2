"""Destinations as people see and change them.

Decides what becomes of a change that names some values only, and how a destination is told. Knows
no way by which changes come and no store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from balancer.app.policies import check_minimum, policy_to_values
from balancer.core.model import Destination, Policy
from balancer.errors import PolicyError
from worker_sdk.errors import WireError
from worker_sdk.wire.shares import POINTS
from worker_sdk.wire.strict import check_name

WINDOW_SECONDS: Final = 60


def changed(
    known: Destination | None,
    name: str,
    *,
    capacity: int | None,
    window_seconds: int | None,
    policy: Mapping[str, Any],
    now_ms: int,
    round_seconds: int,
) -> Destination:
    """Return the destination with what is given changed; the rest keeps its value or its default.

    Args:
        known: as stored; None for a new one.
        name: of the destination.
        capacity: permits a window.
        window_seconds: of a new one; that of a known one cannot change.
        policy: names of `Policy` to values.
        now_ms: the present Unix instant.
        round_seconds: length of a round.

    Raises:
        PolicyError: naming the value and what is wrong with it.
    """
    try:
        check_name(name, "name")
    except WireError as error:
        raise PolicyError(f"name: {error}") from error
    live = known if known is not None and not known.removed else None
    if capacity is None:
        if live is None:
            raise PolicyError("capacity is missing; a new destination needs it")
        capacity = live.capacity
    if window_seconds is None:
        window_seconds = known.window_seconds if known is not None else WINDOW_SECONDS
    longer, shorter = max(window_seconds, round_seconds), min(window_seconds, round_seconds)
    if shorter < 1 or longer % shorter:
        raise PolicyError(
            f"window_seconds is {window_seconds}; it must divide the round of {round_seconds} s "
            "(PERMIT_ROUND_SECONDS) or be a multiple of it"
        )
    base = live.policy if live is not None else Policy()
    least = policy.get("minimum_points", base.minimum_points)
    most = policy.get("maximum_points", base.maximum_points)
    if 0 <= least <= POINTS and 0 < most <= POINTS:  # else the fault of one alone is told
        check_minimum(least, most)
    return Destination(
        name=name,
        capacity=capacity,
        window_seconds=window_seconds,
        policy=replace(base, **policy),
        changed_at_ms=now_ms,
    )


def as_json(destination: Destination) -> dict[str, object]:
    """Return the destination as JSON values; a change takes the same form."""
    return {
        "name": destination.name,
        "capacity": destination.capacity,
        "window_seconds": destination.window_seconds,
        "policy": policy_to_values(destination.policy),
        "changed_at_ms": destination.changed_at_ms,
    }
