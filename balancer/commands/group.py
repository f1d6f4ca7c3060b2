"""The commands by name, and what their failures look like.

Decides which module holds a command and which exit code a fault has. Loads a command when it is
called, so that help and completion are quick.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import click

from balancer.errors import InstantError, PolicyError, SettingsError
from worker_sdk.errors import ConfigurationError, PermitError

FAILED: Final = 1
WRONG_USAGE: Final = 2

COMMANDS: Final = {
    "demo": ("balancer.commands.demo", "run servers, balancer and workers here and watch"),
    "serve": ("balancer.commands.serve", "run the balancer"),
    "migrate": ("balancer.commands.migrate", "bring the database's schema up to date"),
    "doctor": ("balancer.commands.doctor", "check every dependency and say the remedy"),
    "destinations": ("balancer.commands.destinations", "list, show, set and remove destinations"),
    "distribution": ("balancer.commands.distribution", "show the shares that are published"),
    "simulate": ("balancer.commands.simulate", "run a fleet on a virtual clock and sum it up"),
    "explain": ("balancer.commands.explain", "say why a host got its share"),
    "history": ("balancer.commands.history", "say what happened, at an instant or over a time"),
}
"""Command to its module, and what it does in a few words. The attribute has the command's name."""


class LazyGroup(click.Group):
    """A group whose commands are loaded when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


def _version() -> str:
    try:
        return version("permit-balancer")
    except PackageNotFoundError:
        return "unknown"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), message="permit-balancer %(version)s")
def group() -> None:
    """Share the fixed capacity of a destination among a fleet of workers.

    Settings come from the environment (PERMIT_...) or from a file, which the command is given by
    --config. To try everything out: permit-balancer demo.
    """


def run(arguments: Sequence[str] | None) -> int:
    """Run the command line; return its exit code."""
    try:
        code = group.main(
            args=None if arguments is None else list(arguments),
            prog_name="permit-balancer",
            standalone_mode=False,
        )
    except click.ClickException as error:
        if isinstance(error, click.UsageError):
            error.show()  # with the command's usage
        else:
            _failed(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _failed("interrupted")
    except (SettingsError, PolicyError, ConfigurationError, InstantError) as error:
        _failed(str(error))
        return WRONG_USAGE
    except PermitError as error:
        return _failed(str(error))
    except ModuleNotFoundError as error:
        return _failed(
            f"the package {error.name} is missing; run: pip install 'permit-balancer[balancer]'"
        )
    return code if isinstance(code, int) else 0


def _failed(words: str) -> int:
    sys.stderr.write(f"permit-balancer: {words}\n")
    return FAILED
