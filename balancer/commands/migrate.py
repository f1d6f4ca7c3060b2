"""``permit-balancer migrate``: bring the database's schema up to date."""

from __future__ import annotations

import click


@click.command()
def migrate() -> None:
    """Bring the database of PERMIT_POSTGRES_DSN up to date.

    Needs a role that may create tables. Two at once wait for one another.
    """
    from balancer.adapters.postgres.schema import migrate as run  # noqa: PLC0415
    from balancer.settings import load_database_settings  # noqa: PLC0415

    revision = run(load_database_settings().postgres_dsn.get_secret_value())
    click.echo(f"schema is at revision {revision}")
