"""The built-in scenarios: safe at any length, at full length as good as the catalogue demands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from balancer.core.model import Policy
from balancer.simulation.builders import AWAY_WINDOW, outage
from balancer.simulation.catalogue import CATALOGUE, scenario_named
from balancer.simulation.outcome import summary
from balancer.simulation.requirements import Requirements, broken_safety, unmet
from balancer.simulation.results import Outcome
from balancer.simulation.run import Simulation
from balancer.simulation.scenario import (
    Events,
    Faults,
    MemberPlan,
    Scenario,
    Style,
    TimetableKind,
    constant,
)
from worker_sdk.errors import ConfigurationError
from worker_sdk.wire.distribution import OnExpiry

LARGE = {"churn", "churn-at-capacity", "churn-killed", "restart", "restart-at-capacity", "day"}
"""Fleets of 800: here only as long as it takes to see what they are about."""


def run(scenario: Scenario, seed: int = 1) -> Outcome:
    simulation = Simulation(scenario, seed)
    for _ in simulation.steps():
        pass
    return simulation.outcome


def served(scenario: Scenario, outcome: Outcome) -> dict[str, object]:
    return summary(
        outcome.figures,
        keeps_backlog=scenario.keeps_backlog,
        from_window=scenario.measured_from_window,
    )


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - LARGE))
def test_a_scenario_reaches_what_is_demanded_of_it(name: str) -> None:
    known = CATALOGUE[name]
    scenario = known.make(seed=1)
    outcome = run(scenario)
    assert broken_safety(outcome) == []
    assert unmet(known.demanded, scenario, outcome) == []


@pytest.mark.parametrize("name", ["churn", "churn-killed", "day", "restart"])
def test_a_large_fleet_stays_safe(name: str) -> None:
    known = CATALOGUE[name]
    scenario = known.make(seed=1, windows=known.least_windows)
    outcome = run(scenario)
    assert broken_safety(outcome) == []
    result = served(scenario, outcome)
    assert result["refused_by_destination"] == 0
    assert isinstance(worst := result["worst_window_over_capacity"], float)
    assert worst <= 1.0


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(LARGE))
@pytest.mark.timeout(1200)
def test_a_large_fleet_reaches_what_is_demanded_of_it(name: str) -> None:
    known = CATALOGUE[name]
    scenario = known.make(seed=1)
    outcome = run(scenario)
    assert broken_safety(outcome) == []
    assert unmet(known.demanded, scenario, outcome) == []


def test_every_scenario_has_a_line_for_people_and_a_bound_on_its_fullest_window() -> None:
    for known in CATALOGUE.values():
        assert 10 < len(known.description) <= 100
        assert known.demanded.most_worst_window == 1.0


def test_a_scenario_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    first, again, other = (CATALOGUE["hot-set"].make(seed, windows=10) for seed in (1, 1, 2))

    def demand(scenario: Scenario) -> list[list[int]]:
        return [[plan.demand(window) for window in range(10)] for plan in scenario.members]

    assert demand(first) == demand(again)
    assert demand(first) != demand(other)


def test_a_scenario_too_short_for_what_it_is_about_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs 14 or more"):
        CATALOGUE["step"].make(seed=1, windows=5)


def test_an_unknown_scenario_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"two-hosts, step"):
        scenario_named("two_hosts")


def test_what_remains_after_the_validity_is_what_on_expiry_says() -> None:
    policy = Policy(valid_for_seconds=600, on_expiry=OnExpiry(permille=500, for_ms=300_000))
    outcome = run(outage("short", 20, policy)(1, AWAY_WINDOW + 20))
    used = outcome.figures.arrived
    # The last document covers the first window of the outage; it is valid for ten windows.
    valid = used[AWAY_WINDOW + 1 : AWAY_WINDOW + 10]
    half = used[AWAY_WINDOW + 10 : AWAY_WINDOW + 15]
    assert min(valid) == max(valid) > 8_000
    assert all(0.45 * valid[0] <= permits <= 0.5 * valid[0] for permits in half)
    assert used[AWAY_WINDOW + 15 :] == [0] * 5


def test_a_closed_destination_gives_nothing_and_opens_again() -> None:
    members = tuple(MemberPlan(f"host-{number}", constant(50)) for number in range(10))
    scenario = Scenario("closing", 400, 20, members, events=Events(capacities={5: 0, 10: 400}))
    outcome = run(scenario)
    assert broken_safety(outcome) == []
    assert outcome.figures.arrived[7:10] == [0, 0, 0]
    assert min(outcome.figures.arrived[14:]) >= 390


def test_a_capacity_of_zero_sums_up_without_a_ratio() -> None:
    scenario = Scenario("closed", 0, 5, (MemberPlan("host", constant(5)),))
    result = served(scenario, run(scenario))
    assert result["served_over_ideal"] is None
    assert result["worst_window_over_capacity"] is None
    assert result["longest_zero_windows"] == 5


FAULTS = {
    "lost reads": Faults(lost_reads=0.3),
    "lost reports": Faults(lost_reports=0.3),
    "doubled reports": Faults(doubled_reports=0.5, delay_rounds=2),
    "skewed clocks": Faults(skew_ms=120),
    "everything": Faults(0.3, 0.3, 0.3, 2, 120),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("timetable", TimetableKind)
@pytest.mark.parametrize("seed", [1, 2])
def test_faults_never_lead_over_the_capacity(
    name: str, timetable: TimetableKind, seed: int
) -> None:
    members = [
        MemberPlan(f"host-{number}", lambda window, n=number: (n * 37 + window * n) % 90)  # type: ignore[misc] # n is bound
        for number in range(12)
    ]
    members += [
        MemberPlan("leaver", constant(60), joins_window=3, leaves_window=12),
        MemberPlan("killed", constant(60), joins_window=4, leaves_window=11, is_killed=True),
        MemberPlan("thread", constant(40), style=Style.BLOCKING),
    ]
    scenario = Scenario(
        "faults",
        400,
        30,
        tuple(members),
        faults=FAULTS[name],
        timetable=timetable,
        events=Events(balancer_away=((14, 17),), lost_memory=(22,), capacities={8: 300, 18: 500}),
    )
    outcome = run(scenario, seed)
    assert broken_safety(outcome) == []
    assert sum(outcome.figures.arrived) > 0


def test_by_the_services_timetable_a_round_knows_less() -> None:
    """A member reports at some second up to the 36th; what it wants after that is not known."""
    members = (
        MemberPlan("early", lambda window: 900 if window >= 5 else 0),
        MemberPlan("late", lambda window: 0 if window >= 5 else 900),
    )
    strict = Scenario("turn", 1000, 12, members, measured_from_window=6)
    outcomes = [
        run(replace(strict, timetable=timetable))
        for timetable in (TimetableKind.WINDOW, TimetableKind.SERVICE)
    ]
    by_window, by_service = (outcome.figures.arrived for outcome in outcomes)
    # Window 6 is still held for who wanted all before: its safe points.
    assert by_window[7] == 900
    assert by_service[7] < 900
    assert by_service[8] == 900
    assert [sum(outcome.figures.wanted) for outcome in outcomes] == [900 * 12] * 2
    assert all(broken_safety(outcome) == [] for outcome in outcomes)


def test_members_come_and_go_by_either_timetable() -> None:
    plain = CATALOGUE["churn"].make(seed=1, windows=15)
    few = [plan for number, plan in enumerate(plain.members) if number % 20 == 0]
    small = replace(plain, members=tuple(few), capacity=plain.capacity // 20)
    results = [
        served(small, run(replace(small, timetable=timetable))) for timetable in TimetableKind
    ]
    assert [result["ideal"] for result in results] == [results[0]["ideal"]] * 2
    for result in results:
        assert isinstance(part := result["served_over_ideal"], float)
        assert part > 0.8


def test_work_of_who_ends_goes_to_its_successor() -> None:
    members = (
        MemberPlan("old", constant(100), leaves_window=4),
        MemberPlan("new", constant(0), joins_window=4),
        MemberPlan("other", constant(5)),
    )
    scenario = Scenario("heirs", 40, 20, members, keeps_backlog=True)
    outcome = run(scenario)
    assert sum(outcome.hosts["new"].wanted) == 0
    assert sum(outcome.hosts["new"].served) > 200
    assert sum(outcome.hosts["other"].served) <= 5 * 20


def test_more_than_a_bound_is_told_window_by_window() -> None:
    scenario = Scenario("calm", 100, 4, (MemberPlan("host", constant(10)),))
    outcome = run(scenario)
    outcome.over = [2]
    outcome.broken = ["entries overlap"]
    assert [line.split(":")[0] for line in broken_safety(outcome)] == [
        "window 2",
        "a plan would have broken an invariant",
    ]


def test_every_demand_that_is_missed_is_told() -> None:
    scenario = Scenario("tiny", 40, 3, (MemberPlan("host", constant(50)),))
    outcome = run(scenario)
    demanded = Requirements(
        least_served_over_ideal=1.0,
        most_worst_window=0.5,
        most_moved_points=-1,
        least_permits={"host": 50, "nobody": 1},
    )
    told = "\n".join(unmet(demanded, scenario, outcome))
    for words in ("is demanded", "fullest window", "a round moved", "host used", "nobody used"):
        assert words in told
