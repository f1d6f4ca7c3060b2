"""What a run must reach, and whether it did.

Decides nothing about how a run goes. A run is safe if no window passed its bound and no plan broke
an invariant; that is demanded of every one and stands here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from balancer.errors import PolicyError
from balancer.simulation.outcome import summary
from balancer.simulation.results import Outcome
from balancer.simulation.scenario import Scenario
from worker_sdk.wire.shares import POINTS

SENTENCES_MAX = 5


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a scenario's figures must reach; what is None is not asked.

    All but the fullest window counts from the scenario's `measured_from_window` on, or, where the
    longest wait is meant, from the start.

    Attributes:
        least_served_over_ideal: of what was possible, so much at least was served.
        most_worst_window: the fullest window over its capacity.
        most_zero_windows: windows in a row in which a member with work was served nothing.
        most_moved_points: points of shares that a regular round moves.
        least_permits: host to permits that it uses in each window, at least.
    """

    least_served_over_ideal: float | None = None
    most_worst_window: float | None = 1.0
    most_zero_windows: int | None = None
    most_moved_points: int | None = None
    least_permits: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            PolicyError: naming the value.
        """
        part = self.least_served_over_ideal
        if part is not None and not 0 <= part <= 1:
            raise PolicyError(f"least_served_over_ideal is {part}; it must be from 0 to 1")


def broken_safety(outcome: Outcome) -> list[str]:
    """Return a sentence for each breach of safety, at most a few."""
    over = [
        f"window {window}: {outcome.figures.arrived[window]} permits were spent, "
        f"{outcome.views[window].bound} is the bound"
        for window in outcome.over
    ]
    broken = [f"a plan would have broken an invariant: {sentence}" for sentence in outcome.broken]
    return over[:SENTENCES_MAX] + broken[:SENTENCES_MAX]


def unmet(demanded: Requirements, scenario: Scenario, outcome: Outcome) -> list[str]:
    """Return a sentence for each demand that a finished run does not meet."""
    first = scenario.measured_from_window
    result = summary(outcome.figures, keeps_backlog=scenario.keeps_backlog, from_window=first)
    served, worst = result["served_over_ideal"], result["worst_window_over_capacity"]
    zero, moved = result["longest_zero_windows"], most_moved(scenario, outcome)
    found = []
    least = demanded.least_served_over_ideal
    if least is not None and isinstance(served, float) and served < least:
        found.append(f"served {served:.4f} of what was possible, {least} is demanded")
    most = demanded.most_worst_window
    if most is not None and isinstance(worst, float) and worst > most:
        found.append(f"the fullest window was at {worst:.4f} of the capacity, {most} is the most")
    longest = demanded.most_zero_windows
    if longest is not None and isinstance(zero, int) and zero > longest:
        found.append(f"a member with work got nothing for {zero} windows, {longest} are the most")
    points = demanded.most_moved_points
    if points is not None and moved is not None and moved > points:
        found.append(
            f"a round moved {moved / POINTS:.2%} of the capacity, {points / POINTS:.2%} is the most"
        )
    for host, permits in demanded.least_permits.items():
        account = outcome.hosts.get(host)
        used = (
            min((account.served_in(window) for window in range(first, scenario.windows)), default=0)
            if account is not None
            else 0
        )
        if used < permits:
            found.append(f"{host} used {used} permits in a window, {permits} are the least")
    return found


def most_moved(scenario: Scenario, outcome: Outcome) -> int | None:
    """Return the most points that a regular round moved in the measured part; None for none."""
    return max(
        (
            points
            for window, points in outcome.moved_points.items()
            if window >= scenario.measured_from_window
        ),
        default=None,
    )
