"""The schema of the database: brought up to date under a lock, and checked at start.

Decides whether this version can work on the schema found. Knows no table's content.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from balancer.adapters.postgres.calls import place_of, translated
from balancer.errors import NewerSchemaError, SchemaError, SettingsError, UnavailableError

VERSION_TABLE: Final = "permit_schema_version"
LOCK_KEY: Final = 0x7065726D6974
CONNECT_SECONDS: Final = 10


def migrations_folder() -> Path:
    """Return where the migrations are: in the package, or beside it in a checkout."""
    packaged = Path(__file__).parents[2] / "_migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "migrations"


def newest_revision() -> str:
    """Return the revision that this version works on."""
    head = ScriptDirectory(str(migrations_folder())).get_current_head()
    if head is None:
        raise SchemaError("the installed package has no migrations; install it again")
    return head


def migrate(dsn: str) -> str:
    """Bring the schema up to date; return the revision reached.

    Two at once wait for one another. It needs a role that may create tables; the balancer itself
    only reads and writes rows.

    Raises:
        UnavailableError: where the database does not answer.
        SettingsError: where the client cannot use the DSN.
        BalancerError: where the database refuses the DSN's user or database.
        SchemaError: where the schema is newer, or a step fails; nothing of it stays.
    """
    asyncio.run(_migrate(dsn))
    return newest_revision()


async def _migrate(dsn: str) -> None:
    async def connect() -> asyncpg.Connection[asyncpg.Record]:
        # The driver alone reads the DSN, so that whatever the balancer connects by works here too.
        async with connecting(dsn):
            return await asyncpg.connect(dsn, timeout=CONNECT_SECONDS)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_upgrade)
            await connection.commit()
    except (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError) as error:
        raise UnavailableError(f"PostgreSQL does not answer: {error}") from error
    except (SQLAlchemyError, CommandError, asyncpg.PostgresError) as error:
        raise SchemaError(f"the migration failed and was undone: {_first_line(error)}") from error
    finally:
        await engine.dispose()


@asynccontextmanager
async def connecting(dsn: str) -> AsyncIterator[None]:
    """Translate what the driver says of a DSN that it cannot use, or that leads nowhere.

    Raises:
        SettingsError: naming the setting; the DSN is not shown, for the password in it.
        UnavailableError: where the database does not answer.
        BalancerError: where it refuses the DSN's user or database.
    """
    place = place_of(dsn)
    what = f"connect at {place}" if place else "connect"
    async with translated(what, "; check PERMIT_POSTGRES_DSN"):
        try:
            yield
        except (ValueError, OverflowError) as error:
            # A plain error's words may quote a part of the DSN; those of the driver do not.
            is_the_drivers = isinstance(error, asyncpg.ClientConfigurationError)
            words = (
                str(error) if is_the_drivers else "host, port or password cannot be read from it"
            )
            raise SettingsError(
                f"PERMIT_POSTGRES_DSN: {words}; "
                "for example PERMIT_POSTGRES_DSN=postgresql://permit:secret@localhost/permit"
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _upgrade(connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
    if inspect(connection).has_table(VERSION_TABLE):
        query = text(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608
        found = connection.execute(query).scalar()
        if found is not None and found > newest_revision():
            raise _newer(found)
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def check_schema(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    """Check that the schema is the one this version works on.

    Raises:
        SchemaError: older, newer or missing; says what to run.
    """
    wanted = newest_revision()
    try:
        found = await pool.fetchval(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608
    except asyncpg.UndefinedTableError:
        raise SchemaError(
            f"the database has no schema yet (this version needs {wanted}); "
            "run: permit-balancer migrate"
        ) from None
    if found is None or found < wanted:
        raise SchemaError(
            f"the database's schema is {found}, this version needs {wanted}; "
            "run: permit-balancer migrate"
        )
    if found > wanted:
        raise _newer(found)


def _newer(found: str) -> NewerSchemaError:
    return NewerSchemaError(
        f"the database's schema is {found}, newer than this version's {newest_revision()}; "
        "install the newer permit-balancer"
    )
