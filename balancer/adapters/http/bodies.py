"""What a client may send: a destination's values, checked one by one.

Decides the form of a body and how a wrong one is told. What the values mean is the core's.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from balancer.app.policies import NULLABLE, values_to_parts
from balancer.errors import PolicyError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

FAULTS_MAX = 5


@dataclass(frozen=True, slots=True)
class Change:
    """What a client wants a destination to be; what it does not name stays."""

    capacity: int | None = None
    window_seconds: int | None = None
    policy: dict[str, Any] = field(default_factory=dict)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _OnExpiry(_Strict):
    permille: int
    for_ms: int


class _Weight(_Strict):
    weight: int
    host: str | None = None
    group: str | None = None


class _Policy(_Strict):
    strategy: Literal["max_min", "equal", "surplus"] | None = None
    shadow: Literal["max_min", "equal", "surplus"] | None = None
    weights: list[_Weight] | None = None
    minimum_points: int | None = None
    maximum_points: int | None = None
    head_room_permille: int | None = None
    newcomer_reserve_points: int | None = None
    lend_points: int | None = None
    peak_decay_permille: int | None = None
    expect_recurring: bool | None = None
    safe_permille: int | None = None
    valid_for_seconds: int | None = None
    on_expiry: Literal["closed"] | _OnExpiry | None = None
    guard_ms: int | None = None
    pacing: Literal["even", "window"] | None = None
    enforce: bool | None = None


class _Destination(_Strict):
    name: str | None = None
    capacity: int | None = None
    window_seconds: int | None = None
    policy: _Policy | None = None
    changed_at_ms: int | None = None


def read_change(body: bytes, name: str) -> Change:
    """Return the change in a body: JSON as ``GET /destinations/<name>`` gives it, or parts of it.

    A null is taken for "not named", but for the values in `NULLABLE`, where it is one.

    Raises:
        PolicyError: one sentence naming each value and its fault.
    """
    try:
        value = _Destination.model_validate_json(body)
    except ValidationError as error:
        raise PolicyError(_told(error)) from error
    if value.name not in (None, name):
        raise PolicyError(f"name is {value.name!r}, but the address says {name!r}")
    return Change(value.capacity, value.window_seconds, _policy(value.policy))


def _policy(policy: _Policy | None) -> dict[str, Any]:
    if policy is None:
        return {}
    given = policy.model_dump(exclude_unset=True)
    return values_to_parts(
        {name: given[name] for name in given if name in NULLABLE or given[name] is not None}
    )


_BY_PLACE: Final[tuple[tuple[type[BaseModel], str], ...]] = (
    (_Destination, ""),
    (_Policy, "policy"),
    (_OnExpiry, "policy.on_expiry"),
    (_Weight, "policy.weights"),
)
"""Where in a body which keys are good."""


def _meant(fault: ErrorDetails) -> str:
    """Return what an unknown key may be meant for: the nearest of those that are good anywhere."""
    if fault["type"] != "extra_forbidden":
        return ""
    name = str(fault["loc"][-1])
    at = ".".join(part for part in fault["loc"][:-1] if isinstance(part, str))
    # The keys of its own place first; many a policy's value is put beside the capacity.
    kinds = sorted(_BY_PLACE, key=lambda kind: (not at.startswith(kind[1]), -len(kind[1])))
    for kind, place in kinds:
        found = difflib.get_close_matches(name, kind.model_fields, n=1)
        if found:
            return f"; is {place}{'.' if place else ''}{found[0]} meant?"
    return f"; good are {', '.join(kinds[0][0].model_fields)}"


def _told(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    told = []
    for fault in faults[:FAULTS_MAX]:
        place = ".".join(str(part) for part in fault["loc"]) or "the body"
        told.append(f"{place}: {fault['msg']}{_meant(fault)}")
    more = len(faults) - FAULTS_MAX
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")
