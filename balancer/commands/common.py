"""What several commands have in common: settings, JSON for programs, tables for people.

Decides how values look on a terminal, and that a variable which nothing reads is told on standard
error. Knows no dependency.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from balancer.settings import Settings

_F = TypeVar("_F", bound=Callable[..., Any])

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A TOML file with settings, for example round_seconds = 60; the environment goes first.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def settings_of(config_file: Path | None) -> Settings:
    """Return the settings; warn of variables that look like one and are none.

    Raises:
        SettingsError: as `balancer.settings.load_settings`.
    """
    from balancer import settings  # noqa: PLC0415 - loads what help and completion do not need

    for line in settings.unknown_variables():
        click.echo(f"permit-balancer: warning: {line}", err=True)
    return settings.load_settings(config_file)


def print_json(value: object) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a head, columns aligned; numbers to the right."""
    table = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[number]) for row in table) for number in range(len(head))]
    for place, row in enumerate(table):
        cells = [
            cell.rjust(width)
            if place and not isinstance(rows[place - 1][number], str)
            else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())


def percent(points: int) -> str:
    """Return points as a percentage for people."""
    return f"{points / 10_000_000:.3f} %"
