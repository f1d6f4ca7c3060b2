"""``permit-balancer explain``: why members have their shares of a destination.

Decides what is read and how it is printed. The words are the application's; the numbers are the
planner's, as stored with the round.
"""

from __future__ import annotations

import asyncio
import contextlib
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from balancer.commands.common import (
    config_option,
    json_option,
    print_json,
    print_table,
    settings_of,
)
from balancer.commands.history import TIME_HELP, instant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from balancer.app.explanation import Explanation
    from balancer.settings import Settings
    from worker_sdk.wire.distribution import Document

COLUMNS: Final = 100


@click.command()
@click.option("--destination", required=True, help="Its name.")
@click.option("--host", help="The host's name; all its members are told in sentences.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="So many members at most, the largest shares first.",
)
@click.option(
    "--at", "at_ms", metavar="TIME", callback=instant, help=f"As it was then: {TIME_HELP}"
)
@config_option
@json_option
def explain(
    *,
    destination: str,
    host: str | None,
    limit: int,
    at_ms: int | None,
    config_file: Path | None,
    as_json: bool,
) -> None:
    """Say why a host has its share: what it asked, which rule decided, what would change it.

    Without --host a table of the destination's members, the largest shares first. Tells the last
    round in which the destination was planned, or with --at the one by which shares were then in
    force. Needs PERMIT_POSTGRES_DSN; with PERMIT_S3_BUCKET it also tells until when reserved points
    are kept.
    """
    from balancer.app.explanation import (  # noqa: PLC0415
        explanation_as_json,
        not_planned,
        paragraph,
        table_rows,
    )

    settings = settings_of(config_file)
    found = asyncio.run(_explained(settings, destination, host, limit, at_ms))
    if found is None:
        raise click.ClickException(f"there is no destination {destination!r}")
    if not found.cases:
        raise click.ClickException(not_planned(destination, host, at_ms))
    if as_json:
        print_json(explanation_as_json(found))
    elif host is None:
        head, rows = table_rows(found)
        print_table(head, rows)
    else:
        click.echo("\n\n".join(textwrap.fill(paragraph(case), COLUMNS) for case in found.cases))
    if found.more and not as_json:
        click.echo(f"\nThese are the {limit} largest shares; --limit tells more.")


async def _explained(
    settings: Settings, name: str, host: str | None, limit: int, at_ms: int | None
) -> Explanation | None:
    from balancer.app.explanation import dated, explained  # noqa: PLC0415
    from balancer.compose import opened_repository  # noqa: PLC0415

    async with opened_repository(settings) as repository:
        found = await explained(repository, name, host=host, limit=limit, at_ms=at_ms)
    if found is None or not any(case.reason.reserved_points for case in found.cases):
        return found
    return dated(found, await _documents(settings, name))


async def _documents(settings: Settings, name: str) -> Sequence[Document]:
    """Return the destination's unexpired documents; none where the store cannot be asked."""
    from balancer.compose import opened_store  # noqa: PLC0415
    from balancer.errors import BalancerError  # noqa: PLC0415
    from worker_sdk.wire.pointer import shard_of  # noqa: PLC0415

    if settings.s3_bucket is None:
        return ()
    with contextlib.suppress(BalancerError):  # dates are told where they can be, no more
        async with opened_store(settings) as store:
            shards, _ = await store.open_layout(settings.shards, create=False)
            now_ms = time.time_ns() // 1_000_000
            return (await store.load(shard_of(name, shards), now_ms=now_ms)).documents
    return ()
