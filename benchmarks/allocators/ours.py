"""This project on the same inputs: the real planner and the real engine, by the simulation.

Decides nothing about shares; measures the processor time of each regular round, which here means
everything between the reports and a checked document: demand, strategy, holds, layout, invariants.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from balancer.core.model import RoundKind
from balancer.simulation.run import Simulation
from balancer.simulation.scenario import Scenario, TimetableKind
from balancer.simulation.service import SimulatedBalancer
from benchmarks.allocators.fleet import Run


class TimedBalancer(SimulatedBalancer):
    """The simulated service, timing its rounds."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario, scenario.capacity)
        self.planning_seconds: list[float] = []

    def round(self, kind: RoundKind, now_ms: int) -> None:
        """Run a round as ever."""
        start = time.thread_time()
        super().round(kind, now_ms)
        if kind is RoundKind.REGULAR:
            self.planning_seconds.append(time.thread_time() - start)


def run(scenario: Scenario, policy: Mapping[str, Any], seed: int, *, half_late: bool) -> Run:
    """Run a scenario under a policy of this project's.

    Args:
        scenario: the input.
        policy: what differs from the scenario's.
        seed: of the lost reads.
        half_late: half of all reads are lost, drawn anew in each round: the reader has what it
            read before, which covers the next window only by its safe points.
    """
    changed = replace(
        scenario,
        policy=replace(scenario.policy, **policy),
        timetable=TimetableKind.WINDOW,  # a round knows exactly the window before, as the others'
    )
    if half_late:
        changed = replace(changed, faults=replace(changed.faults, lost_reads=0.5))
    simulation = Simulation(changed, seed)
    balancer = TimedBalancer(changed)
    simulation.balancer = balancer
    for _view in simulation.steps():
        pass
    outcome = simulation.outcome
    return Run(outcome.figures, outcome.moved_points, balancer.planning_seconds)
