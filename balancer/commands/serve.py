"""``permit-balancer serve``: run the balancer until it is told to stop.

Decides how the process is told to stop and what a newcomer is shown. The service is composed
elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from balancer.commands.common import config_option, settings_of
from balancer.errors import SettingsError

if TYPE_CHECKING:
    from balancer.embedded import EmbeddedStack
    from balancer.settings import Settings

SETTINGS_FILE: Final = "settings.sh"


@click.command()
@config_option
@click.option(
    "--embedded",
    is_flag=True,
    help="Bring Kafka, PostgreSQL and S3 along, on loopback, from installed packages.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --embedded: keep their data here; else it is removed at the end.",
)
def serve(*, config_file: Path | None, embedded: bool, data_dir: Path | None) -> None:
    """Run the balancer: read reports, plan shares, publish them, answer over HTTP.

    Waits for dependencies that are absent at start and says which. Ends within ten seconds on
    SIGTERM or Ctrl-C. `permit-balancer doctor` says what is missing.
    """
    # Until the loop has its own: to be told to stop while starting is to stop, in order.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    from balancer.commands.logs import set_up_logs  # noqa: PLC0415
    from balancer.commands.open_files import room_for_waiters, warn_of_less_room  # noqa: PLC0415
    from balancer.commands.process import prepare_process  # noqa: PLC0415
    from balancer.compose import Service  # noqa: PLC0415

    if data_dir is not None and not embedded:
        raise click.UsageError("--data-dir goes with --embedded")
    with _servers(data_dir) if embedded else contextlib.nullcontext() as stack:
        settings = settings_of(config_file)
        set_up_logs(settings.log_level, settings.log_format)
        wanted = settings.http_waiters_max
        room = room_for_waiters(wanted)
        settings = settings.model_copy(update={"http_waiters_max": room})
        prepare_process()

        def started(url: str) -> None:
            click.echo(f"permit-balancer serves at {url}", err=True)
            warn_of_less_room(wanted, room)
            if stack is not None:
                file = stack.directory / SETTINGS_FILE
                _write_settings(file, stack.environment(), url, settings)
                for line in _example(url, settings, file):
                    click.echo(line, err=True)

        asyncio.run(_run(lambda stop: Service(settings).run(stop, started)))


def _leave(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


async def _run(serving: Callable[[asyncio.Event], object]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    awaited = serving(stop)
    if asyncio.iscoroutine(awaited):
        await awaited


@contextlib.contextmanager
def _servers(data_dir: Path | None) -> Iterator[EmbeddedStack]:
    """Run the embedded servers, and let the environment point to them."""
    from balancer.adapters.postgres.schema import migrate  # noqa: PLC0415
    from balancer.embedded import EmbeddedStack  # noqa: PLC0415
    from balancer.embedded.errors import DirectoryError  # noqa: PLC0415

    def say(line: str) -> None:
        click.echo(line, err=True)

    with contextlib.ExitStack() as ending:
        try:
            stack = ending.enter_context(EmbeddedStack(data_dir, report=say, durable_kafka=True))
        except DirectoryError as error:
            raise SettingsError(f"--data-dir: {error}") from error
        # Joining a group takes about half the session: nobody wants to wait for that here.
        variables = stack.environment() | {"PERMIT_KAFKA_SESSION_SECONDS": "3"}
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            migrate(variables["PERMIT_POSTGRES_DSN"])
            yield stack
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _write_settings(file: Path, servers: Mapping[str, str], url: str, settings: Settings) -> None:
    """Write what other commands and workers need, as a shell reads it, for its owner alone."""
    variables = {
        **servers,
        "PERMIT_ROUND_SECONDS": str(settings.round_seconds),
        "PERMIT_FLUSH_SECONDS": str(settings.round_seconds),
        "PERMIT_DISTRIBUTION": url,
    }
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.writelines(lines)


def _example(url: str, settings: Settings, file: Path) -> list[str]:
    kafka = settings.kafka_bootstrap_servers
    return [
        "",
        "In another terminal, so that every command and worker finds this balancer:",
        f"  . {shlex.quote(str(file))}",
        "Protect a destination with 600 permits a minute:",
        "  permit-balancer destinations set orders-db --capacity 600",
        f"  curl -X PUT {url}/destinations/orders-db -d '{{\"capacity\": 600}}'      # the same",
        "Take permits in a worker:",
        "  from worker_sdk import PermitClient",
        f'  with PermitClient(destinations=["orders-db"], kafka="{kafka}",',
        f'                    distribution="{url}",',
        f"                    flush_seconds={settings.round_seconds}) as client:",
        '      client.destination("orders-db").acquire(timeout=30)',
        "See the shares:",
        "  permit-balancer distribution show --destination orders-db",
        f"  curl {url}/destinations/orders-db/distribution      # the same, as JSON",
        "Stop with Ctrl-C.",
        "",
    ]
