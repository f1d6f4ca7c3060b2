"""Faults of dividing: sums that are off by one, nothing known yet, the edge of a life."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest

from balancer.core.memory import Memory
from balancer.core.model import (
    Destination,
    MemberRecord,
    Plan,
    Policy,
    RoundKind,
    Snapshot,
    Strategy,
    Usage,
    WeightRule,
)
from balancer.core.planner import plan
from tests.support.fakes_repository import FakeRepository
from tests.unit.test_cycle import NAME, World
from worker_sdk.wire.distribution import DestinationShares, Document, encode_document
from worker_sdk.wire.shares import POINTS, interval_permits, share_points

T0 = 1_800_000_000_000
WINDOW_MS = 60_000
TTL_MS = 180_000
WINDOWS = range(30_000_000, 30_000_300)
STRATEGIES = list(Strategy)


def accounts(
    used: Mapping[str, int], denied: int = 0, *, age_ms: int = 0, at_ms: int = T0
) -> list[Usage]:
    """One account a host, of a whole window, each having used all that it was granted."""
    seen_ms = at_ms - age_ms
    return [
        Usage(
            host, "i", "db", seen_ms - WINDOW_MS, seen_ms, 0, amount, amount, denied, 0, 0, seen_ms
        )
        for host, amount in used.items()
    ]


def planned(
    usage: Sequence[Usage],
    capacity: int,
    strategy: Strategy = Strategy.MAX_MIN,
    *,
    now_ms: int = T0,
    memory: Memory | None = None,
    documents: tuple[Document, ...] = (),
    weights: tuple[WeightRule, ...] = (),
) -> Plan:
    policy = Policy(strategy=strategy, newcomer_reserve_points=0, weights=weights)
    snapshot = Snapshot(
        shard=0,
        kind=RoundKind.REGULAR,
        round_ms=WINDOW_MS,
        ttl_ms=TTL_MS,
        destinations=(Destination("db", capacity, 60, policy),),
        members=tuple(MemberRecord(row.host, "i", None, row.seen_ms, row.seen_ms) for row in usage),
        usage=tuple(usage),
        documents=documents,
        current_epoch=max((document.epoch for document in documents), default=0),
        epoch_floor=0,
    )
    return plan(snapshot, memory or Memory(), now_ms)


def document_of(outcome: Plan) -> Document:
    assert outcome.broken == ()
    assert outcome.document is not None
    return outcome.document


def line_of(outcome: Plan) -> DestinationShares:
    (line,) = document_of(outcome).destinations
    return line


def points_of(line: DestinationShares) -> dict[str, int]:
    return {entry.host: share_points(entry.intervals) for entry in line.entries}


def permits_in(line: DestinationShares, window: int, capacity: int) -> dict[str, int]:
    return {
        entry.host: sum(
            interval_permits(capacity, start, end, window) for start, end in entry.intervals
        )
        for entry in line.entries
    }


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("count", [3, 7, 30, 280])
def test_equal_hosts_get_equal_parts_that_sum_to_the_whole(count: int, strategy: Strategy) -> None:
    capacity = 100
    hosts = {f"h{number:03}": max(1, capacity // count) for number in range(count)}
    line = line_of(planned(accounts(hosts, denied=50), capacity, strategy))
    points = points_of(line)
    assert sum(points.values()) == POINTS
    assert max(points.values()) - min(points.values()) <= 1
    least = capacity // count
    for window in WINDOWS:
        permits = permits_in(line, window, capacity)
        assert sum(permits.values()) == capacity
        assert set(permits.values()) <= {least, least + 1}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("capacity", [0, 1, 2])
def test_a_pool_smaller_than_the_hosts_is_given_out_whole_and_goes_round(
    capacity: int, strategy: Strategy
) -> None:
    hosts = dict.fromkeys("abcde", 1 if capacity else 0)
    line = line_of(planned(accounts(hosts, denied=5), capacity, strategy))
    served: dict[str, list[int]] = {host: [] for host in hosts}
    for window in WINDOWS:
        permits = permits_in(line, window, capacity)
        assert sum(permits.values()) == capacity
        assert set(permits.values()) <= {0, 1}
        for host, number in permits.items():
            served[host] += [window] * number
    if capacity == 0:
        assert served == {host: [] for host in hosts}
        return
    for windows in served.values():
        edges = [WINDOWS.start - 1, *windows, WINDOWS.stop]
        waits = [after - before for before, after in itertools.pairwise(edges)]
        assert max(waits) <= -(-len(hosts) // capacity) + 3


def by_demand() -> Plan:
    return planned(accounts({"a": 905, "b": 85, "c": 10}), 1000)


def by_weight(strategy: Strategy) -> Plan:
    weights = tuple(WeightRule(weight, host) for host, weight in zip("abc", WEIGHTS, strict=True))
    rows = accounts(dict.fromkeys("abc", 1000), denied=1000)
    return planned(rows, 1000, strategy, weights=weights)


WEIGHTS = (905, 85, 10)


@pytest.mark.parametrize(
    "divided",
    [by_demand, partial(by_weight, Strategy.MAX_MIN), partial(by_weight, Strategy.EQUAL)],
    ids=["demand", "weight, max_min", "weight, equal"],
)
def test_parts_of_905_85_and_10_are_exact_and_their_permits_sum_to_any_capacity(
    divided: Callable[[], Plan],
) -> None:
    line = line_of(divided())
    assert points_of(line) == {"a": 905_000_000, "b": 85_000_000, "c": 10_000_000}
    for window in WINDOWS:
        permits = permits_in(line, window, 100)
        assert sum(permits.values()) == 100  # rounding each alone would give 99 or 101
        assert permits["a"] in {90, 91}
        assert permits["b"] in {8, 9}
        assert permits["c"] == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_order_of_what_is_known_changes_no_byte_of_the_file(strategy: Strategy) -> None:
    hosts = {f"h{number:02}": number % 5 + 1 for number in range(50)}
    rows = accounts(hosts, denied=3)
    shuffled = rows[:]
    random.Random(7).shuffle(shuffled)
    first, second = planned(rows, 77, strategy), planned(shuffled, 77, strategy)
    assert encode_document(document_of(first)) == encode_document(document_of(second))
    # A second round on what the first left agrees too.
    again = [
        encode_document(
            document_of(
                planned(
                    given,
                    77,
                    strategy,
                    now_ms=T0 + WINDOW_MS,
                    memory=outcome.memory,
                    documents=(document_of(outcome),),
                )
            )
        )
        for given, outcome in ((rows, first), (shuffled, second))
    ]
    assert again[0] == again[1]


def test_an_account_lives_strictly_less_than_the_ttl_for_the_planner_too() -> None:
    usage = [
        *accounts({"a": 1}, age_ms=TTL_MS - 1),
        *accounts({"b": 1}, age_ms=TTL_MS),
        *accounts({"c": 1}, age_ms=TTL_MS + 1),
    ]
    line = line_of(planned(usage, 100))
    assert {entry.host for entry in line.entries} == {"a"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_with_nobody_known_nothing_breaks_and_the_first_host_gets_all(strategy: Strategy) -> None:
    assert line_of(planned([], 100, strategy)).entries == ()
    line = line_of(planned(accounts({"a": 1}), 100, strategy))
    assert points_of(line) == {"a": POINTS}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("denied", [0, 1])
def test_hosts_that_all_report_nothing_still_share_all(strategy: Strategy, denied: int) -> None:
    hosts = dict.fromkeys("abcde", 0)
    points = points_of(line_of(planned(accounts(hosts, denied), 100, strategy)))
    assert sum(points.values()) == POINTS
    assert max(points.values()) - min(points.values()) <= 1


async def test_an_empty_table_takes_its_first_host_at_once() -> None:
    world = await World().prepare()
    for _ in range(2):
        await world.run()
        world.pass_rounds(1)
    await world.report("a")
    await world.run(RoundKind.EARLY)
    entries = world.view.documents_of(0)[0].destinations[0].entries
    assert {entry.host: share_points(entry.intervals) for entry in entries} == {"a": POINTS}


Shares = dict[str, int]


async def busy_world() -> tuple[World, Shares]:
    """Five hosts of unlike demand, settled, with what the newest document gives them."""
    world = await World().prepare()
    world.clock.ms = T0
    for _ in range(8):
        await report_all(world)
        world.clock.ms += 6_000
        await world.run()
        world.clock.ms += 4_000
    return world, shares(world)


async def report_all(world: World) -> None:
    for number, host in enumerate("abcde"):
        await world.report(host, used=100 + 50 * number)


def shares(world: World) -> Shares:
    line = world.view.documents_of(0)[0].destinations[0]
    return {entry.host: share_points(entry.intervals) for entry in line.entries}


async def restarted(old: World, repository: FakeRepository) -> World:
    """Another process on the same store, some time after the old one was killed."""
    new = World(old.store.objects, repository)
    new.clock.ms = old.clock.ms + 5_000
    for destination in await old.repository.list_destinations():
        await repository.put_destination(destination)
    await new.take_lease("two")
    return new


async def test_a_restart_moves_no_share_of_workers_that_go_on() -> None:
    old, before = await busy_world()
    new = await restarted(old, old.repository)
    await report_all(new)
    told = await new.run()
    assert told.outcome == "published"
    assert "learning" not in told.sentence
    moved = [abs(points - before[host]) for host, points in shares(new).items()]
    assert max(moved) < POINTS // 20


async def test_a_restart_before_reports_are_read_repeats_what_workers_hold() -> None:
    old, before = await busy_world()
    new = await restarted(old, old.repository)
    new.pass_rounds(1)
    told = await new.run(current=False)
    assert (told.outcome, "learning" in told.sentence) == ("published", True)
    assert shares(new) == before


async def test_a_restart_on_an_empty_database_repeats_until_everybody_could_report() -> None:
    old, before = await busy_world()
    new = await restarted(old, FakeRepository())
    for _ in range(3):
        new.pass_rounds(1)
        await new.report("a", used=1)  # one of five is heard again; the others are not yet
        told = await new.run(current=False)
        assert (told.outcome, "learning" in told.sentence) == ("published", True)
        assert shares(new) == before
    assert set(before) == set("abcde")
    assert NAME in {line.terms.destination for line in new.view.documents_of(0)[0].destinations}
