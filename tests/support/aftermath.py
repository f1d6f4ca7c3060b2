"""What must hold when all trouble is over: the liveness of invariants 4, 6 and 10.

Nobody with demand starves, the capacity set is in force and used, no hold has leaked, steady load
moves nothing, and whoever wakes has its max-min share within three rounds.
"""

from __future__ import annotations

from tests.support.adversary import CALM, tick
from tests.support.world import Worker, World
from worker_sdk.wire.distribution import DestinationShares, Member
from worker_sdk.wire.shares import share_points

NEARLY_PERCENT = 95
"""Whoever wakes gets so much of its part of what is planned."""


def check_calm(world: World, seed: int, *, wakes: bool = False) -> None:
    """Check a world after a calm in which everybody asked for more than there is."""
    alive = [worker for worker in world.workers if worker.alive]
    if not alive:
        return
    for name in world.destinations:
        check_destination(world, name, alive, f"seed {seed}: {name}")
    if wakes and len(alive) > 1:
        check_waking(world, alive, f"seed {seed}")


def check_destination(world: World, name: str, alive: list[Worker], told: str) -> None:
    capacity = world.destinations[name].capacity
    lines = [
        line
        for document in world.shard(name).published[-3:]
        for line in document.destinations
        if line.terms.destination == name
    ]
    newest = lines[-1]
    rounds = max(1, world.setup.round_ms // (newest.terms.window_seconds * 1000))
    last = world.window(name) - 1
    assert newest.terms.capacity == capacity, f"{told}: the capacity set is not in force"
    assert newest.holds == (), f"{told}: a hold leaked"
    if capacity >= len(alive):
        first = points_of(lines[0])
        assert all(points_of(line) == first for line in lines), f"{told}: steady load moves"
    patience = -(-len(alive) // capacity) + 3 * rounds
    # Of a window much longer than a round there were fewer than that since the trouble.
    if patience * newest.terms.window_seconds <= 100:
        for worker in alive:
            served = sum(worker.spent[name, window] for window in range(last - patience, last + 1))
            assert served > 0, f"{told}: {worker.engine.host} starved"
    spent = world.spent[name, last]
    assert spent <= capacity, f"{told}: over"
    if capacity >= 20:
        assert spent >= capacity * 9 // 10, f"{told}: left lying"
        for worker in alive:
            served = worker.spent[name, last]
            fair = fair_permits(world, name, len(alive))
            assert served >= fair - 1, f"{told}: {worker.engine.host} has {served} of {fair}"


def points_of(line: DestinationShares) -> dict[Member, int]:
    return {entry.member: share_points(entry.intervals) for entry in line.entries}


def fair_permits(world: World, name: str, count: int) -> int:
    """Return what each of so many alike gets of what is planned."""
    reserve = world.setup.policy.newcomer_reserve_points
    return world.destinations[name].capacity * (1_000_000_000 - reserve) // 1_000_000_000 // count


def check_waking(world: World, alive: list[Worker], told: str) -> None:
    """Let one sleep, and see that three rounds after that in which it wakes it has its share."""
    sleeper = alive[0]
    demand, sleeper.demand = sleeper.demand, 0
    round_ticks = world.setup.round_ms // 1000
    for _ in range(6 * round_ticks):
        tick(world, CALM)
    while world.tick_number % round_ticks:
        tick(world, CALM)
    sleeper.demand = demand
    for _ in range(4 * round_ticks):
        tick(world, CALM)
    for name, known in world.destinations.items():
        if known.window_seconds * 1000 > world.setup.round_ms or known.capacity < 20:
            continue
        served = sleeper.spent[name, world.window(name) - 1]
        fair = fair_permits(world, name, len(alive))
        least = fair * NEARLY_PERCENT // 100 - 1
        assert served >= least, f"{told}: {name} gives one that woke {served} of {fair}"
