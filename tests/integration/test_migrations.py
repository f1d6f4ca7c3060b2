"""The schema on a real PostgreSQL: who may bring it up to date, and who may only use it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import VERSION_TABLE, migrate, newest_revision
from balancer.core.model import Destination, Memory
from balancer.errors import RefusedError, SchemaError, UnavailableError
from balancer.ports import AcceptedBatch
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple

T0 = 1_800_000_000_000
TABLES = ("destination", "member", "acknowledgement", "usage", "lease", "reason")


def batch(used: int = 5) -> AcceptedBatch:
    entry = UsageTuple("db", T0 - 1000, T0, 1, 10, used, 0, 0, 0)
    running = MemberState.RUNNING
    return AcceptedBatch(UsageBatch("h", "i", T0, running, None, {0: 7}, (entry,)), T0, T0)


async def run(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        for statement in statements:
            await connection.execute(statement, timeout=10)
    finally:
        await connection.close(timeout=5)


async def check(dsn: str) -> None:
    repository = await PostgresRepository.open(dsn, pool_size=1)
    try:
        await repository.check_schema()
    finally:
        await repository.close()


@pytest.fixture
async def runtime_dsn(postgres_dsn: str) -> AsyncIterator[str]:
    """A role that may read and write rows of the migrated schema and nothing else."""
    await asyncio.to_thread(migrate, postgres_dsn)
    role, password = f"runtime_{secrets.token_hex(4)}", secrets.token_hex(8)
    names = ", ".join(f"permit_{table}" for table in TABLES)
    await run(
        postgres_dsn,
        f"CREATE ROLE {role} LOGIN PASSWORD '{password}'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {names} TO {role}",
        f"GRANT SELECT ON {VERSION_TABLE} TO {role}",
    )
    parts = urlsplit(postgres_dsn)
    place = parts.netloc.rpartition("@")[2]
    yield urlunsplit(parts._replace(netloc=f"{role}:{password}@{place}"))
    await run(postgres_dsn, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def test_migrating_several_times_at_once_is_safe(postgres_dsn: str) -> None:
    reached = await asyncio.gather(*(asyncio.to_thread(migrate, postgres_dsn) for _ in range(3)))
    assert set(reached) == {newest_revision()}
    await check(postgres_dsn)


async def test_a_newer_and_an_older_schema_are_refused_with_the_remedy(postgres_dsn: str) -> None:
    await asyncio.to_thread(migrate, postgres_dsn)
    await run(postgres_dsn, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(SchemaError, match="install the newer"):
        await check(postgres_dsn)
    await run(postgres_dsn, f"UPDATE {VERSION_TABLE} SET version_num = '0000'")
    with pytest.raises(SchemaError, match="run: permit-balancer migrate"):
        await check(postgres_dsn)


async def test_a_role_that_may_only_use_rows_is_enough_to_run(runtime_dsn: str) -> None:
    repository = await PostgresRepository.open(runtime_dsn, pool_size=1)
    try:
        await repository.check_schema()
        assert (await repository.store_batches([batch()])).written == 1
        await repository.put_destination(Destination("db", 10, changed_at_ms=T0))
        await repository.acquire_leases("a", [0], now_ms=T0, ttl_ms=1000)
        assert await repository.record_epoch(0, 1, 8, valid_until_ms=T0, memory=Memory({"a": 1}))
        assert await repository.remove_expired(now_ms=T0 + 10, ttl_ms=5, keep_ms=5, limit=10) == 2
    finally:
        await repository.close()


async def test_a_role_that_may_only_use_rows_cannot_migrate(runtime_dsn: str) -> None:
    await run(runtime_dsn, "SELECT 1")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await run(runtime_dsn, "DROP TABLE permit_usage")


async def test_a_value_that_fits_no_column_is_refused_and_nothing_is_stored(
    postgres_dsn: str,
) -> None:
    await asyncio.to_thread(migrate, postgres_dsn)
    repository = await PostgresRepository.open(postgres_dsn, pool_size=1)
    try:
        with pytest.raises(RefusedError):
            await repository.store_batches([batch(2**63)])
        rows = await repository.load_shard(0, ["db"], now_ms=T0, ttl_ms=1000, keep_ms=1000)
        assert (rows.usage, rows.members) == ((), ())
    finally:
        await repository.close()


async def test_a_missing_right_is_no_fault_of_the_values(
    runtime_dsn: str, postgres_dsn: str
) -> None:
    role = urlsplit(runtime_dsn).username
    await run(postgres_dsn, f"REVOKE INSERT ON permit_usage FROM {role}")
    repository = await PostgresRepository.open(runtime_dsn, pool_size=1)
    try:
        with pytest.raises(Exception, match="permission denied") as caught:
            await repository.store_batches([batch()])
        assert not isinstance(caught.value, RefusedError | asyncpg.PostgresError)
    finally:
        await repository.close()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns"])
async def test_instants_do_not_depend_on_the_time_zone(
    postgres_dsn: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        await asyncio.to_thread(migrate, postgres_dsn)
        repository = await PostgresRepository.open(postgres_dsn, pool_size=1)
        await repository.store_batches([batch()])
        await repository.close()
        connection = await asyncpg.connect(postgres_dsn, timeout=10)
        assert await connection.fetchval("SELECT instant_ms FROM permit_usage") == T0
        await connection.close(timeout=5)
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_a_database_that_does_not_answer_is_told_as_such() -> None:
    with pytest.raises(UnavailableError):
        await PostgresRepository.open("postgresql://a:b@127.0.0.1:1/x", pool_size=1)
    with pytest.raises(UnavailableError):
        await asyncio.to_thread(migrate, "postgresql://a:b@127.0.0.1:1/x")
