"""``permit-balancer serve``: run the balancer until it is told to stop.

Decides how the process is told to stop and what a newcomer is shown. The service is composed
elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from balancer.commands.common import config_option

if TYPE_CHECKING:
    from balancer.settings import Settings


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
    from balancer.commands.logs import set_up_logs  # noqa: PLC0415
    from balancer.compose import Service  # noqa: PLC0415
    from balancer.settings import load_settings  # noqa: PLC0415

    if data_dir is not None and not embedded:
        raise click.UsageError("--data-dir goes with --embedded")
    with _servers(data_dir) if embedded else contextlib.nullcontext():
        settings = load_settings(config_file)
        set_up_logs(settings.log_level, settings.log_format)

        def started(url: str) -> None:
            click.echo(f"permit-balancer serves at {url}", err=True)
            if embedded:
                for line in _example(url, settings):
                    click.echo(line, err=True)

        asyncio.run(_run(lambda stop: Service(settings).run(stop, started)))


async def _run(serving: Callable[[asyncio.Event], object]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    awaited = serving(stop)
    if asyncio.iscoroutine(awaited):
        await awaited


@contextlib.contextmanager
def _servers(data_dir: Path | None) -> Iterator[None]:
    """Run the embedded servers, and let the environment point to them."""
    from balancer.adapters.postgres.schema import migrate  # noqa: PLC0415
    from balancer.embedded import EmbeddedStack  # noqa: PLC0415

    def say(line: str) -> None:
        click.echo(line, err=True)

    with EmbeddedStack(data_dir, report=say, durable_kafka=True) as stack:
        # Joining a group takes about half the session: nobody wants to wait for that here.
        variables = stack.environment() | {"PERMIT_KAFKA_SESSION_SECONDS": "3"}
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            migrate(variables["PERMIT_POSTGRES_DSN"])
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _example(url: str, settings: Settings) -> list[str]:
    kafka = settings.kafka_bootstrap_servers
    return [
        "",
        "Protect a destination with 600 permits a minute:",
        f"  curl -X PUT {url}/destinations/orders-db -d '{{\"capacity\": 600}}'",
        "Take permits in a worker:",
        "  from worker_sdk import PermitClient",
        f'  with PermitClient(destinations=["orders-db"], kafka="{kafka}",',
        f'                    distribution="{url}") as client:',
        '      client.destination("orders-db").acquire(timeout=30)',
        "See the shares:",
        f"  curl {url}/destinations/orders-db/distribution",
        "Stop with Ctrl-C.",
        "",
    ]
