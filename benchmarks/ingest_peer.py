"""What somebody would write first to store reports: an upsert a row, by ``executemany``.

Decides nothing. Each keeps what is newer, as the service does; a goodbye, and an epoch that nobody
has published, it takes as they come, which costs less.
"""

from __future__ import annotations

from typing import Final

UPSERTS: Final = (
    """
    INSERT INTO permit_member AS stored VALUES ($1,$2,$3,$4,$5,$6,$7)
    ON CONFLICT (host, instance) DO UPDATE
    SET group_name = excluded.group_name, instant_ms = excluded.instant_ms,
        seen_ms = excluded.seen_ms, left_ms = excluded.left_ms, spent = excluded.spent
    WHERE stored.instant_ms < excluded.instant_ms
    """,
    """
    INSERT INTO permit_acknowledgement AS stored VALUES ($1,$2,$3,$4,$5,$6)
    ON CONFLICT (host, instance, shard) DO UPDATE
    SET epoch = excluded.epoch, acknowledged_ms = excluded.acknowledged_ms,
        told_epoch = excluded.told_epoch
    WHERE stored.epoch < excluded.epoch
    """,
    """
    INSERT INTO permit_usage AS stored (destination, from_ms, instant_ms, epoch, granted, used,
        denied, starved_ms, busy_ms, host, instance, seen_ms)
    VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)
    ON CONFLICT (destination, host, instance) DO UPDATE
    SET from_ms = excluded.from_ms, instant_ms = excluded.instant_ms, epoch = excluded.epoch,
        granted = excluded.granted, used = excluded.used, denied = excluded.denied,
        starved_ms = excluded.starved_ms, busy_ms = excluded.busy_ms, seen_ms = excluded.seen_ms
    WHERE stored.instant_ms < excluded.instant_ms
    """,
)
"""Of members, of what they acknowledge, of accounts: the order in which the service stores, too."""
