"""The schema on a real PostgreSQL: who may bring it up to date, and who may only use it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from balancer.adapters.postgres.repository import COPY_ROWS, PostgresRepository
from balancer.adapters.postgres.schema import VERSION_TABLE, migrate, newest_revision
from balancer.app.peers import Reader
from balancer.commands import main
from balancer.core.model import Destination
from balancer.errors import RefusedError, SchemaError, UnavailableError
from balancer.ports import AcceptedBatch
from tests.support.memories import memory_of
from tests.support.recorded import reason, round_of
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple

T0 = 1_800_000_000_000
ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "migrations" / "README.md"
GUIDE = ROOT / "docs" / "how-to" / "run-in-production.md"
LATER = (
    *("history_round", "history_destination", "history_span", "history_detail"),
    *("reader", "change", "member_epochs"),
)


def grants(role: str) -> list[str]:
    """Return what the README of the migrations says to grant, to a role of ours."""
    _, told, _ = README.read_text(encoding="utf-8").split("```")
    statements = told.removeprefix("sql").strip().removesuffix(";").split(";")
    return [statement.replace("permit_runtime", role) for statement in statements]


def batch(used: int = 5) -> AcceptedBatch:
    entry = UsageTuple("db", T0 - 1000, T0, 1, 10, used, 0, 0, 0)
    running = MemberState.RUNNING
    return AcceptedBatch(UsageBatch("h", "i", T0, running, None, {0: 7}, (entry,)), T0, T0)


def at_instant(host: str, ms: int) -> AcceptedBatch:
    entry = UsageTuple("db", ms - 1000, ms, 1, 10, 5, 0, 0, 0)
    running = MemberState.RUNNING
    return AcceptedBatch(UsageBatch(host, "i", ms, running, None, {0: 7}, (entry,)), ms, ms)


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
    create = f"CREATE ROLE {role} LOGIN PASSWORD '{password}'"
    await run(postgres_dsn, create, *grants(role))
    parts = urlsplit(postgres_dsn)
    place = parts.netloc.rpartition("@")[2]
    yield urlunsplit(parts._replace(netloc=f"{role}:{password}@{place}"))
    await run(postgres_dsn, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def test_the_roles_of_the_guide_suffice_where_the_owner_may_make_none(
    postgres_dsn: str,
) -> None:
    owner, user = f"owner_{secrets.token_hex(4)}", f"serve_{secrets.token_hex(4)}"
    section = GUIDE.read_text(encoding="utf-8").split("\n## PostgreSQL\n")[1].split("\n## ")[0]
    makes, grants_of_owner = (
        part.partition("```")[0].replace("permit_serve", user)
        for part in section.split("```sql\n")[1:]
    )
    parts = urlsplit(postgres_dsn)
    database, place = parts.path.removeprefix("/"), parts.netloc.rpartition("@")[2]
    await run(
        postgres_dsn,
        f"CREATE ROLE {owner} LOGIN PASSWORD 'secret'",
        f"ALTER DATABASE {database} OWNER TO {owner}",
    )
    by_owner = urlunsplit(parts._replace(netloc=f"{owner}:secret@{place}"))
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await run(by_owner, makes)
    await run(postgres_dsn, makes)
    try:
        await asyncio.to_thread(migrate, by_owner)
        await run(by_owner, grants_of_owner, "CREATE TABLE permit_later (id int)")
        by_user = urlunsplit(parts._replace(netloc=f"{user}:secret@{place}"))
        await check(by_user)
        await run(by_user, "INSERT INTO permit_later VALUES (1)")
    finally:
        await run(
            postgres_dsn,
            f"ALTER DATABASE {database} OWNER TO CURRENT_USER",
            *(f"DROP OWNED BY {role}" for role in (owner, user)),
            *(f"DROP ROLE {role}" for role in (owner, user)),
        )


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


async def test_a_schema_in_use_is_brought_up_to_date_with_all_that_is_in_it(
    postgres_dsn: str,
) -> None:
    await asyncio.to_thread(migrate, postgres_dsn)
    tables = ", ".join(f"permit_{name}" for name in LATER)
    repository = await PostgresRepository.open(postgres_dsn, pool_size=1)
    try:
        await repository.acquire_leases("a", [0], now_ms=T0, ttl_ms=1000)
        await repository.record_epoch(0, 1, 7, valid_until_ms=T0, memory=memory_of(1))
        await repository.store_batches([batch()])
        await run(
            postgres_dsn,
            "INSERT INTO permit_acknowledgement VALUES ('h', 'i', 0, 7, 1)",
            "INSERT INTO permit_acknowledgement VALUES ('other', 'i', 0, 8, 1)",
            f"DROP TABLE {tables}",
            "ALTER TABLE permit_acknowledgement DROP COLUMN told_epoch",
            f"UPDATE {VERSION_TABLE} SET version_num='0001'",
        )
        with pytest.raises(SchemaError, match=f"is 0001, this version needs {newest_revision()}"):
            await repository.check_schema()
        assert await asyncio.to_thread(migrate, postgres_dsn) == newest_revision()
        await repository.check_schema()
        rows = await repository.load_shard(0, ["db"], now_ms=T0, ttl_ms=1000, keep_ms=1000)
        assert [usage.used for usage in rows.usage] == [5]
        assert [member.acknowledged_epoch for member in rows.members] == [7]
        assert rows.largest_reported_epoch == 8
        await repository.store_round(round_of(reason("a")))
        assert len(await repository.load_reasons("db")) == 1
    finally:
        await repository.close()


async def test_a_role_that_may_only_use_rows_is_enough_to_run(runtime_dsn: str) -> None:
    repository = await PostgresRepository.open(runtime_dsn, pool_size=1)
    try:
        await repository.check_schema()
        assert (await repository.store_batches([batch()])).written == 1
        await repository.put_destination(Destination("db", 10, changed_at_ms=T0))
        await repository.acquire_leases("a", [0], now_ms=T0, ttl_ms=1000)
        await repository.note_changes([0])
        await repository.exchange(Reader("a", T0, 0, (0,)), forget_before_ms=0, limit=1)
        await repository.remove_reader("a")
        assert await repository.record_epoch(0, 1, 8, valid_until_ms=T0, memory=memory_of(1))
        assert await repository.remove_expired(now_ms=T0 + 10, ttl_ms=5, keep_ms=5, limit=10) == 2
        await repository.store_round(round_of(reason("a")))
        gone = await repository.clean_history(
            roll_up_before_ms=2 * T0, before_ms=0, details_before_ms=2 * T0, limit=10
        )
        assert gone == 2
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
        assert (tuple(rows.usage), rows.members) == ((), ())
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


@pytest.mark.parametrize("may_make_temporary_tables", [True, False])
async def test_many_accounts_are_stored_at_once_whether_or_not_they_can_be_copied(
    runtime_dsn: str, postgres_dsn: str, *, may_make_temporary_tables: bool
) -> None:
    if not may_make_temporary_tables:
        name = urlsplit(postgres_dsn).path[1:]
        await run(postgres_dsn, f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
    repository = await PostgresRepository.open(runtime_dsn, pool_size=1)
    try:
        many = [at_instant(f"h{number}", T0) for number in range(COPY_ROWS)]
        for written in (COPY_ROWS, 0):
            assert (await repository.store_batches(many)).written == written
        spoiled = [*many, batch(2**63)]
        with pytest.raises(RefusedError):
            await repository.store_batches(spoiled)
        (lease,) = await repository.acquire_leases("a", [0], now_ms=T0, ttl_ms=1000)
        await repository.record_epoch(0, lease.number, 7, valid_until_ms=T0, memory=memory_of(1))
        later = [at_instant(f"h{number}", T0 + 1) for number in range(COPY_ROWS)]
        assert (await repository.store_batches(later)).written == COPY_ROWS
        found = await repository.load_shard(0, ["db"], now_ms=T0 + 1, ttl_ms=1000, keep_ms=1000)
        assert {member.acknowledged_epoch for member in found.members} == {7}
        assert {member.acknowledged_ms for member in found.members} == {T0 + 1}
        assert len(found.members) == len(found.usage) == COPY_ROWS
    finally:
        await repository.close()


SPRING_MS = 1_772_947_800_000  # 2026-03-08T05:30Z, when clocks in St. John's leap ahead
AUTUMN_MS = 1_793_507_400_000  # 2026-11-01T04:30Z, when they are set back
HOUR_MS = 3_600_000


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns"])
async def test_instants_depend_neither_on_the_time_zone_nor_on_summer_time(
    postgres_dsn: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instants = [T0, *(at + off for at in (SPRING_MS, AUTUMN_MS) for off in (-HOUR_MS, 0, HOUR_MS))]
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        await asyncio.to_thread(migrate, postgres_dsn)
        repository = await PostgresRepository.open(postgres_dsn, pool_size=1)
        await repository.store_batches([at_instant(f"h{ms}", ms) for ms in instants])
        connection = await asyncpg.connect(postgres_dsn, timeout=10)
        rows = await connection.fetch("SELECT host, from_ms, instant_ms, seen_ms FROM permit_usage")
        await connection.close(timeout=5)
        assert {tuple(row) for row in rows} == {(f"h{ms}", ms - 1000, ms, ms) for ms in instants}
        for ms in instants:
            live = await repository.load_shard(0, ["db"], now_ms=ms, ttl_ms=1, keep_ms=1)
            assert f"h{ms}" in {row.host for row in live.usage}
        await repository.close()
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_a_database_that_does_not_answer_is_told_as_such() -> None:
    with pytest.raises(UnavailableError):
        await PostgresRepository.open("postgresql://a:b@127.0.0.1:1/x", pool_size=1)
    with pytest.raises(UnavailableError):
        await asyncio.to_thread(migrate, "postgresql://a:b@127.0.0.1:1/x")


Command = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command on a DSN in this process; it gives the exit code and the lines of fault."""

    def run_command(dsn: str, *arguments: str) -> tuple[int, list[str]]:
        monkeypatch.setenv("PERMIT_POSTGRES_DSN", dsn)
        capsys.readouterr()
        code = main(arguments)
        return code, capsys.readouterr().err.splitlines()

    return run_command


