"""The schema and the repository on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter

import pytest

from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate, newest_revision
from balancer.core.memory import Memory
from balancer.core.model import Destination
from balancer.errors import ConflictError, SchemaError
from balancer.ports import AcceptedBatch
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple

T0 = 1_800_000_000_000
TTL_MS = 180_000


def batch(
    host: str, instant_ms: int, used: int, *, state: MemberState = MemberState.RUNNING
) -> AcceptedBatch:
    entry = UsageTuple("orders-db", instant_ms - 1000, instant_ms, 3, 10, used, 0, 0, 0)
    return AcceptedBatch(
        UsageBatch(host, "i", instant_ms, state, None, {0: 3}, (entry,)), instant_ms, instant_ms
    )


@pytest.fixture
def dsn(postgres_dsn: str) -> str:
    migrate(postgres_dsn)
    return postgres_dsn


async def test_a_missing_schema_is_told_with_the_remedy(postgres_dsn: str) -> None:
    repository = await PostgresRepository.open(postgres_dsn)
    try:
        with pytest.raises(SchemaError, match="permit-balancer migrate"):
            await repository.check_schema()
    finally:
        await repository.close()


def test_the_command_migrates_and_may_be_run_again(postgres_dsn: str) -> None:
    environment = {**os.environ, "PERMIT_POSTGRES_DSN": postgres_dsn}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "balancer", "migrate"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert newest_revision() in done.stdout


def test_a_missing_setting_is_one_line() -> None:
    environment = {key: text for key, text in os.environ.items() if key != "PERMIT_POSTGRES_DSN"}
    done = subprocess.run(
        [sys.executable, "-m", "balancer", "migrate"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "PERMIT_POSTGRES_DSN" in done.stderr


async def test_older_and_equal_instants_change_nothing(dsn: str) -> None:
    repository = await PostgresRepository.open(dsn)
    try:
        for instant_ms, used in ((10, 1), (9, 2), (10, 3), (11, 4)):
            await repository.store_batches([batch("h", T0 + instant_ms, used)])
            rows = await repository.load_shard(
                0, ["orders-db"], now_ms=T0 + 20, ttl_ms=TTL_MS, keep_ms=TTL_MS
            )
            expected = {10: 1, 9: 1, 11: 4}[instant_ms]
            assert [usage.used for usage in rows.usage] == [expected]
    finally:
        await repository.close()


async def test_one_key_many_times_in_a_batch_keeps_the_newest(dsn: str) -> None:
    repository = await PostgresRepository.open(dsn)
    try:
        counts = await repository.store_batches(
            [batch("h", T0 + 1, 5), batch("h", T0 + 3, 9), batch("h", T0 + 2, 7)]
        )
        assert (counts.written, counts.stale) == (1, 2)
        rows = await repository.load_shard(
            0, ["orders-db"], now_ms=T0 + 5, ttl_ms=TTL_MS, keep_ms=TTL_MS
        )
        assert [usage.used for usage in rows.usage] == [9]
        assert rows.largest_reported_epoch == 3
    finally:
        await repository.close()


@pytest.mark.parametrize(("age_ms", "live"), [(179_999, 1), (180_000, 0), (180_001, 0)])
async def test_an_account_lives_strictly_less_than_the_ttl(
    dsn: str, age_ms: int, live: int
) -> None:
    repository = await PostgresRepository.open(dsn)
    try:
        await repository.store_batches([batch("h", T0, 1)])
        await repository.store_batches([batch("h", T0, 1)])  # delivered again
        rows = await repository.load_shard(
            0, ["orders-db"], now_ms=T0 + age_ms, ttl_ms=TTL_MS, keep_ms=2 * TTL_MS
        )
        assert len(rows.usage) == live
        assert len(rows.members) == 1
    finally:
        await repository.close()


async def test_a_goodbye_is_final(dsn: str) -> None:
    repository = await PostgresRepository.open(dsn)
    try:
        await repository.store_batches([batch("h", T0 + 5, 1, state=MemberState.LEAVING)])
        await repository.store_batches([batch("h", T0 + 9, 1)])
        rows = await repository.load_shard(
            0, ["orders-db"], now_ms=T0 + 10, ttl_ms=TTL_MS, keep_ms=TTL_MS
        )
        assert [member.left_ms for member in rows.members] == [T0 + 5]
        assert rows.largest_reported_epoch == 3
    finally:
        await repository.close()


async def test_of_many_accounts_the_new_and_the_newer_are_written_and_the_rest_stays(
    dsn: str,
) -> None:
    repository = await PostgresRepository.open(dsn)
    known = [batch(f"h{number}", T0 + 5, 1) for number in range(3_000)]
    older = [batch(f"h{number}", T0 + 4 + number % 2, 2) for number in range(1_000)]
    newer = [batch(f"h{number}", T0 + 6, 3) for number in range(1_000, 4_000)]
    try:
        assert (await repository.store_batches(known)).written == 3_000
        counts = await repository.store_batches(older + newer)
        assert (counts.written, counts.stale) == (3_000, 1_000)
        rows = await repository.load_shard(
            0, ["orders-db"], now_ms=T0 + 9, ttl_ms=TTL_MS, keep_ms=TTL_MS
        )
    finally:
        await repository.close()
    assert Counter(usage.used for usage in rows.usage) == {1: 1_000, 3: 3_000}
    assert {usage.used for usage in rows.usage if int(usage.host[1:]) < 1_000} == {1}
    assert len(rows.members) == 4_000


async def test_two_balancers_storing_many_accounts_in_opposite_orders_make_no_deadlock(
    dsn: str,
) -> None:
    repository, other = await PostgresRepository.open(dsn), await PostgresRepository.open(dsn)
    hosts = [f"h{number}" for number in range(20_000)]
    try:
        for step in range(3):
            forward = [batch(host, T0 + step, 1) for host in hosts]
            await asyncio.gather(
                repository.store_batches(forward), other.store_batches(forward[::-1])
            )
        rows = await repository.load_shard(
            0, ["orders-db"], now_ms=T0 + 5, ttl_ms=TTL_MS, keep_ms=TTL_MS
        )
        assert len(rows.usage) == 20_000
        removed = await repository.remove_expired(
            now_ms=T0 + TTL_MS * 3, ttl_ms=TTL_MS, keep_ms=TTL_MS, limit=100
        )
        assert removed == 100
        rest = await repository.remove_expired(
            now_ms=T0 + TTL_MS * 3, ttl_ms=TTL_MS, keep_ms=TTL_MS, limit=50_000
        )
        assert rest == 19_900 + 20_000  # accounts, then members with what they held
    finally:
        await repository.close()
        await other.close()


async def test_a_lease_that_was_taken_over_records_nothing(dsn: str) -> None:
    repository = await PostgresRepository.open(dsn)
    memory = Memory()
    try:
        (first,) = await repository.acquire_leases("a", [0], now_ms=T0, ttl_ms=1000)
        assert first.held
        (denied,) = await repository.acquire_leases("b", [0], now_ms=T0 + 500, ttl_ms=1000)
        assert not denied.held
        (taken,) = await repository.acquire_leases("b", [0], now_ms=T0 + 1000, ttl_ms=1000)
        assert taken.held
        assert taken.number > first.number

        async def record(number: int) -> bool:
            return await repository.record_epoch(0, number, 1, valid_until_ms=T0, memory=memory)

        assert not await record(first.number)
        assert await record(taken.number)
        assert not await record(taken.number)
    finally:
        await repository.close()


async def test_destinations_are_kept_with_their_policy(dsn: str) -> None:
    repository = await PostgresRepository.open(dsn)
    try:
        destination = Destination("日本-01", 100, 60, changed_at_ms=T0)
        assert await repository.put_destination(destination)
        assert not await repository.put_destination(destination)
        assert list(await repository.list_destinations()) == [destination]
        with pytest.raises(ConflictError, match="window_seconds"):
            await repository.put_destination(Destination("日本-01", 100, 30))
        assert await repository.remove_destination("日本-01", now_ms=T0)
        assert list(await repository.list_destinations()) == []
    finally:
        await repository.close()
