"""Recorded rounds as a scenario: demand, lives and capacities as they were, run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from balancer.core.model import Destination, Policy, Reason, Strategy, WeightRule
from balancer.core.record import LEFT, NEWCOMER, DetailRecord
from balancer.simulation import replay as module
from balancer.simulation.replay import Recording, Replay
from balancer.simulation.run import Simulation
from balancer.simulation.scenario import MemberPlan, Scenario
from tests.support.recorded import ROUND_MS, T0, reason, round_of
from tests.unit.test_cycle import NAME, World
from worker_sdk.errors import ConfigurationError
from worker_sdk.wire.usage import MemberState

WINDOW = T0 // ROUND_MS


def detail(
    number: int, *reasons: Reason, whole: bool = True, capacity: int = 1000, after_ms: int = 0
) -> DetailRecord:
    """The members of the round planned in a window, counted from the first."""
    planned_ms = T0 + number * ROUND_MS + 38_000 + after_ms
    record = round_of(
        *reasons, epoch=number, planned_at_ms=planned_ms, capacity=capacity, whole=whole
    )
    return record.details[0]


def recorded(*details: DetailRecord, policy: Policy | None = None) -> Replay:
    recording = Recording("db")
    for entry in details:
        recording.add(entry)
    return recording.replay(policy or Policy())


def demand(scenario: Scenario, host: str) -> list[int]:
    (plan,) = (plan for plan in scenario.members if plan.host == host)
    return [plan.demand(window) for window in range(scenario.windows)]


def life(scenario: Scenario, host: str) -> tuple[int, int | None, bool]:
    (plan,) = (plan for plan in scenario.members if plan.host == host)
    return plan.joins_window, plan.leaves_window, plan.is_killed


def constant_rounds(*numbers: int) -> Sequence[DetailRecord]:
    return [detail(number, reason("a", asked=number + 1)) for number in numbers]


def test_what_was_asked_in_a_round_is_wanted_in_its_window() -> None:
    found = recorded(
        detail(0, reason("a", asked=10), reason("b", asked=1)),
        detail(1, reason("a", asked=20), reason("b", asked=2)),
        detail(2, reason("a", asked=30), reason("b", asked=3)),
    )
    scenario = found.scenario
    assert (scenario.windows, scenario.window_seconds, scenario.round_windows) == (3, 60, 1)
    assert demand(scenario, "a") == [10, 20, 30]
    assert demand(scenario, "b") == [1, 2, 3]
    assert life(scenario, "a") == (0, None, False)
    assert (found.rounds, found.filled_windows, found.unknown_members) == (3, 0, 0)


def test_a_round_of_several_windows_speaks_for_all_since_the_last() -> None:
    scenario = recorded(*constant_rounds(0, 3, 6)).scenario
    assert scenario.round_windows == 3
    assert demand(scenario, "a") == [1, 4, 4, 4, 7, 7, 7]


def test_windows_without_a_record_have_the_demand_of_the_next_and_are_counted() -> None:
    found = recorded(*constant_rounds(0, 1, 2, 7))
    assert demand(found.scenario, "a") == [1, 2, 3, 8, 8, 8, 8, 8]
    assert found.filled_windows == 4


def test_of_two_plans_in_one_window_the_later_one_counts() -> None:
    scenario = recorded(
        detail(0, reason("a", asked=1)),
        detail(1, reason("a", asked=2), capacity=1000),
        detail(1, reason("a", asked=5), after_ms=10_000, capacity=900),
        detail(2, reason("a", asked=6), capacity=900),
    ).scenario
    assert demand(scenario, "a") == [1, 5, 6]
    assert scenario.events.capacities == {1: 900}


def test_members_come_and_go_as_they_did() -> None:
    early = detail(1, reason("new", rule=NEWCOMER, asked=0), whole=False, after_ms=-20_000)
    gone = detail(2, reason("b", rule=LEFT, asked=0), whole=False, after_ms=-20_000)
    silent = reason("killed", asked=4, rule="silent")
    found = recorded(
        detail(0, reason("a"), reason("b"), reason("killed", asked=4), reason("c")),
        early,
        detail(1, reason("a"), reason("b"), reason("killed", asked=4), reason("new", asked=9)),
        gone,
        detail(2, reason("a"), silent, reason("new", asked=9), reason("late", asked=3)),
        detail(3, reason("a"), silent, reason("new", asked=9), reason("late", asked=3)),
    )
    scenario = found.scenario
    assert life(scenario, "a") == (0, None, False)
    assert life(scenario, "new") == (1, None, False)
    assert life(scenario, "late") == (2, None, False)
    assert life(scenario, "b") == (0, 2, False)
    assert life(scenario, "c") == (0, 1, False)
    assert life(scenario, "killed") == (0, 2, True)
    assert demand(scenario, "new")[1:] == [9, 9, 9]


def test_whose_demand_was_never_recorded_is_left_out_and_counted() -> None:
    brief = detail(1, reason("brief", rule=NEWCOMER), whole=False)
    dead = reason("dead", rule="silent")
    more = replace(detail(2, reason("a"), dead), left_out=3)
    found = recorded(detail(0, reason("a"), dead), brief, more)
    assert [plan.host for plan in found.scenario.members] == ["a"]
    assert found.unknown_members == 2 + 3


def test_capacities_change_when_they_did() -> None:
    scenario = recorded(
        *(
            detail(number, reason("a"), capacity=capacity)
            for number, capacity in enumerate((100, 100, 50, 50, 100))
        )
    ).scenario
    assert scenario.capacity == 100
    assert scenario.events.capacities == {2: 50, 4: 100}


def test_too_little_too_much_and_other_windows_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"1 rounds with members .* two and more"):
        recorded(detail(0, reason("a")))
    with pytest.raises(ConfigurationError, match="changed from 60 s to 10 s"):
        recorded(detail(0, reason("a")), replace(detail(1, reason("a")), window_seconds=10))
    monkeypatch.setattr(module, "VALUES_MAX", 3)
    with pytest.raises(ConfigurationError, match="2 windows of 2 members are too much"):
        recorded(*(detail(number, reason("a"), reason("b")) for number in range(2)))


def test_the_same_past_by_another_strategy() -> None:
    rounds = [detail(number, reason("a", asked=200), reason("b", asked=800)) for number in range(8)]
    served = {}
    for strategy in (Strategy.EQUAL, Strategy.MAX_MIN):
        policy = Policy(strategy=strategy, newcomer_reserve_points=0)
        simulation = Simulation(recorded(*rounds, policy=policy).scenario, 1)
        views = list(simulation.steps())
        assert not simulation.outcome.over
        assert not simulation.outcome.broken
        served[strategy] = views[-1].served
    assert served == {Strategy.EQUAL: 700, Strategy.MAX_MIN: 1000}


@pytest.mark.parametrize("rule", [WeightRule(4, "b*"), WeightRule(4, None, "night")])
def test_the_same_past_by_other_weights(rule: WeightRule) -> None:
    rounds = [
        replace(
            detail(
                number,
                *(reason("batch", asked=1000), reason("web-1", asked=100)),
                reason("web-2", asked=200),
                capacity=500,
            ),
            groups=("night", None, None),
        )
        for number in range(8)
    ]

    def served(policy: Policy) -> list[int]:
        simulation = Simulation(recorded(*rounds, policy=policy).scenario, 1)
        list(simulation.steps())
        return [simulation.outcome.hosts[host].served[-1] for host in ("batch", "web-1", "web-2")]

    policy = Policy(newcomer_reserve_points=0)
    assert served(policy) == [200, 100, 200]
    batch, *web = served(replace(policy, weights=(rule,)))
    assert batch >= 4 * max(web) > 4 * 82
    assert batch + sum(web) == 500


async def test_rounds_that_ran_are_run_again_from_what_history_kept_of_them() -> None:
    """A fleet of three, one of which leaves: kept by real rounds, replayed by the simulator."""
    world = await World().prepare()
    await world.repository.put_destination(
        Destination(NAME, 100, 10, Policy(newcomer_reserve_points=0))
    )
    for number in range(6):
        await world.report("a", used=30)
        await world.report("b", used=60)
        if number < 3:
            await world.report("c", used=5)
        if number == 3:
            await world.report("c", state=MemberState.LEAVING)
        await world.run()
        world.pass_rounds(1)
    recording = Recording(NAME)
    for entry in await world.repository.load_details(NAME, from_ms=0, until_ms=2 * T0, limit=99):
        recording.add(entry)
    scenario = recording.replay(Policy(newcomer_reserve_points=0)).scenario
    assert (scenario.windows, scenario.window_seconds, scenario.capacity) == (6, 10, 100)
    assert demand(scenario, "a") == [30] * 6
    assert life(scenario, "c") == (0, 3, False)
    simulation = Simulation(scenario, 1)
    views = list(simulation.steps())
    assert [view.served for view in views[2:]] == [95, 90, 90, 90]
    assert not simulation.outcome.over
    assert not simulation.outcome.broken


def test_plans_stand_in_order_and_equal_records_give_equal_scenarios() -> None:
    def hosts(members: Sequence[MemberPlan]) -> list[str]:
        return [plan.host for plan in members]

    rounds = [detail(number, *(reason(host) for host in "cab")) for number in range(2)]
    assert hosts(recorded(*rounds).scenario.members) == ["a", "b", "c"]
