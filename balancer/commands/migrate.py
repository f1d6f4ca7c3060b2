"""``permit-balancer migrate``: bring the database's schema up to date."""

from __future__ import annotations

from pathlib import Path

import click

from balancer.commands.common import config_option, json_option, print_json, settings_of


@click.command()
@config_option
@json_option
def migrate(*, config_file: Path | None, as_json: bool) -> None:
    """Bring the database of PERMIT_POSTGRES_DSN up to date.

    Needs a role that may create tables; `serve` needs one that reads and writes rows. Two at once
    wait for one another. Running it again does nothing.
    """
    from balancer.adapters.postgres.schema import migrate as run  # noqa: PLC0415
    from balancer.compose import postgres_dsn  # noqa: PLC0415

    revision = run(postgres_dsn(settings_of(config_file)))
    if as_json:
        print_json({"revision": revision})
    else:
        click.echo(f"the schema is at revision {revision}")
