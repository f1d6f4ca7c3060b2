"""What leases promise to several holders, in memory and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from balancer.ports import Repository

TTL_MS = 10_000
SHARDS = range(6)


async def led(
    repository: Repository,
    holder: str,
    now_ms: int,
    *,
    most: int | None,
    shards: Sequence[int] = SHARDS,
) -> list[int]:
    records = await repository.acquire_leases(
        holder, shards, now_ms=now_ms, ttl_ms=TTL_MS, most=most
    )
    assert [record.shard for record in records] == list(shards)
    return [record.shard for record in records if record.held]


async def test_no_more_are_taken_than_asked_for(repository: Repository) -> None:
    now_ms = await repository.now_ms()
    assert await led(repository, "a", now_ms, most=4) == [0, 1, 2, 3]
    assert await led(repository, "b", now_ms, most=1) == [4]
    assert await led(repository, "b", now_ms, most=6) == [4, 5]
    assert await led(repository, "a", now_ms, most=1) == [0, 1, 2, 3]  # held ones are renewed
    assert await led(repository, "c", now_ms, most=0) == []


async def test_some_are_let_go_and_taken_by_another_under_a_higher_number(
    repository: Repository,
) -> None:
    now_ms = await repository.now_ms()
    assert await led(repository, "a", now_ms, most=None) == list(SHARDS)
    await repository.release_leases("a", [1, 4])
    await repository.release_leases("b", [2])  # not its own
    now_ms = await repository.now_ms()
    assert await led(repository, "a", now_ms, most=4) == [0, 2, 3, 5]
    records = await repository.acquire_leases("b", SHARDS, now_ms=now_ms, ttl_ms=TTL_MS, most=3)
    assert {record.shard: record.number for record in records if record.held} == {1: 2, 4: 2}
    await repository.release_leases("a", [])
    assert await led(repository, "c", now_ms, most=6) == []


async def test_what_nobody_took_for_a_leases_time_is_taken_whoever_has_enough(
    repository: Repository,
) -> None:
    now_ms = await repository.now_ms()
    assert await led(repository, "a", now_ms, most=3) == [0, 1, 2]
    assert await led(repository, "a", now_ms + TTL_MS - 1, most=3) == [0, 1, 2]
    assert await led(repository, "a", now_ms + TTL_MS, most=3) == list(SHARDS)


async def test_two_that_ask_at_once_share_and_none_has_what_the_other_has(
    repository: Repository,
) -> None:
    now_ms = await repository.now_ms()
    await led(repository, "nobody", now_ms, most=0)
    names = [f"replica-{number}" for number in range(3)]
    first = await asyncio.gather(*(led(repository, name, now_ms, most=2) for name in names))
    again = [await led(repository, name, now_ms, most=2) for name in names]
    assert sorted(shard for found in again for shard in found) == list(SHARDS)
    assert all(set(before) <= set(after) for before, after in zip(first, again, strict=True))


async def test_the_time_is_one_for_all_and_goes_on(repository: Repository) -> None:
    first, second = await repository.now_ms(), await repository.now_ms()
    assert 0 <= second - first < 60_000
