"""Single calls on a pool of connections, and drivers' errors in the balancer's words.

Decides which faults may pass by themselves. Knows no table.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from balancer.adapters.postgres.statements import STATEMENTS
from balancer.app.cancellation import is_cancelled
from balancer.errors import BalancerError, RefusedError, UnavailableError

CONNECT_SECONDS: Final = 10

_TRANSIENT: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    OSError,
    TimeoutError,
)


@asynccontextmanager
async def translated(what: str, remedy: str = "") -> AsyncIterator[None]:
    """Translate the errors of the driver; their words end with the remedy.

    Raises:
        RefusedError: a value can never be stored.
        UnavailableError: trying again later can help.
        BalancerError: anything else that the database refuses.
    """
    try:
        yield
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        raise RefusedError(f"PostgreSQL refused to {what}: {error}{remedy}") from error
    except _TRANSIENT as error:
        if isinstance(error, ValueError):  # the driver's own: a value does not fit its column
            raise RefusedError(f"PostgreSQL refused to {what}: {error}{remedy}") from error
        told = str(error) or f"no answer in time ({type(error).__name__})"
        raise UnavailableError(f"PostgreSQL could not {what}: {told}{remedy}") from error
    except asyncpg.PostgresError as error:
        raise BalancerError(f"PostgreSQL refused to {what}: {error}{remedy}") from error
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise UnavailableError(
            f"PostgreSQL could not {what}: its client gave up{remedy}"
        ) from error


def place_of(dsn: str) -> str:
    """Return host and port as a DSN says them; "" where what stands there may be a password.

    The driver takes all behind the first @ for the host.
    """
    place, *rest = re.split("[/?#]", dsn.partition("://")[2], maxsplit=1)
    may_tell = place.count("@") <= 1 and not any("@" in part for part in rest)
    return place.rpartition("@")[2] if may_tell else ""


class Calls:
    """Calls of named statements, each by itself."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    async def _rows(self, what: str, name: str, *arguments: Any) -> list[asyncpg.Record]:
        async with translated(what):
            return await self._pool.fetch(STATEMENTS[name], *arguments)

    async def _value(self, what: str, name: str, *arguments: Any) -> Any:
        async with translated(what):
            return await self._pool.fetchval(STATEMENTS[name], *arguments)

    async def _execute(self, what: str, name: str, *arguments: Any) -> int:
        async with translated(what):
            return affected(await self._pool.execute(STATEMENTS[name], *arguments))


def affected(status: str) -> int:
    """Return how many rows a command says that it touched."""
    return int(status.rpartition(" ")[2])
