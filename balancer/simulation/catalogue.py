"""The built-in scenarios: what each is for and what is demanded of it.

Decides the one table that the command, the tests and the documentation read. Every scenario is made
anew from a seed and a number of windows; equal ones are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from balancer.core.model import PERCENT_POINTS, Policy
from balancer.simulation import builders
from balancer.simulation.builders import (
    AWAY_WINDOW,
    DAY_WINDOWS,
    EXPIRED_WINDOWS,
    LATE_STEP_WINDOW,
    NO_RESERVE,
    OUTAGE_WINDOWS,
    RESTART_WINDOW,
    STEP_WINDOW,
    WAKES_WINDOW,
    Build,
)
from balancer.simulation.requirements import Requirements
from balancer.simulation.scenario import Scenario
from worker_sdk.errors import ConfigurationError
from worker_sdk.wire.distribution import OnExpiry
from worker_sdk.wire.shares import POINTS


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A scenario of the catalogue.

    Attributes:
        description: one line for people.
        build: makes it.
        windows: its usual length.
        demanded: what its figures must reach at that length.
        least_windows: a shorter run does not contain what it is about.
    """

    description: str
    build: Build
    windows: int
    demanded: Requirements
    least_windows: int = 1

    def make(self, seed: int, windows: int | None = None) -> Scenario:
        """Return the scenario.

        Args:
            seed: of everything drawn.
            windows: length; None for the usual one.

        Raises:
            ConfigurationError: where it is too short.
        """
        if windows is not None and windows < self.least_windows:
            raise ConfigurationError(
                f"--windows {windows}: this scenario needs {self.least_windows} or more"
            )
        return self.build(seed, self.windows if windows is None else windows)


def scenario_named(name: str) -> BuiltIn:
    """Return a scenario of the catalogue.

    Raises:
        ConfigurationError: naming those that there are.
    """
    if name not in CATALOGUE:
        raise ConfigurationError(
            f"--scenario {name}: there is none of that name; there are {', '.join(CATALOGUE)}"
        )
    return CATALOGUE[name]


