"""The values of a policy by name: their form in JSON, and what the reference page says of them.

Decides how each value is written and read, in bodies and in the database alike, and how a wrong one
is told. What the values do is the core's; by which option or route they come is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from balancer.core.model import (
    PATTERN_MAX_CHARS,
    PERCENT_POINTS,
    WEIGHT_MAX,
    WEIGHT_RULES_MAX,
    Policy,
    Strategy,
    WeightRule,
)
from balancer.errors import PolicyError
from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.distribution import CLOSED, PERMILLE, OnExpiry, Pacing
from worker_sdk.wire.limits import SPAN_MAX_MS
from worker_sdk.wire.shares import POINTS
from worker_sdk.wire.strict import check_name

NULLABLE: Final = ("shadow", "valid_for_seconds")
"""Here null is a value; elsewhere it means that nothing is named."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of a policy, for people.

    Attributes:
        name: in JSON, and in `Policy`.
        option: of ``permit-balancer destinations set``.
        meaning: what it does.
        unit: what it is counted in, in JSON.
        least: of a number, the smallest that is good.
        most: of a number, the largest that is good.
        bounds: of anything else, what is good.
        effect: from when on a change counts.
    """

    name: str
    option: str
    meaning: str
    unit: str = ""
    least: int | None = None
    most: int | None = None
    bounds: str = ""
    effect: str = "next regular document"


_DATES: Final = "next regular document; those published keep their dates"
_STRATEGIES: Final = ", ".join(f"`{strategy.value}`" for strategy in Strategy)

SETTINGS: Final = (
    Setting("strategy", "--strategy", "which rule makes the shares", bounds=_STRATEGIES),
    Setting(
        "shadow",
        "--shadow",
        "a second strategy, planned beside it and never published; `explain` and the metrics tell "
        "what it would give",
        bounds=f"{_STRATEGIES}, or null (as an option: `none`)",
        effect="next regular round",
    ),
    Setting(
        "weights",
        "--weight",
        "what members weigh: of two that want more than they can get, one with weight 2 gets twice "
        "what one with weight 1 gets; the first rule that fits counts, 1 where none does",
        bounds=f"at most {WEIGHT_RULES_MAX} rules; a weight from 1 to {WEIGHT_MAX}, a host pattern "
        f"(with `*`, `?` and `[abc]`) of 1 to {PATTERN_MAX_CHARS} bytes, a group, or both",
    ),
    Setting(
        "minimum_points",
        "--minimum-percent",
        "the least share of a live member, asked for or not; where the minima of all pass the "
        "capacity they are cut alike, and whole permits go round. Not above the maximum",
        "points",
        0,
        POINTS,
    ),
    Setting(
        "maximum_points",
        "--maximum-percent",
        "the largest share of a member; only what earlier documents promise it can stand above",
        "points",
        1,
        POINTS,
    ),
    Setting(
        "head_room_permille",
        "--head-room-percent",
        "spare capacity goes first to so much above each member's demand",
        "thousandths of the demand",
        0,
        10 * PERMILLE,
    ),
    Setting(
        "newcomer_reserve_points",
        "--newcomer-reserve-percent",
        "what no regular document plans, so that newcomers start at once",
        "points",
        0,
        POINTS // 2,
        effect="next regular document; early ones obey it at once",
    ),
    Setting(
        "lend_points",
        "--lend-percent",
        "what no regular document plans beside that: early rounds lend it within the window to "
        "members that run out; for demand that moves faster than the rounds",
        "points",
        0,
        POINTS,
    ),
    Setting(
        "peak_decay_permille",
        "--peak-decay-percent",
        "what remains of a recent peak of demand after a round; spare capacity goes to peaks",
        "thousandths of the peak",
        0,
        PERMILLE,
        effect="next regular round",
    ),
    Setting(
        "expect_recurring",
        "--expect-recurring / --no-expect-recurring",
        "whether demand that came back at one lag, as timers make it, is planned for before it "
        "comes again",
        bounds="true or false",
    ),
    Setting(
        "safe_permille",
        "--safe-percent",
        "safe points are at most this part of a share, where members are limited",
        "thousandths of the share",
        0,
        PERMILLE,
    ),
    Setting(
        "valid_for_seconds",
        "--valid-for-seconds",
        "how long safe points may be spent after publication; null (as an option: `default`) is "
        "three rounds, or three windows where those are longer",
        "seconds",
        1,
        SPAN_MAX_MS // 1000,
        effect=_DATES,
    ),
    Setting(
        "on_expiry",
        "--on-expiry-permille, --on-expiry-seconds",
        "what remains after that: nothing, or a part of the safe points for a further time",
        bounds='"closed", or {"permille": 0 to 1000, "for_ms": 0 to '
        f"{SPAN_MAX_MS}}}; as options two numbers, the second in seconds",
        effect=_DATES,
    ),
    Setting(
        "guard_ms",
        "--guard-ms",
        "nothing is granted so near a window's edge; below half of the window",
        "milliseconds",
        0,
        60_000,
    ),
    Setting(
        "pacing",
        "--pacing",
        "release of a window's permits: little by little, or all at its start",
        bounds=", ".join(f"`{pacing.value}`" for pacing in Pacing),
    ),
    Setting(
        "enforce",
        "--enforce / --trial",
        "false lets workers pass and only counts",
        bounds="true or false",
    ),
)


def policy_to_values(policy: Policy) -> dict[str, Any]:
    """Return a policy as JSON values."""
    values: dict[str, Any] = {setting.name: getattr(policy, setting.name) for setting in SETTINGS}
    values["strategy"] = policy.strategy.value
    values["shadow"] = None if policy.shadow is None else policy.shadow.value
    values["weights"] = [_weight_to_values(rule) for rule in policy.weights]
    values["pacing"] = policy.pacing.value
    rule = policy.on_expiry
    values["on_expiry"] = (
        "closed" if rule == CLOSED else {"permille": rule.permille, "for_ms": rule.for_ms}
    )
    return values


def _weight_to_values(rule: WeightRule) -> dict[str, Any]:
    named = {"host": rule.host, "group": rule.group}
    return {"weight": rule.weight} | {key: text for key, text in named.items() if text is not None}


def values_to_parts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return parts of a policy, by field, from JSON values of legal types; null is taken as given.

    Raises:
        PolicyError: naming the value and what is wrong with it.
    """
    parts = dict(values)
    if "strategy" in parts:
        parts["strategy"] = strategy_of(parts["strategy"], "strategy")
    if parts.get("shadow") is not None:
        parts["shadow"] = strategy_of(parts["shadow"], "shadow")
    if "weights" in parts:
        parts["weights"] = weight_rules(parts["weights"])
    if "pacing" in parts:
        try:
            parts["pacing"] = Pacing(parts["pacing"])
        except ValueError as error:
            good = ", ".join(pacing.value for pacing in Pacing)
            raise PolicyError(f"pacing is {parts['pacing']!r}; use one of {good}") from error
    if "on_expiry" in parts:
        rule = parts["on_expiry"]
        parts["on_expiry"] = (
            CLOSED if rule == "closed" else OnExpiry(rule["permille"], rule["for_ms"])
        )
    return parts


