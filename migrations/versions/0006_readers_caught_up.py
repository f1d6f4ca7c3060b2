"""Whether a reader has worked off what it found at its start.

Only one that has can speak for another that is still joining the group.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

STATEMENTS = (
    # A process of an earlier version, which does not say, was believed to have.
    "ALTER TABLE permit_reader ADD COLUMN caught_up boolean NOT NULL DEFAULT true",
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
