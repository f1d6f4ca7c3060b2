"""Policies over HTTP: every value can be set, changed and cleared, and a wrong one is told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http_face import Served

PATH = "/destinations/orders-db"
EVERY_VALUE = {
    "strategy": "surplus",
    "shadow": "equal",
    "weights": [
        {"weight": 3, "host": "web-*"},
        {"weight": 2, "group": "batch"},
        {"weight": 1000, "host": "a", "group": "b"},
    ],
    "minimum_points": 1,
    "maximum_points": 2,
    "head_room_permille": 3,
    "newcomer_reserve_points": 4,
    "lend_points": 5,
    "peak_decay_permille": 5,
    "expect_recurring": False,
    "safe_permille": 6,
    "valid_for_seconds": 7,
    "on_expiry": {"permille": 8, "for_ms": 9},
    "guard_ms": 10,
    "pacing": "window",
    "enforce": False,
}


async def put(served: Served, policy: object, capacity: int = 5) -> tuple[int, Any]:
    body = {"capacity": capacity, "policy": policy}
    status, answer, _ = await served.ask(PATH, "PUT", body)
    return status, answer


async def test_every_value_can_be_set_and_is_given_back(served: Served) -> None:
    status, answer = await put(served, EVERY_VALUE)
    assert (status, answer["policy"]) == (201, EVERY_VALUE)
    assert (await served.ask(PATH))[1] == answer
    status, again, _ = await served.ask(PATH, "PUT", answer)
    assert (status, again["policy"]) == (200, EVERY_VALUE)


@pytest.mark.parametrize("name", EVERY_VALUE)
async def test_one_value_changes_and_the_others_stay(served: Served, name: str) -> None:
    _, plain = await put(served, {})
    _, answer = await put(served, {name: EVERY_VALUE[name]} | _beside(name))
    expected = plain["policy"] | {name: EVERY_VALUE[name]} | _beside(name)
    assert answer["policy"] == expected


def _beside(name: str) -> dict[str, Any]:
    return {"minimum_points": 0} if name == "maximum_points" else {}


async def test_null_clears_the_shadow_and_an_empty_list_the_weights(served: Served) -> None:
    await put(served, EVERY_VALUE)
    nothing = dict.fromkeys(EVERY_VALUE)
    _, answer = await put(served, nothing)
    assert answer["policy"] == EVERY_VALUE | {"shadow": None, "valid_for_seconds": None}
    _, answer = await put(served, {"weights": []})
    assert answer["policy"]["weights"] == []


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({"shadow": "none"}, "policy.shadow"),
        ({"weights": {"host": 1}}, "policy.weights"),
        ({"weights": [{"host": "a"}]}, "policy.weights.0.weight"),
        ({"weights": [{"weight": 1.5, "host": "a"}]}, "policy.weights.0.weight"),
        ({"weights": [{"weight": True, "host": "a"}]}, "policy.weights.0.weight"),
        ({"weights": [{"weight": 2, "host": "a", "x": 1}]}, "policy.weights.0.x"),
        (
            {"weights": [{"weight": 1, "host": "a"}, {"weight": 0, "host": "b"}]},
            "rule 2 of weights: weights.weight is 0; it must be an integer from 1 to 1000",
        ),
        ({"weights": [{"weight": 1}]}, "a rule names a host pattern, a group, or both"),
        ({"weights": [{"weight": 1, "host": ""}]}, "rule 1 of weights: host is empty"),
        ({"weights": [{"weight": 1, "group": "a\0b"}]}, "group has a control character"),
        ({"weights": [{"weight": 1, "host": "a"}] * 101}, "weights has 101 rules; at most 100"),
        ({"minimum_points": -1}, "minimum_points is -1; it must be an integer from 0 to"),
        ({"maximum_points": 0}, "maximum_points is 0; it must be an integer from 1 to"),
        ({"minimum_points": 2, "maximum_points": 1}, "lower the minimum or raise the maximum"),
        ({"head_room_permille": 10_001}, "head_room_permille is 10001"),
        ({"peak_decay_permille": 1001}, "peak_decay_permille is 1001"),
        ({"expect_recurring": 1}, "policy.expect_recurring"),
    ],
)
async def test_a_wrong_value_is_named_and_changes_nothing(
    served: Served, policy: object, told: str
) -> None:
    status, answer = await put(served, policy)
    assert (status, told in answer["detail"]) == (400, True), answer["detail"]
    assert (await served.ask("/destinations"))[1] == {"destinations": []}
    assert served.changes == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"capacitty": 5}, "capacitty: Extra inputs are not permitted; is capacity meant?"),
        ({"pacing": "even"}, "is policy.pacing meant?"),
        (
            {"policy": {"guard": 5}},
            "policy.guard: Extra inputs are not permitted; is policy.g",
        ),
        ({"policy": {"capacity": 5}}, "is capacity meant?"),
        ({"policy": {"weights": [{"weigth": 1}]}}, "is policy.weights.weight meant?"),
        ({"policy": {"on_expiry": {"permile": 1, "for_ms": 1}}}, "is policy.on_expiry.permille"),
        ({"xyzzy": 1}, "; good are name, capacity, window_seconds, policy, changed_at_ms"),
    ],
)
async def test_an_unknown_key_is_told_with_the_one_that_may_be_meant(
    served: Served, body: dict[str, Any], told: str
) -> None:
    status, answer, _ = await served.ask(PATH, "PUT", {"capacity": 5, **body})
    assert (status, told in answer["detail"]) == (400, True), answer["detail"]


async def test_a_maximum_below_the_minimum_that_is_set_already_is_refused(served: Served) -> None:
    await put(served, {"minimum_points": 50})
    status, answer = await put(served, {"maximum_points": 49})
    assert (status, "raise the maximum" in answer["detail"]) == (400, True)
    assert (await put(served, {"maximum_points": 49, "minimum_points": 49}))[0] == 200
