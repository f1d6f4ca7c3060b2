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
from balancer.ports import AcceptedBatch
from benchmarks.ingest_peer import UPSERTS, UPSERTS_OF_SAME
from worker_sdk.wire.pointer import shard_of
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple

SEED: Final = 1
SHARDS: Final = 16
DESTINATIONS: Final = 10
SAMPLE_ROWS: Final = 20_000
EPOCH_MOST: Final = 10_000_000
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

    Ours twice: two pieces at once, as the service does, and one by itself; theirs twice: a row
    for each acknowledgement, and the same rows as ours.
    """
    now_ms = time.time_ns() // 1_000_000
    sample = SAMPLE_ROWS // DESTINATIONS

    def reported(later: int) -> list[list[AcceptedBatch]]:
        """Return reports each with a newer instant and newer epochs than those before."""
        epochs = 1_000_000 + 10 * number + later
        found = reports(hosts, epochs, now_ms + later)[: 2 * sample]
        accepted = [AcceptedBatch(batch, now_ms, now_ms) for batch in found]
        return [accepted[:sample], accepted[sample:]]

    pieces, (piece, _) = reported(1), reported(2)
    given, count = rows.usage_rows(piece)
    await sql.execute("CREATE TABLE IF NOT EXISTS bare AS SELECT * FROM permit_usage WITH NO DATA")
    began = time.perf_counter()
    await sql.copy_records_to_table("bare", records=given, columns=COLUMNS)
    copied = time.perf_counter()
    await asyncio.gather(*map(repository.store_batches, pieces))
    stored = time.perf_counter()
    await repository.store_batches(piece)
    single = time.perf_counter()
    many = await _many(sql, UPSERTS, _plain_rows(reported(3)[0]))
    many_of_same = await _many(sql, UPSERTS_OF_SAME, _same_rows(reported(4)[0]))
    await sql.execute("TRUNCATE bare")
    return (
        count / (copied - began),
        sum(len(each) for each in pieces) * DESTINATIONS / (stored - copied),
        count / (single - stored),
        count / many,
        count / many_of_same,
    )


async def _many(
    sql: asyncpg.Connection[asyncpg.Record], upserts: Sequence[str], kinds: Sequence[rows.Rows]
) -> float:
    """Return how many seconds ``executemany`` takes for these rows."""
    began = time.perf_counter()
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
