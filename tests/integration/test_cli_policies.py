"""Policies on the command line, on a real database: set, shown, cleared, refused in a line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from balancer.commands import main

NAME = "orders-db"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], postgres_dsn: str
) -> Run:
    """Run a command in this process; return its code and what it said."""
    for name in [name for name in os.environ if name.startswith("PERMIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PERMIT_POSTGRES_DSN", postgres_dsn)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    assert command("migrate")[0] == 0
    return command


def policy_after(run: Run, *options: str) -> dict[str, Any]:
    code, out, err = run("destinations", "set", NAME, "--capacity", "10", *options, "--json")
    assert (code, err) == (0, "")
    policy: dict[str, Any] = json.loads(out)["policy"]
    return policy


def test_every_new_value_of_a_policy_can_be_set_shown_and_changed(run: Run) -> None:
    policy = policy_after(
        run,
        *("--weight", "host=web-*:3", "--weight", "group=batch:1", "--shadow", "equal"),
        *("--minimum-percent", "0.05", "--maximum-percent", "25", "--head-room-percent", "12.5"),
        *("--peak-decay-percent", "80", "--no-expect-recurring", "--safe-percent", "50"),
    )
    assert policy["weights"] == [{"weight": 3, "host": "web-*"}, {"weight": 1, "group": "batch"}]
    assert (policy["shadow"], policy["expect_recurring"]) == ("equal", False)
    assert (policy["minimum_points"], policy["maximum_points"]) == (500_000, 250_000_000)
    permille = ("head_room_permille", "peak_decay_permille", "safe_permille")
    assert [policy[name] for name in permille] == [125, 800, 500]
    shown = run("destinations", "show", NAME)[1]
    assert "host=web-*:3, group=batch:1" in shown
    assert policy_after(run, "--guard-ms", "9") == policy | {"guard_ms": 9}


def test_weights_are_replaced_as_a_whole_and_cleared_by_an_empty_one(run: Run) -> None:
    policy_after(run, "--weight", "host=a:2", "--weight", "host=b:3")
    assert policy_after(run, "--weight", "host=c:4")["weights"] == [{"weight": 4, "host": "c"}]
    assert policy_after(run, "--weight", "")["weights"] == []


def test_the_shadow_and_the_validity_go_back_to_none_and_to_the_default(run: Run) -> None:
    policy = policy_after(run, "--shadow", "surplus", "--valid-for-seconds", "90")
    assert (policy["shadow"], policy["valid_for_seconds"]) == ("surplus", 90)
    policy = policy_after(run, "--shadow", "none", "--valid-for-seconds", "default")
    assert (policy["shadow"], policy["valid_for_seconds"]) == (None, None)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--minimum-percent", "120"], "--minimum-percent is '120'; it must be from 0 to 100"),
        (["--maximum-percent", "0"], "from 0.0000001 to 100 in steps of 0.0000001, for example"),
        (["--head-room-percent", "nan"], "--head-room-percent is 'nan'; it must be from 0 to 1000"),
        (["--safe-percent", "0.05"], "in steps of 0.1, for example --safe-percent 90"),
        (["--weight", "web:2"], "--weight is 'web:2'; write a host pattern or a group"),
        (["--weight", "", "--weight", "host=a:1"], "an empty one alone clears all"),
        (["--valid-for-seconds", "soon"], "--valid-for-seconds is 'soon'; it must be a whole"),
        (["--valid-for-seconds", "0"], "valid_for_seconds is 0; it must be an integer from 1"),
        (
            ["--minimum-percent", "60", "--maximum-percent", "50"],
            "lower the minimum or raise the maximum in the same change",
        ),
    ],
)
def test_a_wrong_value_is_one_line_and_changes_nothing(
    run: Run, options: list[str], told: str
) -> None:
    before = policy_after(run)
    code, out, err = run("destinations", "set", NAME, *options)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert told in err
    assert json.loads(run("destinations", "show", NAME, "--json")[1])["policy"] == before


def test_a_change_that_names_nothing_is_refused_and_one_that_changes_nothing_says_so(
    run: Run,
) -> None:
    assert run("destinations", "set", NAME, "--capacity", "10")[1].startswith(f"{NAME}: created")
    code, out, err = run("destinations", "set", NAME)
    assert (code, out) == (2, "")
    assert f"nothing is named to change of '{NAME}'; for example --capacity 10" in err
    assert run("destinations", "set", NAME, "--capacity", "10")[1].startswith(f"{NAME}: as it was")
    assert run("destinations", "set", NAME, "--trial")[1].startswith(f"{NAME}: changed")
    assert run("destinations", "set", "new")[0] == 2


@pytest.mark.parametrize(
    "pair", [("--enforce", "--trial"), ("--expect-recurring", "--no-expect-recurring")]
)
def test_of_two_options_that_contradict_one_another_none_wins(
    run: Run, pair: tuple[str, str]
) -> None:
    for options in (pair, pair[::-1]):
        code, _, err = run("destinations", "set", NAME, "--capacity", "1", *options)
        assert code == 2
        assert f"{pair[0]} and {pair[1]} exclude one another" in err


def test_a_window_is_told_with_the_round_that_it_was_compared_with(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERMIT_ROUND_SECONDS", "20")
    window = ("destinations", "set", NAME, "--capacity", "1", "--window-seconds")
    code, _, err = run(*window, "30")
    assert code == 2
    assert "the round of 20 s (PERMIT_ROUND_SECONDS)" in err
    assert "that is this command's setting, which must be the balancer's" in err
    assert "PERMIT_ROUND_SECONDS=20 of this command" in run(*window, "10")[1]


def test_a_variable_that_nothing_reads_is_warned_of_and_does_no_harm(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERMIT_ROUND_SECOND", "20")
    code, out, err = run("destinations", "list", "--json")
    assert (code, json.loads(out)) == (0, {"destinations": []})
    assert err == (
        "permit-balancer: warning: PERMIT_ROUND_SECOND: nothing reads this variable; "
        "is PERMIT_ROUND_SECONDS meant?\n"
    )
