"""``permit-balancer destinations``: list, show, set and remove what is protected.

Decides how options name a change. Writes to the database; a running balancer sees it within
seconds.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from balancer.commands.common import (
    config_option,
    json_option,
    print_json,
    print_table,
    settings_of,
)
from balancer.commands.policy_options import policy_lines, policy_options, policy_parts
from balancer.errors import PolicyError

if TYPE_CHECKING:
    from balancer.core.model import Destination
    from balancer.settings import Settings


@click.group()
def destinations() -> None:
    """List, show, set and remove destinations (needs PERMIT_POSTGRES_DSN)."""


async def _all(settings: Settings) -> list[Destination]:
    from balancer.compose import opened_repository  # noqa: PLC0415

    async with opened_repository(settings) as repository:
        return list(await repository.list_destinations())


@destinations.command("list")
@config_option
@json_option
def list_destinations(*, config_file: Path | None, as_json: bool) -> None:
    """List every destination."""
    from balancer.app.destinations import as_json as told  # noqa: PLC0415

    found = asyncio.run(_all(settings_of(config_file)))
    if as_json:
        print_json({"destinations": [told(destination) for destination in found]})
        return
    if not found:
        click.echo("no destination yet; for example: destinations set orders-db --capacity 600")
        return
    rows = [
        [entry.name, entry.capacity, f"{entry.window_seconds} s", entry.policy.strategy.value]
        for entry in found
    ]
    print_table(["destination", "capacity", "window", "strategy"], rows)


@destinations.command()
@click.argument("name")
@config_option
@json_option
def show(*, name: str, config_file: Path | None, as_json: bool) -> None:
    """Show one destination with its policy."""
    from balancer.app.destinations import as_json as told  # noqa: PLC0415

    found = {entry.name: entry for entry in asyncio.run(_all(settings_of(config_file)))}
    if name not in found:
        raise click.ClickException(f"there is no destination {name!r}")
    _tell(told(found[name]), as_json=as_json)


@destinations.command("set", short_help="Create a destination or change some of its values.")
@click.argument("name")
@click.option("--capacity", type=int, help="Permits a window for all workers together; 0 closes.")
@click.option("--window-seconds", type=int, help="Length of a window; fixed once set.  [60]")
@policy_options
@config_option
@json_option
def set_destination(*, name: str, config_file: Path | None, as_json: bool, **options: Any) -> None:
    """Create a destination or change what is named of it; the rest stays as it is.

    It goes to the database and not to a balancer, so PERMIT_ROUND_SECONDS must be the balancers':
    a window must divide the round, or be a multiple of it.
    """
    from balancer.app.destinations import as_json as told  # noqa: PLC0415

    settings = settings_of(config_file)
    destination, outcome = asyncio.run(_set(settings, name, options))
    if not as_json:
        click.echo(f"{name}: {outcome}")
        if options["window_seconds"] is not None:
            click.echo(
                f"  its window goes with PERMIT_ROUND_SECONDS={settings.round_seconds} of this "
                "command, which must be the balancer's"
            )
    _tell(told(destination), as_json=as_json)


async def _set(
    settings: Settings, name: str, options: Mapping[str, Any]
) -> tuple[Destination, str]:
    """Return the destination as it is now, and whether it was created, changed or left as it was.

    Raises:
        UsageError: where nothing is named to change.
        PolicyError: where a value is wrong.
    """
    from balancer.app.destinations import changed  # noqa: PLC0415
    from balancer.compose import opened_repository  # noqa: PLC0415

    parts = policy_parts(options)
    values = (options["capacity"], options["window_seconds"])
    async with opened_repository(settings) as repository:
        known = {
            entry.name: entry for entry in await repository.list_destinations(include_removed=True)
        }
        before = known.get(name)
        if before is not None and not before.removed and not parts and values == (None, None):
            raise click.UsageError(
                f"nothing is named to change of {name!r}; for example --capacity "
                f"{before.capacity}, or permit-balancer destinations show {shlex.quote(name)}"
            )
        try:
            destination = changed(
                before,
                name,
                capacity=options["capacity"],
                window_seconds=options["window_seconds"],
                policy=parts,
                now_ms=time.time_ns() // 1_000_000,
                round_seconds=settings.round_seconds,
            )
        except PolicyError as error:
            if "PERMIT_ROUND_SECONDS" not in str(error):
                raise
            words = "that is this command's setting, which must be the balancer's"
            raise PolicyError(f"{error}; {words}") from error
        if await repository.put_destination(destination):
            return destination, "created"
        return destination, "as it was" if _is_same(before, destination) else "changed"


def _is_same(before: Destination | None, after: Destination) -> bool:
    return before is not None and replace(before, changed_at_ms=after.changed_at_ms) == after


@destinations.command(short_help="Close a destination, and forget it later.")
@click.argument("name")
@config_option
@json_option
def remove(*, name: str, config_file: Path | None, as_json: bool) -> None:
    """Close a destination and forget it once no share of it is valid any more."""
    if not asyncio.run(_remove(settings_of(config_file), name)):
        raise click.ClickException(f"there is no destination {name!r}")
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        click.echo(f"{name}: closed; it is forgotten when no share of it is valid any more")


async def _remove(settings: Settings, name: str) -> bool:
    from balancer.compose import opened_repository  # noqa: PLC0415

    async with opened_repository(settings) as repository:
        return await repository.remove_destination(name, now_ms=time.time_ns() // 1_000_000)


def _tell(value: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(value)
        return
    click.echo(f"  capacity           {value['capacity']} permits a window")
    click.echo(f"  window             {value['window_seconds']} s")
    for line in policy_lines(value["policy"]):
        click.echo(line)
