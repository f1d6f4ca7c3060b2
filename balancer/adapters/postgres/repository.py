"""The repository on PostgreSQL.

Decides nothing about shares; translates calls into single statements and short transactions, and
drivers' errors into the balancer's. No session state is used, so that it works through a pooler.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Final, Self

import asyncpg

from balancer.adapters.postgres import rows
from balancer.adapters.postgres.schema import check_schema, connecting
from balancer.adapters.postgres.statements import STATEMENTS
from balancer.core.memory import Memory
from balancer.core.model import Destination, Reason
from balancer.errors import BalancerError, ConflictError, RefusedError, UnavailableError
from balancer.ports import (
    REASONS_MAX,
    AcceptedBatch,
    LeaseRecord,
    ShardRows,
    StoredCounts,
)

CONNECT_SECONDS: Final = 10
COMMAND_SECONDS: Final = 30

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
async def _translated(what: str) -> AsyncIterator[None]:
    try:
        yield
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        raise RefusedError(f"PostgreSQL refused to {what}: {error}") from error
    except _TRANSIENT as error:
        if isinstance(error, ValueError):  # the driver's own: a value does not fit its column
            raise RefusedError(f"PostgreSQL refused to {what}: {error}") from error
        told = str(error) or f"no answer in time ({type(error).__name__})"
        raise UnavailableError(f"PostgreSQL could not {what}: {told}") from error
    except asyncpg.PostgresError as error:
        raise BalancerError(f"PostgreSQL refused to {what}: {error}") from error


class PostgresRepository:
    """`balancer.ports.Repository` on a pool of connections."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, dsn: str, *, pool_size: int = 8) -> Self:
        """Connect.

        Raises:
            UnavailableError: where the database does not answer.
            SettingsError: where the client cannot use the DSN.
            BalancerError: where it refuses the DSN's user or database.
        """
        async with _translated("connect"):
            with connecting():
                pool = await asyncpg.create_pool(
                    dsn,
                    min_size=1,
                    max_size=pool_size,
                    timeout=CONNECT_SECONDS,
                    command_timeout=COMMAND_SECONDS,
                    statement_cache_size=0,
                )
        return cls(pool)

    async def close(self) -> None:
        """Close every connection, by force after ten seconds."""
        try:
            async with _translated("close"):
                await asyncio.wait_for(self._pool.close(), CONNECT_SECONDS)
        except UnavailableError:
            self._pool.terminate()

    async def check_schema(self) -> None:
        """See the port."""
        async with _translated("tell its schema"):
            await check_schema(self._pool)

    async def store_batches(self, batches: Sequence[AcceptedBatch]) -> StoredCounts:
        """See the port."""
        usage, given = rows.usage_rows(batches)
        members = rows.member_rows(batches)
        acknowledged = rows.acknowledgement_rows(batches)
        async with (
            _translated("store reports"),
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
            connection.transaction(),
        ):
            if members:
                await connection.execute(STATEMENTS["upsert_members"], *rows.columns(members, 7))
            if acknowledged:
                await connection.execute(
                    STATEMENTS["upsert_acknowledgements"], *rows.columns(acknowledged, 5)
                )
            written = 0
            if usage:
                written = await connection.fetchval(
                    STATEMENTS["upsert_usage"], *rows.columns(usage, 12)
                )
        return StoredCounts(written=written, stale=given - written)

    async def load_shard(
        self, shard: int, destinations: Sequence[str], *, now_ms: int, ttl_ms: int, keep_ms: int
    ) -> ShardRows:
        """See the port."""
        async with (
            _translated("tell what is known of a shard"),
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            usage = await connection.fetch(
                STATEMENTS["load_usage"], list(destinations), now_ms, ttl_ms
            )
            members = await connection.fetch(STATEMENTS["load_members"], shard, now_ms, keep_ms)
            largest = await connection.fetchval(STATEMENTS["largest_reported_epoch"], shard)
        return ShardRows(
            members=tuple(rows.to_member(dict(row)) for row in members),
            usage=tuple(rows.to_usage(tuple(row)) for row in usage),
            largest_reported_epoch=largest,
        )

    async def known_host(self, host: str) -> bool:
        """See the port."""
        return bool(await self._value("look up a host", "known_host", host))

    async def remove_expired(self, *, now_ms: int, ttl_ms: int, keep_ms: int, limit: int) -> int:
        """See the port."""
        async with (
            _translated("remove expired rows"),
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
            connection.transaction(),
        ):
            status = await connection.execute(STATEMENTS["remove_usage"], now_ms, ttl_ms, limit)
            removed = _affected(status)
            members = await connection.fetchval(
                STATEMENTS["remove_members"], now_ms, keep_ms, limit - removed
            )
        return removed + int(members)

    async def list_destinations(self, *, include_removed: bool = False) -> Sequence[Destination]:
        """See the port."""
        found = await self._rows("list destinations", "list_destinations", include_removed)
        return [rows.to_destination(dict(row)) for row in found]

    async def put_destination(self, destination: Destination) -> bool:
        """See the port."""
        created = await self._value(
            "store a destination",
            "put_destination",
            destination.name,
            destination.capacity,
            destination.window_seconds,
            rows.policy_to_json(destination.policy),
            destination.changed_at_ms,
        )
        if created is None:
            raise ConflictError(
                f"window_seconds of {destination.name!r} is fixed while it exists; remove it, "
                "wait until its documents have expired, and create it again"
            )
        return bool(created)

    async def remove_destination(self, name: str, *, now_ms: int) -> bool:
        """See the port."""
        return await self._execute("remove a destination", "remove_destination", name, now_ms) > 0

    async def forget_destination(self, name: str) -> None:
        """See the port."""
        await self._execute("forget a destination", "forget_destination", name)

    async def acquire_leases(
        self,
        holder: str,
        shards: Sequence[int],
        *,
        now_ms: int,
        ttl_ms: int,
        known: Mapping[int, int] | None = None,
    ) -> Sequence[LeaseRecord]:
        """See the port."""
        numbers = known or {}
        async with (
            _translated("take leases"),
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
            connection.transaction(),
        ):
            await connection.execute(
                STATEMENTS["acquire_leases"], sorted(shards), holder, now_ms, ttl_ms
            )
            found = await connection.fetch(
                STATEMENTS["load_leases"],
                list(shards),
                holder,
                list(numbers),
                list(numbers.values()),
            )
        return [
            LeaseRecord(
                shard=row["shard"],
                number=row["number"],
                held=row["holder"] == holder,
                epoch=row["epoch"],
                valid_until_ms=row["valid_until_ms"],
                memory=(
                    Memory()
                    if row["memory"] is None
                    else Memory.from_json(json.loads(row["memory"]))
                ),
            )
            for row in found
        ]

    async def record_epoch(
        self, shard: int, number: int, epoch: int, *, valid_until_ms: int, memory: Memory
    ) -> bool:
        """See the port."""
        text = json.dumps(memory.to_json())
        count = await self._execute(
            "record an epoch", "record_epoch", shard, number, epoch, valid_until_ms, text
        )
        return count > 0

    async def release_leases(self, holder: str) -> None:
        """See the port."""
        await self._execute("release leases", "release_leases", holder)

    async def store_reasons(self, shard: int, epoch: int, reasons: Sequence[Reason]) -> None:
        """See the port."""
        if not reasons:
            return
        ordered = sorted(reasons, key=lambda reason: (reason.destination, reason.host))
        table = rows.columns(
            [
                (reason.destination, reason.host, reason.instance, json.dumps(asdict(reason)))
                for reason in ordered
            ],
            4,
        )
        async with (
            _translated("store reasons"),
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
            connection.transaction(),
        ):
            names = sorted({reason.destination for reason in reasons})
            await connection.execute(STATEMENTS["delete_reasons"], names)
            await connection.execute(STATEMENTS["insert_reasons"], shard, epoch, *table)

    async def load_reasons(
        self, destination: str, host: str | None = None, *, limit: int = REASONS_MAX
    ) -> Sequence[tuple[int, Reason]]:
        """See the port."""
        found = await self._rows("tell reasons", "load_reasons", destination, host, limit)
        return [(row["epoch"], rows.to_reason(row["reason"])) for row in found]

    async def _rows(self, what: str, name: str, *arguments: Any) -> list[asyncpg.Record]:
        async with _translated(what):
            return await self._pool.fetch(STATEMENTS[name], *arguments)

    async def _value(self, what: str, name: str, *arguments: Any) -> Any:
        async with _translated(what):
            return await self._pool.fetchval(STATEMENTS[name], *arguments)

    async def _execute(self, what: str, name: str, *arguments: Any) -> int:
        async with _translated(what):
            return _affected(await self._pool.execute(STATEMENTS[name], *arguments))


def _affected(status: str) -> int:
    return int(status.rpartition(" ")[2])
