"""How the built-in scenarios are made from a seed and a number of windows.

Decides who takes part, with what demand and what happens when; equal seeds give equal scenarios.
What is demanded of each stands in the catalogue.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from balancer.core.model import Policy
from balancer.simulation.demand_shapes import daily, steps, uneven_parts, wavering
from balancer.simulation.scenario import (
    Events,
    Faults,
    MemberPlan,
    Scenario,
    Style,
    constant,
)

FLEET: Final = 800
MOVED_A_MINUTE: Final = 12
"""Of 800 members: 1.5 %."""

DAY_WINDOWS: Final = 1440
NO_RESERVE: Final = Policy(newcomer_reserve_points=0)

Build = Callable[[int, int], Scenario]
"""Seed and windows to a scenario."""


def two_hosts(_seed: int, windows: int) -> Scenario:
    """Return the founding example: of a capacity of 1,000 one host needs 200, one 800."""
    members = (MemberPlan("host-a", constant(200)), MemberPlan("host-b", constant(800)))
    return Scenario(
        "two-hosts",
        1000,
        windows,
        members,
        policy=NO_RESERVE,
        keeps_backlog=True,
        measured_from_window=3,
    )


STEP_WINDOW: Final = 10


def step(name: str, capacity: int, policy: Policy) -> Build:
    """Return a scenario of 100 members whose even demand becomes 5 x 15,000 + 95 x 200."""

    def build(_seed: int, windows: int) -> Scenario:
        members = tuple(
            MemberPlan(
                f"host-{number:02}",
                steps([(0, capacity // 100), (STEP_WINDOW, 15_000 if number < 5 else 200)]),
            )
            for number in range(100)
        )
        # The round at the end of the step's own window is the first to know of it.
        first = STEP_WINDOW + 2
        return Scenario(name, capacity, windows, members, policy=policy, measured_from_window=first)

    return build


WAKES_WINDOW: Final = 20


def waking(_seed: int, windows: int) -> Scenario:
    """Return 50 saturated members, and one that is idle for 15 rounds and more, then wakes."""
    members = [MemberPlan(f"busy-{number:02}", constant(1000)) for number in range(50)]
    members.append(MemberPlan("sleeper", steps([(WAKES_WINDOW, 1000)])))
    return Scenario(
        "waking", 10_000, windows, tuple(members), measured_from_window=WAKES_WINDOW + 3
    )


def churn(name: str, load: float, killed_part: float) -> Build:
    """Return 800 members of which 1.5 % leave and as many join a minute; work is kept.

    Args:
        name: of the scenario.
        load: demand of all over the capacity.
        killed_part: part of leavers that say no goodbye.
    """

    def build(seed: int, windows: int) -> Scenario:
        draw = random.Random(seed)  # noqa: S311 - a simulation must be repeatable
        capacity = 100_000
        live = [
            MemberPlan(f"host-{number}", constant(part))
            for number, part in enumerate(uneven_parts(int(capacity * load), FLEET, seed))
        ]
        gone = []
        for window in range(2, windows):
            for place in draw.sample(range(FLEET), MOVED_A_MINUTE):
                leaver = replace(
                    live[place], leaves_window=window, is_killed=draw.random() < killed_part
                )
                gone.append(leaver)
                # Another process takes its part of the work, under a name of its own.
                number = FLEET + len(gone)
                live[place] = MemberPlan(f"host-{number}", leaver.demand, joins_window=window)
        return Scenario(
            name,
            capacity,
            windows,
            tuple(sorted((*gone, *live), key=lambda plan: plan.joins_window)),
            keeps_backlog=True,
            measured_from_window=10,
        )

    return build


RESTART_WINDOW: Final = 10


def restart(name: str, load: float) -> Build:
    """Return 800 members that are all replaced within ten minutes, eighty a minute.

    Args:
        name: of the scenario.
        load: demand of all over the capacity.
    """

    def build(seed: int, windows: int) -> Scenario:
        capacity = 100_000
        members: list[MemberPlan] = []
        for number, part in enumerate(uneven_parts(int(capacity * load), FLEET, seed)):
            window = RESTART_WINDOW + number // (FLEET // 10)
            old = MemberPlan(f"host-{number}", constant(part), leaves_window=window)
            new = MemberPlan(f"host-{number}-new", old.demand, joins_window=window)
            members += [old, new]
        return Scenario(
            name,
            capacity,
            windows,
            tuple(members),
            keeps_backlog=True,
            measured_from_window=RESTART_WINDOW,
        )

    return build


AWAY_WINDOW: Final = 10
OUTAGE_WINDOWS: Final = 30
EXPIRED_WINDOWS: Final = 70


def outage(name: str, away_windows: int, policy: Policy) -> Build:
    """Return 100 saturated members at three times the capacity that lose their balancer."""

    def build(seed: int, windows: int) -> Scenario:
        members = tuple(
            MemberPlan(f"host-{number:02}", constant(part))
            for number, part in enumerate(uneven_parts(30_000, 100, seed))
        )
        return Scenario(
            name,
            10_000,
            windows,
            members,
            policy=policy,
            # The round before covers one more window; the first one uncovered is the next.
            events=Events(balancer_away=((AWAY_WINDOW, AWAY_WINDOW + away_windows),)),
            measured_from_window=AWAY_WINDOW + 1,
        )

    return build


def noise(name: str, load: float) -> Build:
    """Return 100 members whose demand wavers by 5 % up or down."""

    def build(seed: int, windows: int) -> Scenario:
        members = tuple(
            MemberPlan(f"host-{number:02}", wavering(constant(part), 0.05, seed * 1000 + number))
            for number, part in enumerate(uneven_parts(int(100_000 * load), 100, seed))
        )
        return Scenario(name, 100_000, windows, members, measured_from_window=10)

    return build


def hot_set(name: str, window_seconds: int, policy: Policy | None = None) -> Build:
    """Return 100 members of which 25 want everything, others in each minute."""
    windows_a_minute = 60 // window_seconds

    def build(seed: int, windows: int) -> Scenario:
        draw = random.Random(seed)  # noqa: S311 - a simulation must be repeatable
        minutes = -(-windows // windows_a_minute)
        hot = [frozenset(draw.sample(range(100), 25)) for _ in range(minutes)]
        capacity = 12_000 // windows_a_minute

        def wants(number: int) -> Callable[[int], int]:
            return lambda window: capacity // 25 if number in hot[window // windows_a_minute] else 0

        members = tuple(MemberPlan(f"host-{number:02}", wants(number)) for number in range(100))
        return Scenario(
            name,
            capacity,
            windows,
            members,
            window_seconds=window_seconds,
            policy=policy or Policy(),
            measured_from_window=windows_a_minute,
        )

    return build


def blocking(_seed: int, windows: int) -> Scenario:
    """Return 20 members, each a single thread that waits for every permit."""
    members = tuple(
        MemberPlan(f"host-{number:02}", constant(120 if number < 5 else 40), style=Style.BLOCKING)
        for number in range(20)
    )
    return Scenario("blocking", 1000, windows, members, measured_from_window=5)


def rotation(_seed: int, windows: int) -> Scenario:
    """Return 100 members with work for 50 permits a window."""
    members = tuple(MemberPlan(f"host-{number:02}", constant(2)) for number in range(100))
    return Scenario("rotation", 50, windows, members, policy=NO_RESERVE, measured_from_window=3)


LATE_STEP_WINDOW: Final = 15


def late_reports(seed: int, windows: int) -> Scenario:
    """Return 50 members whose reports come two rounds late, and whose demand changes sides once."""
    parts = uneven_parts(9_000, 50, seed)
    members = tuple(
        MemberPlan(f"host-{number:02}", steps([(0, part), (LATE_STEP_WINDOW, parts[-1 - number])]))
        for number, part in enumerate(parts)
    )
    return Scenario(
        "late-reports",
        10_000,
        windows,
        members,
        faults=Faults(delay_rounds=2),
        measured_from_window=LATE_STEP_WINDOW + 8,
    )


def capacity_change(seed: int, windows: int) -> Scenario:
    """Return 100 members whose destination's capacity falls, rises, closes and opens again."""
    members = tuple(
        MemberPlan(f"host-{number:02}", constant(part))
        for number, part in enumerate(uneven_parts(12_000, 100, seed))
    )
    return Scenario(
        "capacity-change",
        10_000,
        windows,
        members,
        events=Events(capacities={10: 4_000, 20: 15_000, 30: 0, 35: 10_000}),
        measured_from_window=2,
    )


def day(seed: int, windows: int) -> Scenario:
    """Return 800 members over a day, each with its own hour of most work."""
    draw = random.Random(seed)  # noqa: S311 - a simulation must be repeatable
    members = tuple(
        MemberPlan(
            f"host-{number}",
            wavering(
                daily(part, draw.randrange(DAY_WINDOWS), DAY_WINDOWS, 0.9), 0.3, seed + number
            ),
        )
        for number, part in enumerate(uneven_parts(90_000, FLEET, seed))
    )
    return Scenario("day", 100_000, windows, members, measured_from_window=3)
