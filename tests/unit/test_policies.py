"""The values of a policy by name: stored forms, bounds as documented, options as people write."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from balancer.adapters.postgres.rows import policy_from_json, policy_to_json
from balancer.app.destinations import changed
from balancer.app.policies import SETTINGS, Setting, policy_to_values, stored_policy
from balancer.commands.policy_options import PERCENT_OPTIONS, policy_lines, policy_parts
from balancer.core.model import Policy, Strategy, WeightRule
from balancer.errors import PolicyError
from worker_sdk.wire.distribution import OnExpiry

NUMBERS = [setting for setting in SETTINGS if setting.least is not None]
OPTIONS = (
    *("strategy", "shadow", "weight", "minimum_percent", "maximum_percent", "head_room_percent"),
    *("newcomer_reserve_percent", "lend_percent", "peak_decay_percent", "safe_percent"),
    *("expect_recurring", "no_expect_recurring"),
    *("valid_for_seconds", "on_expiry_permille", "on_expiry_seconds", "guard_ms", "pacing"),
    *("enforce", "trial"),
)


def parts(**given: Any) -> dict[str, Any]:
    assert set(given) <= set(OPTIONS)
    return policy_parts({name: given.get(name) for name in OPTIONS})


def policy_with(name: str, value: Any) -> Policy:
    return replace(Policy(), **{name: value})


def test_every_value_of_a_policy_is_described_once_in_its_order_and_told() -> None:
    names = [field.name for field in fields(Policy)]
    assert [setting.name for setting in SETTINGS] == names
    assert list(policy_to_values(Policy())) == names


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
def test_the_bounds_described_are_those_of_the_code(setting: Setting) -> None:
    assert setting.least is not None
    assert setting.most is not None
    # Minimum and maximum are bounds of one another; each is tried beside the other's loosest.
    for value in (setting.least, setting.most):
        assert getattr(policy_with(setting.name, value), setting.name) == value
    for value in (setting.least - 1, setting.most + 1):
        with pytest.raises(PolicyError, match=rf"{setting.name} is {value}; it must be"):
            policy_with(setting.name, value)


@pytest.mark.parametrize("option", PERCENT_OPTIONS, ids=lambda option: option.option)
def test_an_option_in_percent_has_the_bounds_of_its_value(option: Any) -> None:
    (setting,) = (setting for setting in SETTINGS if setting.name == option.field)
    assert setting.option == option.option
    assert option.most * option.per_percent == setting.most
    assert (1 if option.least is None else option.least * option.per_percent) == setting.least
    assert parts(**{option.parameter: option.example})[option.field] > 0


def test_a_policy_that_an_older_version_stored_has_the_defaults_of_what_is_new() -> None:
    stored = {
        "strategy": "surplus",
        "newcomer_reserve_points": 0,
        "on_expiry": {"permille": 0, "for_ms": 0},
        "pacing": "even",
    }
    assert policy_from_json(json.dumps(stored)) == Policy(
        Strategy.SURPLUS, newcomer_reserve_points=0
    )


def test_what_a_newer_version_stored_beside_the_known_is_left_out() -> None:
    newer = json.loads(policy_to_json(Policy(guard_ms=9))) | {"colour": "blue"}
    assert stored_policy(newer) == Policy(guard_ms=9)


def test_a_stored_value_out_of_bounds_is_told() -> None:
    with pytest.raises(PolicyError, match="strategy is 'best'; use one of max_min, equal, surplus"):
        stored_policy({"strategy": "best"})


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"minimum_percent": "0.05"}, "minimum_points", 500_000),
        ({"minimum_percent": "0"}, "minimum_points", 0),
        ({"maximum_percent": "25%"}, "maximum_points", 250_000_000),
        ({"head_room_percent": "12.5"}, "head_room_permille", 125),
        ({"newcomer_reserve_percent": "0.0000001"}, "newcomer_reserve_points", 1),
        ({"peak_decay_percent": "99.9"}, "peak_decay_permille", 999),
        ({"safe_percent": "1e1"}, "safe_permille", 100),
        ({"shadow": "equal"}, "shadow", Strategy.EQUAL),
        ({"shadow": "none"}, "shadow", None),
        ({"valid_for_seconds": "900"}, "valid_for_seconds", 900),
        ({"valid_for_seconds": "default"}, "valid_for_seconds", None),
        ({"no_expect_recurring": True}, "expect_recurring", False),
        ({"expect_recurring": True}, "expect_recurring", True),
        ({"trial": True}, "enforce", False),
        ({"enforce": True}, "enforce", True),
        ({"on_expiry_permille": 5, "on_expiry_seconds": 6}, "on_expiry", OnExpiry(5, 6000)),
        ({"weight": ("",)}, "weights", ()),
        ({"weight": ("host=web-*:3",)}, "weights", (WeightRule(3, "web-*"),)),
        ({"weight": ("host=fe80::1:2",)}, "weights", (WeightRule(2, "fe80::1"),)),
        (
            {"weight": ("group=batch:1", "host=a,group=b:5")},
            "weights",
            (WeightRule(1, None, "batch"), WeightRule(5, "a", "b")),
        ),
    ],
)
def test_an_option_names_one_value_of_a_policy(
    given: dict[str, Any], field: str, value: object
) -> None:
    assert parts(**given) == {field: value}


@pytest.mark.parametrize("text", ["", "x", "-0.1", "nan", "inf", "1e999", "1001", "0.00000001"])
@pytest.mark.parametrize("option", PERCENT_OPTIONS, ids=lambda option: option.option)
def test_a_wrong_percentage_is_one_line_with_option_bounds_and_example(
    option: Any, text: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        parts(**{option.parameter: text})
    told = str(caught.value)
    assert told.startswith(f"{option.option} is {text!r}; it must be from ")
    assert told.endswith(f"for example {option.option} {option.example}")
    assert "\n" not in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("web-*:3", "for example --weight 'host=web-*:3'"),
        ("host=web-*", "for example"),
        ("host=web-*:", "for example"),
        ("host=web-*:-1", "for example"),
        ("host=web-*:1.5", "for example"),
        ("host=web-*:٣", "for example"),
        ("host=web-*:1001", "rule 1 of weights: weights.weight is 1001; it must be an integer"),
        ("host=web-*:0", "from 1 to 1000"),
        ("host=:1", "host is empty"),
        ("group=a\nb:1", "control character"),
        (f"host={'x' * 256}:1", "over 255 bytes"),
    ],
)
def test_a_wrong_weight_is_told_with_what_would_be_right(text: str, told: str) -> None:
    with pytest.raises(PolicyError, match=r".") as caught:
        parts(weight=(text,))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_many_weights_are_refused() -> None:
    rules = parts(weight=tuple(f"host=h{number}:1" for number in range(101)))
    with pytest.raises(PolicyError, match="weights has 101 rules; at most 100"):
        Policy(**rules)


def test_a_minimum_above_the_maximum_says_what_to_do() -> None:
    def change(**policy: int) -> None:
        changed(None, "d", capacity=1, window_seconds=60, policy=policy, now_ms=0, round_seconds=60)

    with pytest.raises(PolicyError, match=r"\(60 %\), above .* \(50 %\); lower the minimum or"):
        change(minimum_points=600_000_000, maximum_points=500_000_000)
    change(minimum_points=500_000_000, maximum_points=500_000_000)


def test_a_policy_is_told_in_the_units_of_its_options() -> None:
    policy = Policy(
        shadow=Strategy.EQUAL,
        weights=(WeightRule(3, "web-*"), WeightRule(1, "a", "b")),
        minimum_points=500_000,
        on_expiry=OnExpiry(500, 60_000),
    )
    told = {line[:20].strip(): line[20:].strip() for line in policy_lines(policy_to_values(policy))}
    assert told["minimum"] == "0.05 %"
    assert told["maximum"] == "100 %"
    assert told["weights"] == "host=web-*:3, host=a,group=b:1"
    assert (told["shadow"], told["valid for seconds"]) == ("equal", "default")
    assert told["on expiry"] == "50 % of the safe points for 60 s"
    plain = [line.split() for line in policy_lines(policy_to_values(Policy()))]
    assert ["shadow", "none"] in plain
    assert ["weights", "none"] in plain
