"""Storing by itself, without Kafka: the service's, bare COPY, and ``executemany``.

Decides what every host reports in a round, and what is compared with what.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Final

import asyncpg

from balancer.adapters.postgres import rows
from balancer.adapters.postgres.repository import PostgresRepository
from balancer.app.ingest import PIECE_ROWS
from balancer.ports import AcceptedBatch
from benchmarks.ingest_peer import UPSERTS, UPSERTS_OF_SAME
from worker_sdk.wire.pointer import shard_of
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple

SEED: Final = 1
SHARDS: Final = 16
DESTINATIONS: Final = 10
EPOCH_MOST: Final = 10_000_000
PIECE_MEMBERS: Final = PIECE_ROWS // (1 + DESTINATIONS + 6)
"""So many make a piece: each has a row, ten accounts, and what it holds of six shards."""
MEMBER_FIELDS: Final = 7
COLUMNS: Final = (*UsageTuple._fields, "host", "instance", "seen_ms")


def reports(
    hosts: int, number: int, now_ms: int, destinations: int = DESTINATIONS
) -> list[UsageBatch]:
    """Return what every host reports in a round: an account for each destination."""
    rng = random.Random(SEED + number)
    names = [f"destination-{index}" for index in range(destinations)]
    epochs = {shard_of(name, SHARDS): number + 1 for name in names}
    return [
        UsageBatch(
            f"host-{host:05d}",
            f"i{host:08x}",
            now_ms,
            MemberState.RUNNING,
            None,
            epochs,
            tuple(
                UsageTuple(
                    name,
                    now_ms - 60_000,
                    now_ms,
                    number + 1,
                    rng.randrange(900),
                    rng.randrange(900),
                    rng.randrange(50),
                    0,
                    rng.randrange(60_000),
                )
                for name in names
            ),
        )
        for host in range(hosts)
    ]


async def storing(
    repository: PostgresRepository, sql: asyncpg.Connection[asyncpg.Record], hosts: int, number: int
) -> tuple[float, ...]:
    """Return accounts a second: of COPY, of our storing, and of ``executemany`` upserts.

    Each stores what all hosts report, in pieces as the service cuts them. Ours twice: two pieces
    at once, as the service does, and one at a time; theirs twice, each piece a transaction: a row
    for each acknowledgement, and the same rows as ours.
    """
    now_ms = time.time_ns() // 1_000_000

    def reported(later: int) -> list[list[AcceptedBatch]]:
        """Return reports each with a newer instant and newer epochs than those before."""
        epochs = 1_000_000 + 10 * number + later
        found = reports(hosts, epochs, now_ms + later)
        accepted = [AcceptedBatch(batch, now_ms, now_ms) for batch in found]
        return [accepted[at : at + PIECE_MEMBERS] for at in range(0, hosts, PIECE_MEMBERS)]

    seconds = [
        await _copied(sql, reported(1)),
        await _stored(repository, reported(1), at_once=2),
        await _stored(repository, reported(2), at_once=1),
        await _many(sql, UPSERTS, [_plain_rows(piece) for piece in reported(3)]),
        await _many(sql, UPSERTS_OF_SAME, [_same_rows(piece) for piece in reported(4)]),
    ]
    return tuple(hosts * DESTINATIONS / taken for taken in seconds)


async def _copied(
    sql: asyncpg.Connection[asyncpg.Record], pieces: Sequence[Sequence[AcceptedBatch]]
) -> float:
    """Return how many seconds COPY of the accounts into a table without a key takes."""
    await sql.execute("CREATE TABLE IF NOT EXISTS bare AS SELECT * FROM permit_usage WITH NO DATA")
    given = [rows.usage_rows(piece)[0] for piece in pieces]
    began = time.perf_counter()
    for found in given:
        await sql.copy_records_to_table("bare", records=found, columns=COLUMNS)
    taken = time.perf_counter() - began
    await sql.execute("TRUNCATE bare")
    return taken


async def _stored(
    repository: PostgresRepository, pieces: Sequence[Sequence[AcceptedBatch]], *, at_once: int
) -> float:
    """Return how many seconds the service's own storing takes, so many pieces at once."""
    waiting = iter(pieces)

    async def store() -> None:
        for piece in waiting:
            await repository.store_batches(piece)

    began = time.perf_counter()
    await asyncio.gather(*(store() for _ in range(at_once)))
    return time.perf_counter() - began


async def _many(
    sql: asyncpg.Connection[asyncpg.Record],
    upserts: Sequence[str],
    pieces: Sequence[Sequence[rows.Rows]],
) -> float:
    """Return how many seconds ``executemany`` takes for these rows."""
    began = time.perf_counter()
    for kinds in pieces:
        async with sql.transaction():
            for upsert, found in zip(upserts, kinds, strict=True):
                await sql.executemany(upsert, found)
    return time.perf_counter() - began


def _plain_rows(accepted: Sequence[AcceptedBatch]) -> tuple[rows.Rows, ...]:
    """Return the rows of members, of each (member, shard), of accounts."""
    acknowledged = [
        (each.batch.host, each.batch.instance, shard, epoch, each.arrived_ms, epoch)
        for each in accepted
        for shard, epoch in each.batch.epochs.items()
    ]
    members = [row[:MEMBER_FIELDS] for row in rows.member_rows(accepted, {})]
    return members, acknowledged, rows.usage_rows(accepted)[0]


def _same_rows(accepted: Sequence[AcceptedBatch]) -> tuple[rows.Rows, ...]:
    """Return the rows of members, of what each holds, of accounts."""
    members, _, usage = _plain_rows(accepted)
    held = [
        (
            each.batch.host,
            each.batch.instance,
            list(each.batch.epochs),
            list(each.batch.epochs.values()),
            [each.arrived_ms] * len(each.batch.epochs),
            list(each.batch.epochs.values()),
        )
        for each in accepted
    ]
    return members, held, usage
