"""What the board of replicas promises, in memory and on PostgreSQL alike."""

from __future__ import annotations

import asyncio

import pytest

from balancer.app.peers import Board, BoardState, Reader

T0 = 1_800_000_000_000


@pytest.fixture
def board(repository: Board) -> Board:
    return repository


async def exchange(
    board: Board, reader: Reader, *, before_ms: int = 0, limit: int = 9
) -> BoardState:
    return await board.exchange(reader, forget_before_ms=before_ms, limit=limit)


async def test_each_reader_has_one_account_the_newest_first(board: Board) -> None:
    first = Reader("a", T0, 5, (0, 3))
    assert (await exchange(board, first)).readers == (first,)
    other, again = Reader("b", T0 + 1, 0, ()), Reader("a", T0 + 2, 7, (3,), caught_up=False)
    await exchange(board, other)
    assert (await exchange(board, again)).readers == (again, other)
    assert (await exchange(board, again, limit=1)).readers == (again,)


async def test_readers_that_left_or_were_not_heard_of_for_long_are_gone(board: Board) -> None:
    for number, name in enumerate("abc"):
        await exchange(board, Reader(name, T0 + number, 0, (number,)))
    await board.remove_reader("b")
    await board.remove_reader("nobody")
    seen = await exchange(board, Reader("c", T0 + 9, 0, (2,)), before_ms=T0 + 1)
    assert [reader.name for reader in seen.readers] == ["c"]
    assert len((await exchange(board, Reader("c", T0 + 9, 0, (2,)))).readers) == 1


async def test_the_number_of_a_shard_grows_each_time_it_is_spoken_of(board: Board) -> None:
    me = Reader("a", T0, 0, ())
    assert (await exchange(board, me)).changes == {}
    await board.note_changes([2, 0])
    await board.note_changes([2])
    await board.note_changes([])
    assert (await exchange(board, me)).changes == {0: 1, 2: 2}


async def test_shards_may_be_spoken_of_by_many_at_once(board: Board) -> None:
    await asyncio.gather(*(board.note_changes([*range(9), 3][::step]) for step in [1, -1] * 4))
    seen = await exchange(board, Reader("a", T0, 0, ()))
    assert set(seen.changes) == set(range(9))
    assert seen.changes[0] == 8
