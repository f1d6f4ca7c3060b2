"""Runs drawn at random: whatever happens in them, no window passes its bound and no plan breaks."""

from __future__ import annotations

import random

import pytest

from balancer.core.model import Policy
from balancer.simulation.requirements import broken_safety
from balancer.simulation.run import Simulation
from balancer.simulation.scenario import (
    Events,
    Faults,
    MemberPlan,
    Scenario,
    Style,
    TimetableKind,
    constant,
    series,
)

WINDOWS = 30


def drawn(seed: int) -> Scenario:
    """Return a small run with members that come and go, faults, and things that happen."""
    draw = random.Random(seed)
    away = draw.randint(2, 20)
    timetable = draw.choice(list(TimetableKind))
    return Scenario(
        name=f"drawn {seed}",
        capacity=draw.choice([0, 1, 3, 17, 100, 400, 5000]),
        windows=WINDOWS,
        members=tuple(member(draw, number) for number in range(draw.randint(1, 25))),
        policy=Policy(
            newcomer_reserve_points=draw.choice([0, 10_000_000]),
            valid_for_seconds=draw.choice([None, 60, 600]),
        ),
        keeps_backlog=draw.random() < 0.5,
        round_windows=1 if timetable is TimetableKind.SERVICE else draw.choice([1, 1, 2]),
        faults=Faults(
            lost_reads=draw.choice([0, 0.1, 0.5]),
            lost_reports=draw.choice([0, 0.1, 0.5]),
            doubled_reports=draw.choice([0, 0.3]),
            delay_rounds=draw.choice([1, 1, 2, 4]),
            skew_ms=draw.choice([0, 100, 120]),
        ),
        events=Events(
            balancer_away=((away, away + draw.randint(1, 8)),) if draw.random() < 0.4 else (),
            capacities={
                draw.randint(1, WINDOWS - 2): draw.choice([0, 1, 50, 300, 6000])
                for _ in range(draw.randint(0, 3))
            },
            lost_memory=tuple(draw.randint(1, WINDOWS - 2) for _ in range(draw.randint(0, 2))),
        ),
        timetable=timetable,
    )


def member(draw: random.Random, number: int) -> MemberPlan:
    joins = draw.choice([0, 0, 0, draw.randint(0, 20)])
    most = draw.choice([1, 5, 60, 500])
    return MemberPlan(
        host=f"host-{draw.randint(0, number)}",
        demand=series(
            tuple(draw.randint(0, most) if draw.random() < 0.7 else 0 for _ in range(WINDOWS))
        ),
        joins_window=joins,
        leaves_window=draw.choice([None, None, draw.randint(joins + 1, WINDOWS)]),
        is_killed=draw.random() < 0.4,
        style=draw.choice([Style.ASKING, Style.ASKING, Style.BLOCKING]),
    )


def check(seed: int) -> None:
    simulation = Simulation(drawn(seed), seed)
    for _ in simulation.steps():
        pass
    assert broken_safety(simulation.outcome) == [], f"seed {seed}"
    assert simulation.outcome.figures.share_sum_points <= 10**9, f"seed {seed}"


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_no_window_passes_its_bound(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_window_passes_its_bound_in_many_runs() -> None:
    for seed in range(30, 5000):
        check(seed)


@pytest.mark.parametrize("timetable", TimetableKind)
def test_a_capacity_set_while_the_balancer_is_away_is_known_to_nobody_yet(
    timetable: TimetableKind,
) -> None:
    scenario = Scenario(
        "away",
        1000,
        20,
        tuple(MemberPlan(f"host-{number}", constant(300)) for number in range(5)),
        policy=Policy(valid_for_seconds=1200),
        events=Events(balancer_away=((5, 10),), capacities={7: 100}),
        timetable=timetable,
    )
    simulation = Simulation(scenario, 1)
    views = list(simulation.steps())
    assert broken_safety(simulation.outcome) == []
    assert [view.capacity for view in views[5:10]] == [1000] * 5
    assert min(view.served for view in views[6:10]) > 500
    assert views[-1].capacity == 100
    assert views[-1].served <= 100


def test_what_was_promised_binds_in_windows_that_no_document_covers_too() -> None:
    scenario = Scenario(
        "closing",
        100,
        12,
        tuple(MemberPlan(f"host-{number}", constant(50)) for number in range(10)),
        policy=Policy(valid_for_seconds=600),
        faults=Faults(lost_reads=0.5),
        events=Events(balancer_away=((5, 9),), capacities={4: 0}),
    )
    simulation = Simulation(scenario, 1)
    views = list(simulation.steps())
    assert broken_safety(simulation.outcome) == []
    # Members that have not read of the closing spend what the document before lets them.
    assert 0 < views[6].served <= views[6].bound <= 100
    assert views[6].capacity == 0
