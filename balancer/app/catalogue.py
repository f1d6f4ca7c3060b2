"""Every metric by name: kind, unit, labels and meaning. The reference page comes from here.

Decides names only; an adapter counts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

REJECTED: Final = "permit_ingest_rejected_total"
REJECTED_NOT_KEPT: Final = "permit_ingest_rejected_not_kept_total"
CLAMPED: Final = "permit_ingest_clamped_total"
EXPIRED: Final = "permit_ingest_expired_total"
SKIPPED: Final = "permit_ingest_skipped_total"
STORED: Final = "permit_ingest_stored_total"
STALE: Final = "permit_ingest_stale_total"
STORE_RETRIES: Final = "permit_ingest_store_retries_total"
LAG_RECORDS: Final = "permit_ingest_lag_records"
ROUNDS: Final = "permit_rounds_total"
ROUNDS_LATE: Final = "permit_rounds_late_total"
ROUND_SECONDS: Final = "permit_round_seconds"
BROKEN: Final = "permit_invariants_broken_total"
EPOCH: Final = "permit_epoch"
LEADING: Final = "permit_leading_shards"
LEARNING: Final = "permit_learning_shards"
HTTP_REQUESTS: Final = "permit_http_requests_total"
HTTP_WAITING: Final = "permit_http_waiting"
CLOCK_AHEAD: Final = "permit_clock_ahead_seconds"
DEPENDENCY_UP: Final = "permit_dependency_up"
DEPENDENCY_SECONDS: Final = "permit_dependency_seconds"
TASK_RESTARTS: Final = "permit_task_restarts_total"
HELD_POINTS: Final = "permit_held_points"
HOLDS: Final = "permit_holds"
LENT_POINTS: Final = "permit_lent_points"
SHADOW_MOVED: Final = "permit_shadow_moved_ratio"
SHADOW_LARGEST: Final = "permit_shadow_largest_ratio"
UNMEASURED: Final = "permit_destinations_unmeasured"
FILES_REMOVED: Final = "permit_files_removed_total"
ROWS_REMOVED: Final = "permit_rows_removed_total"
HISTORY_LOST: Final = "permit_history_lost_total"
HISTORY_REMOVED: Final = "permit_history_removed_total"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()


BY_DESTINATION_MAX: Final = 1_000
"""So many destinations have measures of their own; the others are counted as `UNMEASURED`."""

CATALOGUE: Final = (
    Metric(REJECTED, "counter", "messages and tuples", "Refused on validation", ("reason",)),
    Metric(REJECTED_NOT_KEPT, "counter", "messages", "Refused and lost: the topic was away"),
    Metric(CLAMPED, "counter", "instants", "Set back from the future to the trusted clock"),
    Metric(EXPIRED, "counter", "tuples", "Left out: past the TTL when they came"),
    Metric(SKIPPED, "counter", "messages", "Found at start on a topic without LogAppendTime"),
    Metric(STORED, "counter", "tuples", "Written to PostgreSQL"),
    Metric(STALE, "counter", "tuples", "Changed nothing: older than or equal to the stored one"),
    Metric(
        STORE_RETRIES,
        "counter",
        "attempts",
        "PostgreSQL was away or took no writes, and is tried again",
    ),
    Metric(LAG_RECORDS, "gauge", "records", "Waiting in the partitions of this process"),
    Metric(ROUNDS, "counter", "rounds", "Rounds run, by what came of them", ("outcome",)),
    Metric(
        ROUNDS_LATE, "counter", "rounds", "Regular ones that ended after the round they were due in"
    ),
    Metric(ROUND_SECONDS, "histogram", "seconds", "From the snapshot to the published pointer"),
    Metric(BROKEN, "counter", "rounds", "Stopped: the document would have broken an invariant"),
    Metric(EPOCH, "gauge", "epoch", "Newest epoch published", ("shard",)),
    Metric(LEADING, "gauge", "shards", "Planned by this process"),
    Metric(LEARNING, "gauge", "shards", "Repeating their last shares"),
    Metric(HTTP_REQUESTS, "counter", "requests", "Answered", ("route", "status")),
    Metric(HTTP_WAITING, "gauge", "requests", "Held until something changes"),
    Metric(
        DEPENDENCY_UP,
        "gauge",
        "0 or 1",
        "Answered when it was last asked, and took what was written to it",
        ("dependency",),
    ),
    Metric(
        DEPENDENCY_SECONDS,
        "histogram",
        "seconds",
        "A call to a dependency took, to its end or failure: check, or what is written",
        ("dependency", "call"),
    ),
    Metric(CLOCK_AHEAD, "gauge", "seconds", "This machine's clock, beside PostgreSQL's"),
    Metric(TASK_RESTARTS, "counter", "restarts", "A part of the service failed", ("task",)),
    Metric(
        HELD_POINTS, "gauge", "points", "Kept back for who may still be spending", ("destination",)
    ),
    Metric(HOLDS, "gauge", "holds", "Members that points are kept back for", ("destination",)),
    Metric(
        LENT_POINTS,
        "gauge",
        "points",
        "Of what a policy lends: no longer free in the newest document",
        ("destination",),
    ),
    Metric(
        SHADOW_MOVED,
        "gauge",
        "part of the capacity",
        "The shadow strategy would give it to others",
        ("destination",),
    ),
    Metric(
        SHADOW_LARGEST,
        "gauge",
        "part of the capacity",
        "Largest difference that the shadow strategy makes for one member",
        ("destination",),
    ),
    Metric(
        UNMEASURED,
        "gauge",
        "destinations",
        f"Without the measures by destination, since {BY_DESTINATION_MAX} have them",
    ),
    Metric(FILES_REMOVED, "counter", "files", "Old documents removed from the store"),
    Metric(ROWS_REMOVED, "counter", "rows", "Expired rows removed from PostgreSQL"),
    Metric(HISTORY_LOST, "counter", "rounds", "Published as planned, but not kept in history"),
    Metric(
        HISTORY_REMOVED, "counter", "rows", "Of history, summed up or removed since they are old"
    ),
)
