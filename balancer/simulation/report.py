"""A finished run as JSON: the summary beside the even split, and the hosts that matter most.

Decides the keys of the JSON and which hosts are named. Knows no terminal.
"""

from __future__ import annotations

import heapq

from balancer.simulation.outcome import Figures, HostAccount, summary
from balancer.simulation.requirements import Requirements, broken_safety, unmet
from balancer.simulation.results import Outcome
from balancer.simulation.scenario import Scenario


def report(
    scenario: Scenario, outcome: Outcome, *, seed: int, demanded: Requirements | None = None
) -> dict[str, object]:
    """Return the summary of a run.

    Args:
        scenario: what was run.
        outcome: what came of it.
        seed: of the run.
        demanded: what its figures must reach; None where nothing is demanded.
    """

    def summed(figures: Figures) -> dict[str, object]:
        return summary(
            figures,
            keeps_backlog=scenario.keeps_backlog,
            from_window=scenario.measured_from_window,
        )

    result = summed(outcome.figures)
    result["even_split"] = summed(outcome.even)
    result["seed"] = seed
    result["strategy"] = scenario.policy.strategy.value
    result["timetable"] = scenario.timetable.value
    result["measured_from_window"] = scenario.measured_from_window
    result["broken"] = broken_safety(outcome)
    result["unmet"] = [] if demanded is None else unmet(demanded, scenario, outcome)
    return result


def most_in_need(outcome: Outcome, count: int) -> list[HostAccount]:
    """Return the hosts that went without most, then those that wanted most."""

    def need(account: HostAccount) -> tuple[int, int]:
        wanted = sum(account.wanted)
        return max(0, wanted - sum(account.served)), wanted

    return heapq.nlargest(count, outcome.hosts.values(), key=need)
