"""What the planner remembers of members from round to round, and its stored form.

Decides how peaks decay, what is expected by recurrence, the low-water mark, and how much is
kept. Safety never rests on it: what is still promised is read from documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from balancer.core.model import PERMILLE, Memory
from worker_sdk.wire.distribution import Member

RECENT_ROUNDS: Final = 3
"""The low-water mark and an expectation are the least of so many values."""

LAG_MIN, LAG_MAX = 2, 60
HISTORY_ROUNDS: Final = RECENT_ROUNDS * LAG_MAX
BUSIEST: Final = 10_000
"""So many (member, destination) pairs keep the longer history."""


@dataclass(slots=True)
class Trail:
    """One member's past with one destination; demands in permits a window, oldest first."""

    peak: int = 0
    instant_ms: int = 0
    served_window: int = 0
    enough: int = 0
    demands: list[int] = field(default_factory=list)

    def note(self, demand: int, instant_ms: int, decay_permille: int, *, enough: int) -> None:
        """Take one round's demand: a peak rises at once and decays by a factor a round."""
        self.enough = enough
        self.peak = max(demand, self.peak * decay_permille // PERMILLE)
        self.instant_ms = instant_ms
        self.demands = [*self.demands, demand][-HISTORY_ROUNDS:]

    def low_water(self) -> int:
        """Return the least demand of the last three rounds; 0 before there were three."""
        recent = self.demands[-RECENT_ROUNDS:]
        return min(recent) if len(recent) == RECENT_ROUNDS else 0

    def expected(self) -> int:
        """Return the demand of the next round by recurrence.

        The largest over all lags of the least of the last three values at that lag: timers make
        demand come back at one lag.
        """
        demands = self.demands
        best = 0
        for lag in range(LAG_MIN, min(LAG_MAX, len(demands) // RECENT_ROUNDS) + 1):
            least = min(demands[-lag], demands[-2 * lag], demands[-3 * lag])
            best = max(best, least)
        return best


Trails = dict[str, dict[Member, Trail]]
"""Destination to member to trail."""


def load_trails(memory: Memory) -> Trails:
    """Return the trails in ``memory``; whatever has not the known form is forgotten."""
    trails: Trails = {}
    destinations = memory.data.get("trails")
    if not isinstance(destinations, Mapping):
        return trails
    for name, rows in destinations.items():
        known: dict[Member, Trail] = {}
        if not isinstance(rows, list):
            continue
        for row in rows:
            trail = _load_row(row)
            if trail is not None:
                known[row[0], row[1]] = trail
        trails[name] = known
    return trails


def _load_row(row: object) -> Trail | None:
    match row:
        case [str(), str(), int(peak), int(instant), int(served), int(enough), list(demands)] if (
            all(isinstance(demand, int) for demand in demands)
        ):
            return Trail(peak, instant, served, enough, list(demands))
        case _:
            return None


def store_trails(trails: Trails) -> Memory:
    """Return the trails as memory, the longer history of the busiest alone."""
    data: dict[str, object] = {}
    peaks = sorted(
        (trail.peak for known in trails.values() for trail in known.values()), reverse=True
    )
    least_peak = peaks[BUSIEST] if len(peaks) > BUSIEST else -1
    for name, known in trails.items():
        data[name] = [
            [
                host,
                instance,
                trail.peak,
                trail.instant_ms,
                trail.served_window,
                trail.enough,
                trail.demands[-(HISTORY_ROUNDS if trail.peak > least_peak else RECENT_ROUNDS) :],
            ]
            for (host, instance), trail in known.items()
        ]
    return Memory({"trails": data})


def keep_only(known: dict[Member, Trail], members: Iterable[Member]) -> dict[Member, Trail]:
    """Return the trails of ``members``, a new one for whoever has none."""
    return {member: known.get(member) or Trail() for member in members}
