"""Runs migrations on the connection that `balancer.adapters.postgres.schema` opened.

Decides nothing but the transaction: all steps in one, so that a failed one leaves nothing behind.
"""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="permit_schema_version",
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
