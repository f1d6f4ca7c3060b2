"""What a member reports to hold, beside what of it is believed.

Until here one column was both, so that an epoch nobody had published took the place of the last
true one. What was reported is kept for the numbering of epochs only.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE permit_acknowledgement ADD COLUMN told_epoch bigint NOT NULL DEFAULT 0",
    """
    UPDATE permit_acknowledgement AS known SET told_epoch = known.epoch,
        epoch = CASE WHEN known.epoch <= coalesce(lease.epoch, 0) THEN known.epoch ELSE 0 END
    FROM permit_acknowledgement AS same LEFT JOIN permit_lease AS lease USING (shard)
    WHERE (known.host, known.instance, known.shard) = (same.host, same.instance, same.shard)
    """,
)


def upgrade() -> None:
    """Add the column."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """Refuse: there is no way back.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("restore a backup instead of going back a schema")
