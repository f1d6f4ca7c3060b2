"""``permit-balancer history``: what happened to a destination, at an instant or over a time.

Decides what is asked and how it is printed. What is kept, and the words, are the application's.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from balancer.commands.common import (
    config_option,
    json_option,
    print_json,
    print_table,
    settings_of,
)

if TYPE_CHECKING:
    from balancer.app.history_report import Moment, Stretch
    from balancer.settings import Settings

TIME_HELP: Final = (
    "2026-11-30T03:12Z, 03:12 (today, UTC), -15m (s, m, h, d), now, or Unix milliseconds."
)


def instant(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Return an option's instant, or say which forms are good."""
    from balancer.app.instants import parse_instant  # noqa: PLC0415
    from balancer.errors import InstantError  # noqa: PLC0415

    try:
        return None if value is None else parse_instant(value, time.time_ns() // 1_000_000)
    except InstantError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.option("--destination", required=True, help="Its name.")
@click.option("--host", help="Tell the shares of this host's members.")
@click.option("--at", "at_ms", metavar="TIME", callback=instant, help=f"One instant: {TIME_HELP}")
@click.option(
    "--from",
    "from_ms",
    metavar="TIME",
    callback=instant,
    default="-1h",
    show_default=True,
    help="From here on.",
)
@click.option(
    "--to",
    "until_ms",
    metavar="TIME",
    callback=instant,
    default="now",
    show_default=True,
    help="To before here.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=1_000,
    show_default=True,
    help="So many rounds, or members at one instant, at most.",
)
@config_option
@json_option
def history(
    *,
    destination: str,
    host: str | None,
    at_ms: int | None,
    from_ms: int,
    until_ms: int,
    limit: int,
    config_file: Path | None,
    as_json: bool,
) -> None:
    """Say what happened to a destination: demand, shares and held points, round by round.

    With --at, what was in force at that instant, with its members. Members are kept for
    PERMIT_HISTORY_DETAIL_HOURS, the rest for PERMIT_HISTORY_DAYS, after a day as ten minutes each.
    Needs PERMIT_POSTGRES_DSN. Times are UTC.
    """
    settings = settings_of(config_file)
    if at_ms is not None:
        if any(_is_given(name) for name in ("from_ms", "until_ms")):
            raise click.UsageError("give --at, or --from and --to")
        _tell_moment(destination, _moment(settings, destination, at_ms, host, limit), as_json, host)
        return
    if until_ms <= from_ms:
        raise click.UsageError("--to must be later than --from")
    told = _stretch(settings, destination, (from_ms, until_ms), host, limit)
    _tell_stretch(destination, told, as_json, host)


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is not ParameterSource.DEFAULT


def _moment(settings: Settings, name: str, at_ms: int, host: str | None, limit: int) -> Moment:
    from balancer.app.history_report import at_moment  # noqa: PLC0415
    from balancer.compose import opened_repository  # noqa: PLC0415

    async def read() -> Moment:
        async with opened_repository(settings) as repository:
            return await at_moment(repository, name, at_ms, host=host, limit=limit)

    return asyncio.run(read())


def _stretch(
    settings: Settings, name: str, stretch_ms: tuple[int, int], host: str | None, limit: int
) -> Stretch:
    from balancer.app.history_report import in_stretch  # noqa: PLC0415
    from balancer.compose import opened_repository  # noqa: PLC0415

    async def read() -> Stretch:
        async with opened_repository(settings) as repository:
            return await in_stretch(repository, name, stretch_ms, host=host, limit=limit)

    return asyncio.run(read())


def _unknown(name: str) -> click.ClickException:
    return click.ClickException(
        f"there is no destination {name!r}, and nothing is kept of one of that name from then"
    )


def _tell_moment(name: str, told: Moment, as_json: bool, host: str | None) -> None:
    from balancer.app.explanation import not_planned, table_rows  # noqa: PLC0415
    from balancer.app.history_report import moment_as_json, moment_lines  # noqa: PLC0415

    if told.record is None and told.explanation is None:
        raise _unknown(name)
    if as_json:
        print_json(moment_as_json(name, told))
        return
    for line in moment_lines(name, told):
        click.echo(line)
    if told.record is None:
        return
    click.echo()
    if told.explanation is None or not told.explanation.cases:
        click.echo(not_planned(name, host, told.at_ms))
        return
    head, rows = table_rows(told.explanation)
    print_table(head, rows)
    if told.explanation.more:
        click.echo("(the largest shares; --limit tells more)")


def _tell_stretch(name: str, told: Stretch, as_json: bool, host: str | None) -> None:
    from balancer.app.history_report import (  # noqa: PLC0415
        HOST_HEAD,
        STRETCH_HEAD,
        host_rows,
        incident_lines,
        stretch_as_json,
        stretch_rows,
    )
    from balancer.app.instants import date_and_time  # noqa: PLC0415

    if told.is_empty and not told.is_known:
        raise _unknown(name)
    if as_json:
        print_json(stretch_as_json(name, told))
        return
    head, rows = (
        (STRETCH_HEAD, stretch_rows(told)) if host is None else (HOST_HEAD, host_rows(told))
    )
    if rows:
        print_table(head, rows)
    else:
        whom = name if host is None else f"the host {host!r} at {name}"
        click.echo(
            f"nothing is kept of {whom} from {date_and_time(told.from_ms)} to "
            f"{date_and_time(told.until_ms)} UTC"
        )
    lines = incident_lines(told)
    if lines:
        click.echo("\nrounds of its shard that published nothing:")
    for line in lines:
        click.echo(line)
    if told.more:
        click.echo("\nthere is more, and the latest is missing: raise --limit or --from")
