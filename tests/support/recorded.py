"""Records of rounds for tests: what is kept of a round, from a few numbers."""

from __future__ import annotations

from dataclasses import replace

from balancer.core.model import Reason, RoundKind
from balancer.core.record import DestinationRecord, DetailRecord, Recorded, RoundRecord

T0 = 1_800_000_000_000
ROUND_MS = 60_000


def reason(host: str, share_points: int = 1, *, rule: str = "asked", asked: int = 1) -> Reason:
    """Return a reason of the destination ``db`` with the numbers given."""
    counts = (asked, asked, 0, 0, asked, 1, 0, share_points, 0)
    return Reason("db", host, "i", rule, *counts, wanted_permits=asked)


def round_of(
    *reasons: Reason,
    epoch: int = 1,
    shard: int = 0,
    planned_at_ms: int = T0,
    from_ms: int | None = None,
    capacity: int = 1000,
    whole: bool = True,
    outcome: str = "published",
) -> Recorded:
    """Return the record of a round that planned what the reasons name; windows are of a minute."""
    names = sorted({told.destination for told in reasons})
    begins_ms = planned_at_ms if from_ms is None else from_ms
    kind = RoundKind.REGULAR if whole else RoundKind.EARLY
    entries = len(reasons)
    told = f"shard {shard}: epoch {epoch}"
    record = RoundRecord(
        shard, epoch, kind, outcome, planned_at_ms, 7, len(names), entries, 0, 0, told
    )
    destinations, details = [], []
    for name in names:
        own = tuple(told for told in reasons if told.destination == name)
        until_ms = begins_ms + ROUND_MS
        past = DestinationRecord(
            *(name, shard, epoch, kind, planned_at_ms, begins_ms, until_ms, 60, capacity),
            *(len(own), None, None, None, None, None),
            *(sum(told.share_points for told in own), 5, 6),
        )
        if whole:
            past = replace(
                past,
                asked_permits=sum(told.asked_permits for told in own),
                wanted_permits=sum(told.wanted_permits for told in own),
                used_permits=sum(told.used_permits for told in own),
                denied_permits=sum(told.denied_permits for told in own),
                level_permits=own[0].level_permits,
            )
        destinations.append(past)
        details.append(
            DetailRecord(name, epoch, planned_at_ms, begins_ms, until_ms, 60, capacity, whole, own)
        )
    return Recorded(record, tuple(destinations), tuple(details))