CATALOGUE: Final[Mapping[str, BuiltIn]] = {
    "two-hosts": BuiltIn(
        "one host needs 20 % of the capacity, one 80 %: an even split lets 70 % through",
        builders.two_hosts,
        24,
        Requirements(least_served_over_ideal=1.0, most_zero_windows=0),
        least_windows=5,
    ),
    "step": BuiltIn(
        "100 members, capacity 100,000: even demand becomes 5 x 15,000 + 95 x 200 at once",
        builders.step("step", 100_000, Policy()),
        30,
        Requirements(least_served_over_ideal=0.95, most_zero_windows=0),
        least_windows=STEP_WINDOW + 4,
    ),
    "step-scarce": BuiltIn(
        "the same with a capacity of 40,000: max-min to within one permit",
        builders.step("step-scarce", 40_000, NO_RESERVE),
        30,
        Requirements(
            least_served_over_ideal=0.999,
            most_zero_windows=0,
            least_permits={
                f"host-{number:02}": 4_199 if number < 5 else 199 for number in range(100)
            },
        ),
        least_windows=STEP_WINDOW + 4,
    ),
    "waking": BuiltIn(
        "a member idle for 15 rounds and more wakes among 50 saturated ones",
        builders.waking,
        40,
        # 95 % of 10,000 less the reserve of 1 %, over 51 members.
        Requirements(most_zero_windows=3, least_permits={"sleeper": 184}),
        least_windows=WAKES_WINDOW + 5,
    ),
    "churn": BuiltIn(
        "800 members at 1.3 x the capacity, 1.5 % leaving and joining a minute, one in ten killed",
        builders.churn("churn", 1.3, 0.1),
        60,
        Requirements(least_served_over_ideal=0.97),
        least_windows=15,
    ),
    "churn-at-capacity": BuiltIn(
        "the same with demand equal to the capacity",
        builders.churn("churn-at-capacity", 1.0, 0.1),
        60,
        Requirements(least_served_over_ideal=0.96),
        least_windows=15,
    ),
    "churn-killed": BuiltIn(
        "the same at 1.3 x the capacity, every leaver killed",
        builders.churn("churn-killed", 1.3, 1.0),
        60,
        Requirements(least_served_over_ideal=0.91),
        least_windows=15,
    ),
    "restart": BuiltIn(
        "all of 800 members at 1.3 x the capacity replaced within ten minutes",
        builders.restart("restart", 1.3),
        25,
        Requirements(least_served_over_ideal=0.955),
        least_windows=RESTART_WINDOW + 10,
    ),
    "restart-at-capacity": BuiltIn(
        "the same with demand equal to the capacity",
        builders.restart("restart-at-capacity", 1.0),
        25,
        Requirements(least_served_over_ideal=0.94),
        least_windows=RESTART_WINDOW + 10,
    ),
    "outage": BuiltIn(
        "no balancer for 30 minutes at three times the capacity, shares valid for 45 minutes",
        builders.outage("outage", OUTAGE_WINDOWS, Policy(valid_for_seconds=2700)),
        AWAY_WINDOW + OUTAGE_WINDOWS + 1,
        Requirements(least_served_over_ideal=0.8),
        least_windows=AWAY_WINDOW + 3,
    ),
    "expiry": BuiltIn(
        "no balancer for longer than shares are valid: half of what is safe for ten minutes more",
        builders.outage(
            "expiry",
            EXPIRED_WINDOWS,
            Policy(valid_for_seconds=2700, on_expiry=OnExpiry(permille=500, for_ms=600_000)),
        ),
        AWAY_WINDOW + EXPIRED_WINDOWS + 10,
        Requirements(),
        least_windows=AWAY_WINDOW + 3,
    ),
    "noise": BuiltIn(
        "100 members whose demand wavers by 5 %, below the capacity",
        builders.noise("noise", 0.9),
        40,
        Requirements(least_served_over_ideal=0.99, most_moved_points=2 * PERCENT_POINTS),
        least_windows=15,
    ),
    "noise-saturated": BuiltIn(
        "the same above the capacity",
        builders.noise("noise-saturated", 1.2),
        40,
        Requirements(least_served_over_ideal=0.98, most_moved_points=2 * PERCENT_POINTS),
        least_windows=15,
    ),
    "hot-set": BuiltIn(
        "25 of 100 members want everything, others each minute: the last minute tells nothing",
        builders.hot_set("hot-set", 60),
        60,
        Requirements(least_served_over_ideal=0.22),
        least_windows=10,
    ),
    "hot-set-short-rounds": BuiltIn(
        "the same with windows, rounds and flushes of 10 s",
        builders.hot_set("hot-set-short-rounds", 10),
        120,
        Requirements(least_served_over_ideal=0.6),
        least_windows=24,
    ),
    "hot-set-lent": BuiltIn(
        "the same in minutes, where nine tenths are lent within the window",
        builders.hot_set("hot-set-lent", 60, Policy(lend_points=9 * POINTS // 10)),
        30,
        Requirements(least_served_over_ideal=0.85),
        least_windows=10,
    ),
    "blocking": BuiltIn(
        "20 members, each a single thread that waits for every permit",
        builders.blocking,
        30,
        Requirements(least_served_over_ideal=0.95),
        least_windows=10,
    ),
    "rotation": BuiltIn(
        "50 permits a window over 100 members",
        builders.rotation,
        60,
        Requirements(least_served_over_ideal=0.95, most_zero_windows=5),
        least_windows=10,
    ),
    "late-reports": BuiltIn(
        "reports come two rounds late, demand changes sides once",
        builders.late_reports,
        50,
        Requirements(least_served_over_ideal=0.98, most_moved_points=2 * PERCENT_POINTS),
        least_windows=LATE_STEP_WINDOW + 10,
    ),
    "capacity-change": BuiltIn(
        "the capacity falls, rises, is 0 for five minutes and comes back",
        builders.capacity_change,
        45,
        Requirements(least_served_over_ideal=0.9),
        least_windows=40,
    ),
    "day": BuiltIn(
        "800 members over a day of 1,440 windows, each with its own hour of most work",
        builders.day,
        DAY_WINDOWS,
        Requirements(least_served_over_ideal=0.93),
        least_windows=10,
    ),
}
"""Name to scenario."""
