"""What each member holds, in one row a member; until here it was a row for each shard.

A member reports what it holds of every shard at once, so each report wrote one row more for each.
permit_acknowledgement stays: a process of an earlier version still writes to it and reads it.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE permit_member_epochs (
        host text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        shards integer[] NOT NULL,
        epochs bigint[] NOT NULL,
        acknowledged_ms bigint[] NOT NULL,
        told_epochs bigint[] NOT NULL,
        PRIMARY KEY (host, instance)
    ) WITH (fillfactor = 50)
    """,
    """
    INSERT INTO permit_member_epochs
    SELECT host, instance, array_agg(shard), array_agg(epoch), array_agg(acknowledged_ms),
        array_agg(told_epoch)
    FROM permit_acknowledgement GROUP BY host, instance
    """,
)


def upgrade() -> None:
    """Create the table and fill it with what is known."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Refuse: there is no way back.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("restore a backup instead of going back a schema")