def stored_policy(values: Mapping[str, Any]) -> Policy:
    """Return a policy as an older or a newer version stored it.

    What is missing has its default; what is not known here is left out.

    Raises:
        PolicyError: where a value is out of bounds.
    """
    known = {field.name for field in fields(Policy)}
    return Policy(**values_to_parts({key: values[key] for key in values if key in known}))


def strategy_of(text: str, name: str) -> Strategy:
    """Return a strategy by its name.

    Raises:
        PolicyError: naming those that there are.
    """
    try:
        return Strategy(text)
    except ValueError as error:
        good = ", ".join(strategy.value for strategy in Strategy)
        raise PolicyError(f"{name} is {text!r}; use one of {good}") from error


def weight_rules(rows: Sequence[Mapping[str, Any]]) -> tuple[WeightRule, ...]:
    """Return rules from ``{"weight", "host"?, "group"?}``.

    Raises:
        PolicyError: naming the rule by its place, its value and what is wrong with it.
    """
    rules = []
    for place, row in enumerate(rows):
        host, group = row.get("host"), row.get("group")
        try:
            for name, text in (("host", host), ("group", group)):
                if text is not None:
                    check_name(text, name)
            rules.append(WeightRule(row["weight"], host, group))
        except (PolicyError, WireError) as error:
            told = str(error).removeprefix(f"{RejectReason.BAD_NAME.value}: ")
            raise PolicyError(f"rule {place + 1} of weights: {told}") from error
    return tuple(rules)


def check_minimum(minimum_points: int, maximum_points: int) -> None:
    """Check that the least share is not above the largest.

    Raises:
        PolicyError: saying both, and what to do.
    """
    if minimum_points > maximum_points:
        raise PolicyError(
            f"minimum_points is {minimum_points} ({minimum_points / PERCENT_POINTS:g} %), above "
            f"maximum_points, which is {maximum_points} ({maximum_points / PERCENT_POINTS:g} %); "
            "lower the minimum or raise the maximum in the same change"
        )
