"""What replicas tell one another: the worst lag of all readers, and who came or left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from balancer.app.peers import FORGET_MS, Peers, Reader, look_ms, worst_lag_ms
from balancer.core.learning import IngestView, ingest_is_current
from balancer.errors import UnavailableError
from tests.support.fakes_repository import FakeRepository
from tests.support.service_doubles import T0

ROUND_MS = 600  # a look each tenth of a second
CURRENT = IngestView(T0, 0, caught_up=True)


def reader(name: str, silent_ms: int, lag_ms: int, *partitions: int) -> Reader:
    return Reader(name, T0 - silent_ms, lag_ms, partitions)


@pytest.mark.parametrize(
    ("readers", "lag_ms"),
    [
        ([], 0),
        ([reader("b", 10, 70_000, 1)], 70_010),
        ([reader("b", 10, 0, 1), reader("c", 20, 500, 2)], 520),
        ([reader("dead", 90_000, 0, 1)], 90_000),  # nobody reads it since
        ([reader("dead", 90_000, 0, 1), reader("b", 10, 0, 2)], 90_000),
        ([reader("dead", 90_000, 0, 1), reader("b", 10, 0, 1)], 10),  # given away
        ([reader("dead", 90_000, 0, 1, 2), reader("b", 10, 0, 1)], 90_000),  # one of two was
        ([reader("dead", 90_000, 0, 1, 0), reader("b", 10, 0, 1)], 10),  # the asker has the other
        ([reader("idle", 90_000, 0)], 0),  # it read nothing
        ([reader("ahead", -600_000, 0, 1)], 0),  # its clock is
    ],
)
def test_the_worst_lag_is_that_of_partitions_which_nobody_read_since(
    readers: list[Reader], lag_ms: int
) -> None:
    assert worst_lag_ms(readers, T0, read_here=[0]) == lag_ms


@pytest.mark.parametrize(("round_ms", "apart_ms"), [(1_000, 166), (60_000, 1_000), (100, 100)])
def test_looks_are_a_second_apart_and_less_in_short_rounds(round_ms: int, apart_ms: int) -> None:
    assert look_ms(round_ms) == apart_ms


class Replica:
    def __init__(self, board: FakeRepository, name: str) -> None:
        self.peers = Peers(board, name, ROUND_MS)
        self.spoken_of: list[set[int]] = []

    async def look(
        self, *partitions: int, lag_ms: int = 0, now_ms: int = T0, caught_up: bool = True
    ) -> None:
        own = IngestView(now_ms, lag_ms, caught_up)
        await self.peers.look(now_ms, own, partitions, self._note)

    def _note(self, shards: Collection[int]) -> None:
        self.spoken_of.append(set(shards))


async def test_of_several_readers_one_that_lags_makes_ingest_not_current() -> None:
    board = FakeRepository()
    leader, other = Replica(board, "a"), Replica(board, "b")
    await other.look(1, lag_ms=ROUND_MS + 1)
    await leader.look(0)
    view = leader.peers.view(CURRENT)
    assert ingest_is_current(CURRENT, T0, ROUND_MS)
    assert not ingest_is_current(view, T0, ROUND_MS)
    await other.look(1)
    await leader.look(0)
    assert leader.peers.view(CURRENT) == CURRENT


async def test_a_replica_that_joins_the_group_plans_on_while_another_one_reads() -> None:
    board = FakeRepository()
    joins, other = Replica(board, "a"), Replica(board, "b")
    joining = replace(CURRENT, caught_up=False)
    await other.look()  # it has joined no sooner
    await joins.look()
    assert not ingest_is_current(joins.peers.view(joining), T0, ROUND_MS)
    await other.look(0, 1)
    await joins.look()
    assert ingest_is_current(joins.peers.view(joining), T0, ROUND_MS)
    await joins.look(now_ms=T0 + 1_000)  # nothing was heard of the other one
    assert not ingest_is_current(joins.peers.view(joining), T0, ROUND_MS)


async def test_of_replicas_that_start_at_once_none_takes_the_word_of_another() -> None:
    board = FakeRepository()
    first, second = Replica(board, "a"), Replica(board, "b")
    starting = replace(CURRENT, caught_up=False)
    for _ in range(2):
        await first.look(0, caught_up=False)
        await second.look(1, caught_up=False)
    for replica in (first, second):
        assert not ingest_is_current(replica.peers.view(starting), T0, ROUND_MS)
    await first.look(0)
    await second.look(1, caught_up=False)
    assert ingest_is_current(second.peers.view(starting), T0, ROUND_MS)


async def test_a_reader_that_died_counts_until_its_partitions_are_read_by_somebody() -> None:
    board = FakeRepository()
    leader = Replica(board, "a")
    await Replica(board, "b").look(1)
    await leader.look(0, now_ms=T0 + 5_000)
    assert leader.peers.view(CURRENT).lag_ms == 5_000
    await leader.look(0, 1, now_ms=T0 + 6_000)
    assert leader.peers.view(CURRENT).lag_ms == 0


async def test_a_reader_that_left_in_order_counts_no_more() -> None:
    board = FakeRepository()
    leader, other = Replica(board, "a"), Replica(board, "b")
    await other.look(1)
    await other.peers.leave()
    await leader.look(0, now_ms=T0 + 5_000)
    assert leader.peers.view(CURRENT).lag_ms == 0


async def test_a_reader_is_forgotten_when_what_it_left_is_too_old_to_count() -> None:
    board = FakeRepository()
    leader = Replica(board, "a")
    await Replica(board, "b").look(1)
    await leader.look(0, now_ms=T0 + FORGET_MS + 1)
    assert leader.peers.view(CURRENT).lag_ms == 0


async def test_what_is_told_reaches_the_others_once() -> None:
    board = FakeRepository()
    leader, other = Replica(board, "a"), Replica(board, "b")
    await leader.look()
    other.peers.tell([2, 5])
    await other.look()
    for _ in range(2):
        await leader.look()
    assert leader.spoken_of == [{2, 5}]


async def test_what_could_not_be_told_is_told_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = FakeRepository()
    leader, other = Replica(board, "a"), Replica(board, "b")
    await leader.look()
    other.peers.tell([2])

    async def fail(_: Collection[int]) -> None:
        raise UnavailableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(board, "note_changes", fail)
        with pytest.raises(UnavailableError):
            await other.look()
    await other.look()
    await leader.look()
    assert leader.spoken_of == [{2}]
