"""Readers of the log, and how often each shard was spoken of by those who do not plan it.

One row a replica and one a shard, rewritten in place: nothing that changes has an index.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE permit_reader (
        reader text COLLATE "C" PRIMARY KEY,
        heard_ms bigint NOT NULL,
        lag_ms bigint NOT NULL,
        partitions integer[] NOT NULL
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE permit_change (
        shard integer PRIMARY KEY,
        number bigint NOT NULL
    ) WITH (fillfactor = 50)
    """,
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
