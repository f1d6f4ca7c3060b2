"""History: rounds as a whole, destinations round by round and over ten minutes, members compact.

Rows are only added, and removed when they are old; so indexes on instants stay small and cheap. The
members of a destination in a round are one row, in JSON by columns, which PostgreSQL compresses and
keeps out of the way. permit_reason stays: a leader of an earlier version still writes to it.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE permit_history_round (
        shard integer NOT NULL,
        planned_at_ms bigint NOT NULL,
        epoch bigint NOT NULL,
        kind text NOT NULL,
        outcome text NOT NULL,
        took_ms bigint NOT NULL,
        destinations integer NOT NULL,
        entries bigint NOT NULL,
        holds bigint NOT NULL,
        held_points bigint NOT NULL,
        sentence text NOT NULL,
        PRIMARY KEY (shard, planned_at_ms, epoch)
    )
    """,
    "CREATE INDEX permit_history_round_age ON permit_history_round (planned_at_ms)",
    """
    CREATE TABLE permit_history_destination (
        destination text COLLATE "C" NOT NULL,
        shard integer NOT NULL,
        epoch bigint NOT NULL,
        kind text NOT NULL,
        planned_at_ms bigint NOT NULL,
        from_ms bigint NOT NULL,
        until_ms bigint NOT NULL,
        window_seconds integer NOT NULL,
        capacity bigint NOT NULL,
        members integer NOT NULL,
        asked_permits bigint,
        wanted_permits bigint,
        used_permits bigint,
        denied_permits bigint,
        level_permits bigint,
        given_points bigint NOT NULL,
        held_points bigint NOT NULL,
        free_points bigint NOT NULL,
        shadow_moved_points bigint,
        PRIMARY KEY (destination, planned_at_ms, epoch)
    )
    """,
    "CREATE INDEX permit_history_destination_age ON permit_history_destination (planned_at_ms)",
    """
    CREATE TABLE permit_history_span (
        destination text COLLATE "C" NOT NULL,
        shard integer NOT NULL,
        from_ms bigint NOT NULL,
        rounds bigint NOT NULL,
        planned_rounds bigint NOT NULL,
        capacity_least bigint NOT NULL,
        capacity_most bigint NOT NULL,
        members_least integer NOT NULL,
        members_most integer NOT NULL,
        asked_permits numeric NOT NULL,
        asked_most bigint,
        wanted_permits numeric NOT NULL,
        used_permits numeric NOT NULL,
        denied_permits numeric NOT NULL,
        denied_most bigint,
        level_least bigint,
        level_most bigint,
        given_points numeric NOT NULL,
        held_points numeric NOT NULL,
        held_most bigint NOT NULL,
        free_points numeric NOT NULL,
        shadow_moved_most bigint,
        PRIMARY KEY (destination, from_ms)
    )
    """,
    "CREATE INDEX permit_history_span_age ON permit_history_span (from_ms)",
    """
    CREATE TABLE permit_history_detail (
        destination text COLLATE "C" NOT NULL,
        epoch bigint NOT NULL,
        planned_at_ms bigint NOT NULL,
        from_ms bigint NOT NULL,
        until_ms bigint NOT NULL,
        window_seconds integer NOT NULL,
        capacity bigint NOT NULL,
        whole boolean NOT NULL,
        left_out integer NOT NULL DEFAULT 0,
        members json NOT NULL,
        PRIMARY KEY (destination, planned_at_ms, epoch)
    )
    """,
    "CREATE INDEX permit_history_detail_age ON permit_history_detail (until_ms)",
)


def upgrade() -> None:
    """Create the tables."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Refuse: there is no way back.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("restore a backup instead of going back a schema")