@pytest.mark.parametrize(
    "query",
    ["sslmode=disable", "sslmode=prefer&application_name=permit", "user=%s", "TimeZone=UTC"],
)
def test_a_dsn_may_say_what_the_client_understands(
    postgres_dsn: str, command: Command, query: str
) -> None:
    parts = urlsplit(postgres_dsn)
    dsn = urlunsplit(parts._replace(query=query.replace("%s", str(parts.username))))
    assert command(dsn, "migrate") == (0, [])
    assert command(dsn, "destinations", "list") == (0, [])


def test_to_migrate_a_newer_schema_is_refused_in_one_line(
    postgres_dsn: str, command: Command
) -> None:
    assert command(postgres_dsn, "migrate") == (0, [])
    asyncio.run(run(postgres_dsn, f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    code, (line,) = command(postgres_dsn, "migrate")
    assert code == 1
    assert "9999, newer than this version's" in line
    assert "install the newer permit-balancer" in line


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://permit:hunter2@127.0.0.1:1/x?sslmode=nonsense",
        "postgresql://permit:hunter2@127.0.0.1:port/x",
        "postgresql://permit:hunter2@127.0.0.1:99999/x",
        "postgresql://permit:hunter2@[::1/x",
        "postgresql://permit:hunter2/x@127.0.0.1/x",
    ],
)
@pytest.mark.parametrize("arguments", [("migrate",), ("destinations", "list")])
def test_a_dsn_that_the_client_cannot_use_is_one_line_that_hides_the_password(
    command: Command, dsn: str, arguments: tuple[str, ...]
) -> None:
    code, (line,) = command(dsn, *arguments)
    assert code == 2
    assert "PERMIT_POSTGRES_DSN" in line
    assert "hunter" not in line


def test_a_wrong_password_is_one_line_that_does_not_show_it(
    postgres_dsn: str, command: Command
) -> None:
    parts = urlsplit(postgres_dsn)
    place = parts.netloc.rpartition("@")[2]
    wrong = urlunsplit(parts._replace(netloc=f"{parts.username}:hunter2@{place}"))
    code, (line,) = command(wrong, "migrate")
    assert code == 1
    assert "password" in line
    assert "hunter2" not in line
