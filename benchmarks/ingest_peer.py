"""What somebody would write first: reports are read and stored, an upsert a row by ``executemany``.

Decides nothing. Each upsert keeps what is newer, as the service does; a goodbye, and an epoch that
nobody has published, it takes as they come, which costs less. What is acknowledged is a row for
each member and shard (`UPSERTS`), which is how somebody would begin, or a row a member, as the
service has it (`UPSERTS_OF_SAME`). The consumer reads and decodes with the service's own parts, and
stores each read in one transaction before it reads on.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, Final

import asyncpg

from balancer.adapters.kafka.compression import decode_record
from balancer.adapters.kafka.config import KafkaConfig
from balancer.adapters.kafka.usage_log import KafkaUsageLog

READ_MOST: Final = 2_000
WAIT_MS: Final = 200
WAIT_SECONDS: Final = 300
KINDS: Final = ("member", "acknowledgement", "usage")

_MEMBER: Final = """
    INSERT INTO permit_member AS stored VALUES ($1,$2,$3,$4,$5,$6,$7)
    ON CONFLICT (host, instance) DO UPDATE
    SET group_name = excluded.group_name, instant_ms = excluded.instant_ms,
        seen_ms = excluded.seen_ms, left_ms = excluded.left_ms, spent = excluded.spent
    WHERE stored.instant_ms < excluded.instant_ms
    """

_ACKNOWLEDGEMENT: Final = """
    INSERT INTO peer_acknowledgement AS stored VALUES ($1,$2,$3,$4,$5,$6)
    ON CONFLICT (host, instance, shard) DO UPDATE
    SET epoch = excluded.epoch, acknowledged_ms = excluded.acknowledged_ms,
        told_epoch = excluded.told_epoch
    WHERE stored.epoch < excluded.epoch
    """

_EPOCHS: Final = """
    INSERT INTO permit_member_epochs AS stored VALUES ($1,$2,$3,$4,$5,$6)
    ON CONFLICT (host, instance) DO UPDATE
    SET shards = excluded.shards, epochs = excluded.epochs,
        acknowledged_ms = excluded.acknowledged_ms, told_epochs = excluded.told_epochs
    """

_USAGE: Final = """
    INSERT INTO permit_usage AS stored (destination, from_ms, instant_ms, epoch, granted, used,
        denied, starved_ms, busy_ms, host, instance, seen_ms)
    VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)
    ON CONFLICT (destination, host, instance) DO UPDATE
    SET from_ms = excluded.from_ms, instant_ms = excluded.instant_ms, epoch = excluded.epoch,
        granted = excluded.granted, used = excluded.used, denied = excluded.denied,
        starved_ms = excluded.starved_ms, busy_ms = excluded.busy_ms, seen_ms = excluded.seen_ms
    WHERE stored.instant_ms < excluded.instant_ms
    """

UPSERTS: Final = (_MEMBER, _ACKNOWLEDGEMENT, _USAGE)
UPSERTS_OF_SAME: Final = (_MEMBER, _EPOCHS, _USAGE)
"""Of members, of what they acknowledge, of accounts: the order in which the service stores, too."""

CREATE_ACKNOWLEDGEMENT: Final = """
    CREATE TABLE peer_acknowledgement (host text COLLATE "C", instance text COLLATE "C",
        shard integer, epoch bigint NOT NULL, acknowledged_ms bigint NOT NULL,
        told_epoch bigint NOT NULL, PRIMARY KEY (host, instance, shard)) WITH (fillfactor = 50)
    """


async def create_tables(sql: asyncpg.Connection[asyncpg.Record]) -> None:
    """Create the consumer's own tables, each like the service's in every respect."""
    await sql.execute(CREATE_ACKNOWLEDGEMENT)
    for name in ("member", "usage"):
        await sql.execute(f"CREATE TABLE peer_{name} (LIKE permit_{name} INCLUDING ALL)")
        await sql.execute(f"ALTER TABLE peer_{name} SET (fillfactor = 50)")


async def consume(
    kafka: KafkaConfig, sql: asyncpg.Connection[asyncpg.Record], wanted: int
) -> float:
    """Read and store until so many accounts are stored; return accounts a second."""
    log = KafkaUsageLog(replace(kafka, group_id="peer"))
    await log.start()
    stored, began = 0, 0.0
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while stored < wanted:
                records = await log.read(max_records=READ_MOST, wait_ms=WAIT_MS)
                began = began or time.perf_counter() if records else began
                kinds: dict[str, list[tuple[Any, ...]]] = {name: [] for name in KINDS}
                for record in records:
                    decoded = decode_record(record)
                    if decoded is None:
                        continue
                    batch, seen_ms = decoded.batch, time.time_ns() // 1_000_000
                    member = (batch.host, batch.instance)
                    kinds["member"].append(
                        (*member, batch.group, batch.sent_at_ms, seen_ms, None, "{}")
                    )
                    for shard, epoch in batch.epochs.items():
                        kinds["acknowledgement"].append((*member, shard, epoch, seen_ms, epoch))
                    for entry in batch.tuples:
                        kinds["usage"].append((*entry, *member, seen_ms))
                async with sql.transaction():
                    for upsert, rows in zip(UPSERTS, kinds.values(), strict=True):
                        await sql.executemany(upsert.replace("permit_", "peer_"), rows)
                await log.commit(records)
                stored += len(kinds["usage"])
            return stored / (time.perf_counter() - began)
    finally:
        await log.stop()
