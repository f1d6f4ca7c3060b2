"""The repository on PostgreSQL.

Decides nothing about shares; translates calls into single statements and short transactions, and
drivers' errors into the balancer's. No session state is used, so that it works through a pooler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Self

import asyncpg

from balancer.adapters.postgres import rows
from balancer.adapters.postgres.calls import CONNECT_SECONDS, affected, translated
from balancer.adapters.postgres.history import PostgresHistory
from balancer.adapters.postgres.schema import check_schema, connecting
from balancer.adapters.postgres.statements import STATEMENTS
from balancer.app.agenda import largest_epoch_by
from balancer.app.peers import BoardState, Reader
from balancer.core.memory import Memory
from balancer.core.model import Destination
from balancer.errors import ConflictError, UnavailableError
from balancer.ports import (
    AcceptedBatch,
    LeaseRecord,
    ShardRows,
    StoredCounts,
)

COPY_ROWS: Final = 2_000
"""So many rows at once are worth temporary tables and COPY."""

UPSERTS: Final = {"member": ("upsert_member", "upsert_member_epochs"), "usage": ("upsert_usage",)}
"""What is done with each kind of rows, in this order: it is the order in which rows are locked."""

ALL_UPSERTS: Final = ";\n".join(STATEMENTS[name] for names in UPSERTS.values() for name in names)

Kinds = Mapping[str, rows.Rows]

COMMAND_SECONDS: Final = 30
CLOSE_SECONDS: Final = 1


class PostgresRepository(PostgresHistory):
    """`balancer.ports.Repository` and `balancer.app.peers.Board` on a pool of connections."""

    _may_copy = True

    @classmethod
    async def open(cls, dsn: str, *, pool_size: int = 8) -> Self:
        """Connect.

        Raises:
            UnavailableError: where the database does not answer.
            SettingsError: where the client cannot use the DSN.
            BalancerError: where it refuses the DSN's user or database.
        """
        async with connecting(dsn):
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
        """Close every connection, by force after a second."""
        try:
            async with translated("close"):
                await asyncio.wait_for(self._pool.close(), CLOSE_SECONDS)
        except UnavailableError:
            self._pool.terminate()

    async def check_schema(self) -> None:
        """See the port."""
        async with translated("tell its schema"):
            await check_schema(self._pool)

    async def store_batches(self, batches: Sequence[AcceptedBatch]) -> StoredCounts:
        """See the port."""
        usage, given = rows.usage_rows(batches)
        recorded = await self._recorded_epochs(batches)
        kinds: Kinds = {
            "member": rows.member_rows(batches, recorded),
            "usage": usage,
        }
        async with translated("store reports"):
            written = None
            if self._may_copy and sum(map(len, kinds.values())) >= COPY_ROWS:
                written = await self._stored_by_copy(kinds)
            if written is None:
                written = await self._store(kinds, by_copy=False)
        return StoredCounts(written=written, stale=given - written)

    async def _recorded_epochs(self, batches: Sequence[AcceptedBatch]) -> Mapping[int, int]:
        """Return the newest epoch on record of each shard that a report names.

        Asked once the reports are here: one that is recorded later cannot have been held by then.
        """
        shards = set[int]().union(*(accepted.batch.epochs for accepted in batches))
        if not shards:
            return {}
        found = await self._rows("tell recorded epochs", "recorded_epochs", sorted(shards))
        return {row["shard"]: row["epoch"] for row in found}

    async def _stored_by_copy(self, kinds: Kinds) -> int | None:
        """Store by COPY, which takes half the time; None where that is not possible."""
        try:
            return await self._store(kinds, by_copy=True)
        except asyncpg.InsufficientPrivilegeError:
            self._may_copy = False  # the role may create no temporary table
        except (asyncpg.DataError, ValueError, TypeError, OverflowError):
            pass  # a value is at fault: the other way says so in the known words
        return None

    async def _store(self, kinds: Kinds, *, by_copy: bool) -> int:
        """Store the kinds of rows; return how many accounts were written."""
        written = 0
        async with (
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
            connection.transaction(),
        ):
            if by_copy:
                await connection.execute(STATEMENTS["create_incoming"])
                for kind, found in kinds.items():
                    await connection.copy_records_to_table(f"incoming_{kind}", records=found)
                return affected(await connection.execute(ALL_UPSERTS))
            for kind in filter(kinds.get, kinds):
                arguments = rows.columns(kinds[kind], len(kinds[kind][0]))
                for upsert in UPSERTS[kind]:
                    statement = f"{STATEMENTS[f'given_{kind}']}\n{STATEMENTS[upsert]}"
                    written = affected(await connection.execute(statement, *arguments))
        return written if kinds["usage"] else 0

    async def load_shard(
        self, shard: int, destinations: Sequence[str], *, now_ms: int, ttl_ms: int, keep_ms: int
    ) -> ShardRows:
        """See the port."""
        async with (
            translated("tell what is known of a shard"),
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.execute(STATEMENTS["read_alone"])
            usage = await connection.fetch(
                STATEMENTS["load_usage"], list(destinations), now_ms, ttl_ms
            )
            members = await connection.fetch(STATEMENTS["load_members"], shard, now_ms, keep_ms)
            largest = await connection.fetchval(
                STATEMENTS["largest_reported_epoch"], shard, largest_epoch_by(now_ms)
            )
        # On a thread, since many rows take a while in which nobody would be answered.
        return await asyncio.to_thread(
            lambda: ShardRows(
                members=tuple(rows.to_member(tuple(row)) for row in members),
                usage=rows.to_usages(map(tuple, usage)),
                largest_reported_epoch=largest,
            )
        )

    async def known_host(self, host: str) -> bool:
        """See the port."""
        return bool(await self._value("look up a host", "known_host", host))

    async def remove_expired(self, *, now_ms: int, ttl_ms: int, keep_ms: int, limit: int) -> int:
        """See the port."""
        async with (
            translated("remove expired rows"),
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
            connection.transaction(),
        ):
            status = await connection.execute(STATEMENTS["remove_usage"], now_ms, ttl_ms, limit)
            removed = affected(status)
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

    async def now_ms(self) -> int:
        """See the port."""
        return int(await self._value("tell the time", "tell_time"))

    async def acquire_leases(
        self,
        holder: str,
        shards: Sequence[int],
        *,
        now_ms: int,
        ttl_ms: int,
        most: int | None = None,
        known: Mapping[int, int] | None = None,
    ) -> Sequence[LeaseRecord]:
        """See the port."""
        numbers = known or {}
        asked = sorted(shards)
        async with (
            translated("take leases"),
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
            connection.transaction(),
        ):
            on_record = await connection.fetchval(STATEMENTS["count_leases"], asked)
            if on_record < len(asked):
                await connection.execute(STATEMENTS["declare_leases"], asked, now_ms)
            renewed = await connection.execute(
                STATEMENTS["renew_leases"], asked, holder, now_ms, ttl_ms
            )
            room = len(asked) if most is None else max(0, most - affected(renewed))
            await connection.execute(STATEMENTS["take_leases"], asked, holder, now_ms, ttl_ms, room)
            found = await connection.fetch(
                STATEMENTS["load_leases"], asked, holder, list(numbers), list(numbers.values())
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
                    else await asyncio.to_thread(rows.memory_from_json, row["memory"])
                ),
            )
            for row in found
        ]

    async def record_epoch(
        self, shard: int, number: int, epoch: int, *, valid_until_ms: int, memory: Memory
    ) -> bool:
        """See the port."""
        text = await asyncio.to_thread(rows.memory_to_json, memory)
        count = await self._execute(
            "record an epoch", "record_epoch", shard, number, epoch, valid_until_ms, text
        )
        return count > 0

    async def exchange(self, reader: Reader, *, forget_before_ms: int, limit: int) -> BoardState:
        """See the board."""
        async with (
            translated("exchange what readers know"),
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
        ):
            await connection.execute(
                STATEMENTS["tell_reader"],
                reader.name,
                reader.heard_ms,
                reader.lag_ms,
                list(reader.partitions),
                reader.caught_up,
            )
            await connection.execute(STATEMENTS["forget_readers"], forget_before_ms)
            readers = await connection.fetch(STATEMENTS["list_readers"], forget_before_ms, limit)
            changes = await connection.fetch(STATEMENTS["list_changes"])
        return BoardState(
            tuple(
                Reader(
                    row["reader"],
                    row["heard_ms"],
                    row["lag_ms"],
                    tuple(row["partitions"]),
                    row["caught_up"],
                )
                for row in readers
            ),
            {row["shard"]: row["number"] for row in changes},
        )

    async def note_changes(self, shards: Collection[int]) -> None:
        """See the board."""
        await self._execute("note who came or left", "note_changes", sorted(set(shards)))

    async def remove_reader(self, name: str) -> None:
        """See the board."""
        await self._execute("take a reader's account away", "remove_reader", name)

    async def release_leases(self, holder: str, shards: Collection[int] | None = None) -> None:
        """See the port."""
        given = None if shards is None else sorted(shards)
        await self._execute("release leases", "release_leases", holder, given)
