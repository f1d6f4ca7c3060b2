"""The schema of the database: brought up to date under a lock, and checked at start.

Decides whether this version can work on the schema found. Knows no table's content.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from balancer.errors import SchemaError, UnavailableError

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
        SchemaError: where a step fails; nothing of it stays.
    """
    asyncio.run(_migrate(dsn))
    return newest_revision()


async def _migrate(dsn: str) -> None:
    engine = create_async_engine(_sqlalchemy_url(dsn), connect_args={"timeout": CONNECT_SECONDS})
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_upgrade)
            await connection.commit()
    except (OSError, TimeoutError, asyncpg.PostgresConnectionError) as error:
        raise UnavailableError(f"PostgreSQL does not answer: {error}") from error
    except (SQLAlchemyError, asyncpg.PostgresError) as error:
        raise SchemaError(f"the migration failed and was undone: {error}") from error
    finally:
        await engine.dispose()


def _sqlalchemy_url(dsn: str) -> str:
    scheme, separator, rest = dsn.partition("://")
    if not separator or scheme not in ("postgresql", "postgres"):
        raise SchemaError("the DSN must begin with postgresql://")
    return f"postgresql+asyncpg://{rest}"


def _upgrade(connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
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
        raise SchemaError(
            f"the database's schema is {found}, newer than this version's {wanted}; "
            "install the newer permit-balancer"
        )
