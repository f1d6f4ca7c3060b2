"""First schema: destinations, members, accounts, acknowledgements, leases, reasons.

Names compare byte for byte (COLLATE "C"); instants are Unix milliseconds, so that no time zone
plays a part. Tables rewritten each minute leave room in their pages and have no index on what
changes, so that updates stay in the page.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE permit_destination (
        name text COLLATE "C" PRIMARY KEY,
        capacity bigint NOT NULL CHECK (capacity >= 0),
        window_seconds integer NOT NULL CHECK (window_seconds > 0),
        policy jsonb NOT NULL,
        changed_at_ms bigint NOT NULL,
        removed boolean NOT NULL DEFAULT false
    )
    """,
    """
    CREATE TABLE permit_member (
        host text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        group_name text COLLATE "C",
        instant_ms bigint NOT NULL,
        seen_ms bigint NOT NULL,
        left_ms bigint,
        spent jsonb NOT NULL DEFAULT '{}',
        PRIMARY KEY (host, instance)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE permit_acknowledgement (
        host text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        shard integer NOT NULL,
        epoch bigint NOT NULL,
        acknowledged_ms bigint NOT NULL,
        PRIMARY KEY (host, instance, shard)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE permit_usage (
        host text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        destination text COLLATE "C" NOT NULL,
        from_ms bigint NOT NULL,
        instant_ms bigint NOT NULL,
        epoch bigint NOT NULL,
        granted bigint NOT NULL,
        used bigint NOT NULL,
        denied bigint NOT NULL,
        starved_ms bigint NOT NULL,
        busy_ms bigint NOT NULL,
        seen_ms bigint NOT NULL,
        PRIMARY KEY (destination, host, instance)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE permit_lease (
        shard integer PRIMARY KEY,
        number bigint NOT NULL,
        holder text NOT NULL,
        expires_ms bigint NOT NULL,
        epoch bigint NOT NULL DEFAULT 0,
        valid_until_ms bigint NOT NULL DEFAULT 0,
        memory jsonb NOT NULL DEFAULT '{}'
    )
    """,
    """
    CREATE TABLE permit_reason (
        destination text COLLATE "C" NOT NULL,
        host text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        shard integer NOT NULL,
        epoch bigint NOT NULL,
        reason jsonb NOT NULL,
        PRIMARY KEY (destination, host, instance)
    )
    """,
)


def upgrade() -> None:
    """Create the tables."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Refuse: the tables hold what is needed to stay safe.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("restore a backup instead of going back a schema")
