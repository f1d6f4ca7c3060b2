"""The rules that the comparison runs, on worked values, and its table on a tiny input.

Worked values: the examples and test values of Doorman's documentation and tests, and max-min as
textbooks compute it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from balancer.simulation.scenario import MemberPlan, Scenario, constant
from benchmarks.allocators import __main__ as command
from benchmarks.allocators import (
    dead_band,
    doorman,
    even,
    ewma,
    fleet,
    forecast,
    inputs,
    last_demand,
    usage_only,
)
from benchmarks.allocators.table import compared
from benchmarks.allocators.told import Allocate, Told, Window

SIMPLE = {
    "even": even.allocate,
    "usage only": usage_only.allocate,
    "doorman": doorman.allocate,
    "ewma": ewma.allocate,
    "dead band": dead_band.allocate,
    "last demand": last_demand.allocate,
}


def window(*accounts: tuple[int, int]) -> Window:
    """Return what members a, b, c … told: (used, denied)."""
    return {chr(ord("a") + n): Told(*account) for n, account in enumerate(accounts)}


def wants(*values: float) -> Mapping[str, float]:
    return {chr(ord("a") + n): value for n, value in enumerate(values)}


def weighing(*values: int) -> dict[str, int]:
    return {chr(ord("a") + n): value for n, value in enumerate(values)}


def run_of(scenario: Scenario, rule: Allocate, *, half_late: bool = False) -> fleet.Run:
    return fleet.Fleet(scenario, lambda _coming: rule, half_late=half_late).finish()


def settled_doorman(
    wanted: Mapping[str, float], weights: Mapping[str, int], capacity: float, rounds: int = 5
) -> list[float]:
    has: dict[str, float] = {}
    for _ in range(rounds):
        has = doorman.fair_share(wanted, weights, capacity, has)
    return list(has.values())


# -- max-min


@pytest.mark.parametrize(
    ("capacity", "wanted", "expected"),
    [
        (120, (1000, 50, 10), (60, 50, 10)),
        (120, (1000, 60, 10), (55, 55, 10)),
        (10, (2, 2.6, 4, 5), (2, 2.6, 2.7, 2.7)),
        (100, (10, 22, 30, 200), (10, 22, 30, 38)),
        (100, (5, 22, 23, 29, 33, 400), (5, 19, 19, 19, 19, 19)),
        (1000, (1, 1, 1, 400, 700), (1, 1, 1, 400, 597)),
        (7, (3, 3, 3), (7 / 3, 7 / 3, 7 / 3)),
        (60, (0, 0, 0), (0, 0, 0)),
        (0, (5, 5), (0, 0)),
        (100, (100,), (100,)),
        (100, (1, 21, 33, 1, 200), (1, 21, 33, 1, 44)),
    ],
)
def test_max_min_reaches_the_worked_values(
    capacity: int, wanted: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    amounts = last_demand.max_min(wants(*wanted), capacity)
    assert list(amounts.values()) == pytest.approx(list(expected))


def test_last_demand_spreads_what_no_want_needs() -> None:
    shares = last_demand.allocate([window((10, 0), (20, 10))], 100, {})
    assert shares == pytest.approx({"a": 40, "b": 60})


def test_the_forecaster_shares_by_what_will_be_wanted() -> None:
    rule = forecast.told_the_future(lambda: {"a": 90, "b": 10})
    assert rule([window((0, 0), (100, 0))], 100, {}) == pytest.approx({"a": 90, "b": 10})


# -- doorman


@pytest.mark.parametrize(
    ("capacity", "wanted", "weights", "expected"),
    [
        (120, (1000, 50, 10), (1, 1, 1), (60, 50, 10)),
        (120, (1000, 60, 10), (1, 1, 1), (55, 55, 10)),
        (120, (1000, 500, 200), (6, 4, 2), (60, 40, 20)),
        (1000, (2000, 500, 700), (10, 10, 30), (200, 200, 600)),
    ],
)
def test_doorman_reaches_the_values_of_its_own_tests(
    capacity: int, wanted: tuple[int, ...], weights: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    settled = settled_doorman(wants(*wanted), weighing(*weights), capacity)
    assert settled == pytest.approx(list(expected))


def test_doorman_gives_a_client_more_than_it_wants_and_keeps_to_it() -> None:
    wanted, weights = wants(1, 21, 33, 1, 200), weighing(1, 1, 1, 1, 1)
    assert settled_doorman(wanted, weights, 100, rounds=1) == pytest.approx([1, 21, 38.5, 1, 38.5])
    assert settled_doorman(wanted, weights, 100, rounds=20) == pytest.approx([1, 21, 38.5, 1, 38.5])


def test_doorman_compares_clients_that_stand_for_different_numbers_and_starves_one() -> None:
    wanted, weights = wants(65, 45, 20), weighing(3, 2, 1)
    assert settled_doorman(wanted, weights, 120, rounds=1) == pytest.approx([75, 40, 5])
    assert settled_doorman(wanted, weights, 120, rounds=20) == pytest.approx([75, 40, 5])


def test_doorman_never_answers_with_what_is_leased_to_others() -> None:
    shares = doorman.allocate([window((100, 100), (0, 100))], 100, {"a": 100.0, "b": 0.0})
    assert sum(shares.values()) <= 100
    late = doorman.allocate([window((0, 100), (100, 100))], 100, {"a": 0.0, "b": 100.0})
    assert late == pytest.approx({"a": 0, "b": 50})


# -- rules that know use alone


def test_usage_only_shares_in_proportion_to_use() -> None:
    shares = usage_only.allocate([window((30, 0), (10, 500))], 100, {})
    assert shares == pytest.approx({"a": 1 + 98 * 0.75, "b": 1 + 98 * 0.25})


def test_usage_only_leaves_a_late_comer_far_from_its_fair_share_for_thirty_rounds() -> None:
    shares = {f"busy-{n}": 99.9 for n in range(10)} | {"late": 1.0}
    for _ in range(30):
        told = {name: Told(int(share), 1000) for name, share in shares.items()}
        shares = usage_only.allocate([told], 1000, shares)
    assert shares["late"] < 1000 / 11 / 3


def test_the_dead_band_moves_shares_of_members_that_use_little() -> None:
    told = window((50, 100), (10, 0))
    shares = dead_band.allocate([told], 100, {"a": 50.0, "b": 50.0})
    gift = 50 * (1 - 0.2) / (1 + 0.2)
    assert shares == pytest.approx({"a": 50 + gift, "b": 50 - gift})


def test_the_dead_band_freezes_a_fleet_of_a_hundred() -> None:
    previous = {f"host-{n}": 10.0 for n in range(100)}
    told = {name: Told(2, 0) for name in previous} | {"host-0": Told(10, 700)}
    assert dead_band.allocate([told], 1000, previous) == previous


def test_the_dead_band_starts_again_whenever_somebody_comes_or_goes() -> None:
    told = window((90, 10), (1, 0), (0, 5))
    shares = dead_band.allocate([told], 99, {"a": 95.0, "b": 4.0})
    assert shares == pytest.approx({"a": 33, "b": 33, "c": 33})


def test_the_dead_band_lets_the_largest_of_the_busy_give_to_the_others() -> None:
    shares = dead_band.allocate([window((80, 9), (20, 9))], 100, {"a": 80.0, "b": 20.0})
    assert shares["a"] < 80
    assert sum(shares.values()) == pytest.approx(100)


# -- averaged weights


def test_ewma_gives_the_newest_window_half_the_weight() -> None:
    history = [window((100, 0), (0, 0)), window((50, 50), (0, 100))]
    shares = ewma.allocate(history, 100, {})
    # a: 100; b: 50; used 75 and 0, so that 25 are unused; b may go up to an even part.
    assert shares == pytest.approx({"a": 100 * 2 / 3, "b": 50})


def test_ewma_promises_what_is_unused_more_than_once() -> None:
    shares = ewma.allocate([window((40, 0), *[(1, 0)] * 9)], 100, {})
    assert sum(shares.values()) > 100


# -- what holds for all


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("capacity", [0, 1, 7, 1000])
def test_shares_are_of_the_members_and_never_negative(name: str, capacity: int) -> None:
    told = window((0, 0), (5, 0), (3, 900), (0, 40))
    previous = even.split(told, capacity)
    shares = SIMPLE[name]([told, told], capacity, previous)
    assert shares.keys() == told.keys()
    assert min(shares.values()) >= 0
    if name != "ewma":
        assert sum(shares.values()) <= capacity + 1e-6


@pytest.mark.parametrize("name", SIMPLE)
def test_members_that_tell_of_nothing_are_no_error(name: str) -> None:
    told = window((0, 0), (0, 0))
    shares = SIMPLE[name]([told], 10, even.split(told, 10))
    assert sum(shares.values()) <= 10


# -- the fleet


@pytest.mark.parametrize("window_index", range(5))
def test_whole_permits_add_up_to_the_shares(window_index: int) -> None:
    shares = {f"host-{n}": 7 / 3 for n in range(3)}
    assert sum(fleet.whole_permits(shares, window_index).values()) == 7


def test_old_and_new_shares_in_force_together_pass_the_capacity() -> None:
    scenario = inputs.shifts(24)
    in_time = run_of(scenario, last_demand.allocate)
    late = run_of(scenario, last_demand.allocate, half_late=True)
    assert max(in_time.figures.arrived) == scenario.capacity
    assert max(late.figures.arrived) == scenario.capacity * 3 // 2


def test_a_newcomer_waits_for_the_first_round_that_knows_it() -> None:
    members = (
        MemberPlan("old", constant(5)),
        MemberPlan("new", constant(5), joins_window=2),
    )
    run = run_of(Scenario("newcomer", 10, 6, members), even.allocate)
    assert run.figures.arrived == [5, 5, 5, 10, 10, 10]
    assert run.figures.zero_windows == [0, 1]


@pytest.mark.parametrize(("is_killed", "full_from"), [(False, 3), (True, 6)])
def test_a_killed_member_keeps_its_share_for_three_rounds(
    *, is_killed: bool, full_from: int
) -> None:
    members = (
        MemberPlan("stays", constant(10)),
        MemberPlan("leaves", constant(10), leaves_window=3, is_killed=is_killed),
    )
    run = run_of(Scenario("leaver", 10, 8, members), even.allocate)
    full = [n for n, arrived in enumerate(run.figures.arrived) if n >= 3 and arrived == 10]
    assert full == list(range(full_from, 8))


# -- inputs


def test_halves_and_shifted_copies_hold_the_same_demand(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(trace_text())
    whole, half_a, half_b, shifted = inputs.recorded(path, 1, quick=True)
    assert len(half_a.members) + len(half_b.members) == len(whole.members) == 10
    assert demanded(half_a) + demanded(half_b) == demanded(whole) == demanded(shifted)
    assert demanded(inputs.recorded(path, 1, quick=True)[1]) == demanded(half_a)


def trace_text() -> str:
    minutes = range(inputs.QUICK_TRACE_WINDOWS)
    header = ",".join(f"minute_{n + 1}" for n in minutes)
    rows = [",".join(str((n * 7 + row * 13) % 11) for n in minutes) for row in range(10)]
    return "\n".join([header, *rows]) + "\n"


def demanded(scenario: Scenario) -> int:
    windows = range(scenario.windows)
    return sum(member.demand(window) for member in scenario.members for window in windows)


@pytest.mark.parametrize("hosts", inputs.FLEETS)
def test_a_fleet_wants_nearly_its_capacity_before_and_after(hosts: int) -> None:
    scenario = inputs.fleet(hosts, 12)
    for at in (0, 11):
        total = sum(member.demand(at) for member in scenario.members)
        assert 0.94 * scenario.capacity <= total <= 0.95 * scenario.capacity


# -- the table


def test_the_table_has_every_rule_once_an_input_and_ours_is_never_over() -> None:
    rows = list(compared([inputs.fleet(10, 12), inputs.shifts(12)], 1))
    assert [row.rule for row in rows[:10]] == [row.rule for row in rows[10:]]
    assert len({row.rule for row in rows}) == 10
    for row in rows:
        if row.rule.startswith("ours"):
            assert (row.worst_window_over_capacity or 0) <= 1
            assert (row.late_worst_window_over_capacity or 0) <= 1


def test_the_command_prints_rows_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--quick", "--json", "--input", "fleet-10", "--seed", "3"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["seed"] == 3
    assert {row["input"] for row in printed["rows"]} == {"fleet-10"}
    assert len(printed["rows"]) == 10


def test_the_command_prints_a_table_with_its_seed_and_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["--quick", "--input", "fleet-10"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("allocators, seed 1")
    assert "half of the members spend by the shares of the round before" in printed


def test_missing_recorded_demand_is_said_and_the_rest_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "TRACE", tmp_path / "none.csv")
    assert command.main(["--quick", "--input", "fleet-10"]) == 0
    assert "no recorded demand" in capsys.readouterr().err


def test_a_trace_that_was_named_and_is_missing_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command.main(["--quick", "--trace", str(tmp_path / "none.csv")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_an_unknown_input_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--quick", "--input", "nothing"]) == 2
    assert "fleet-10" in capsys.readouterr().err
