"""What members acknowledge is the same in memory and on PostgreSQL, whatever reports tell of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from balancer.adapters.postgres import repository as real_repository
from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate
from balancer.core.memory import Memory
from balancer.core.model import MemberRecord
from balancer.ports import AcceptedBatch, Repository
from tests.support.fakes_repository import FakeRepository
from worker_sdk.wire.usage import MemberState, UsageBatch

T0 = 1_800_000_000_000
HOUR_MS = 3_600_000
SHARDS = range(6)
HOSTS = ("a", "b", "c")
STEPS = 80


@pytest.fixture(params=["arguments", "copying"])
async def both(
    request: pytest.FixtureRequest, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Repository, Repository]]:
    if request.param == "copying":
        monkeypatch.setattr(real_repository, "COPY_ROWS", 1)
    await asyncio.to_thread(migrate, postgres_dsn)  # it runs a loop of its own
    real = await PostgresRepository.open(postgres_dsn)
    yield FakeRepository(), real
    await real.close()


def told(rng: random.Random, number: int) -> list[AcceptedBatch]:
    """One to three reports: some shards in any order, of epochs that are old, new or false."""
    batches = []
    for place in range(rng.randint(1, 3)):
        shards = rng.sample(SHARDS, rng.randint(0, len(SHARDS)))
        at_ms = T0 + number * 10 + place
        batches.append(
            AcceptedBatch(
                UsageBatch(
                    rng.choice(HOSTS),
                    "i",
                    at_ms,
                    MemberState.RUNNING,
                    None,
                    {shard: rng.randint(0, number // 4 + 3) for shard in shards},
                    (),
                ),
                at_ms,
                at_ms,
            )
        )
    return batches


async def known(repository: Repository, shard: int) -> tuple[list[MemberRecord], int]:
    rows = await repository.load_shard(shard, [], now_ms=T0, ttl_ms=HOUR_MS, keep_ms=HOUR_MS)
    return sorted(rows.members, key=lambda member: member.host), rows.largest_reported_epoch


@pytest.mark.parametrize("seed", range(3))
async def test_reports_in_any_order_are_merged_alike(
    both: tuple[Repository, Repository], seed: int
) -> None:
    rng = random.Random(seed)
    for repository in both:
        await repository.acquire_leases("x", SHARDS, now_ms=T0, ttl_ms=HOUR_MS)
    for number in range(STEPS):
        shard, epoch = rng.choice(SHARDS), number // 4 + 1
        batches = told(rng, number)
        for repository in both:
            await repository.record_epoch(shard, 1, epoch, valid_until_ms=T0, memory=Memory())
            await repository.store_batches(batches)
        in_memory, on_postgres = [await known(repository, shard) for repository in both]
        assert in_memory == on_postgres
    assert [await known(both[0], shard) for shard in SHARDS] == [
        await known(both[1], shard) for shard in SHARDS
    ]
