"""``permit-balancer demo``: the whole system on this machine, in front of your eyes.

Decides which scenario runs and how the outcome is told. Knows nothing of how it is done.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from balancer.demo.demand import Scenario
    from balancer.demo.run import Run
    from balancer.demo.table import Frame

PERMITS_A_SECOND = 100


@click.command()
@click.option(
    "--scenario",
    "name",
    type=click.Choice(["two-hosts", "fleet"]),
    default="two-hosts",
    show_default=True,
    help="two-hosts: one host needs 20 % of the capacity, one 80 %. "
    "fleet: processes join, leave and are killed.",
)
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Replay a CSV file in the column format of the Azure Functions 2019 invocation files "
    "(a row a host, minute_1 and so on), one minute a window.",
)
@click.option(
    "--minutes",
    type=click.IntRange(1, 1440),
    default=24,
    show_default=True,
    help="How many minutes of the trace, each of them a window.",
)
@click.option(
    "--windows",
    type=click.IntRange(4, 1440),
    default=24,
    show_default=True,
    help="How many windows a scenario runs.",
)
@click.option(
    "--capacity",
    default=None,
    help="Permits a window, or for a trace a percentile of its window totals "
    "[default: 100 a second; p90 for a trace].",
)
@click.option(
    "--window-seconds",
    type=click.IntRange(3, 600),
    default=5,
    show_default=True,
    help="Window, round and flush; a record lives, and a share is valid, three times that.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the summary as JSON on standard output; everything else on standard error.",
)
@click.pass_context
def demo(
    ctx: click.Context,
    *,
    name: str,
    trace_file: Path | None,
    minutes: int,
    windows: int,
    capacity: str | None,
    window_seconds: int,
    as_json: bool,
) -> None:
    """Run servers, balancer and workers on this machine and watch permits move.

    Starts Kafka, PostgreSQL and S3 from installed packages on loopback, a destination that
    counts what arrives in each window and refuses what is beyond its capacity, the balancer, and
    worker processes that use the SDK. Nothing is left behind. Exit code 1 if the destination
    refused anything.
    """
    from balancer.demo.demand import CAPACITY_MAX, fleet, trace, two_hosts  # noqa: PLC0415
    from balancer.simulation.traces import parse_capacity  # noqa: PLC0415

    _refuse_what_does_not_fit(ctx, capacity, is_trace=trace_file is not None)
    if trace_file is not None:
        scenario = trace(trace_file, capacity or "p90", minutes)
    else:
        permits = parse_capacity(
            capacity or str(PERMITS_A_SECOND * window_seconds), (), most=CAPACITY_MAX
        )
        scenario = (two_hosts if name == "two-hosts" else fleet)(permits, windows)
    result = _run(scenario, window_seconds)
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        from balancer.simulation.outcome import summary_lines  # noqa: PLC0415

        click.echo()
        for line in summary_lines(result):
            click.echo(line)
    sys.exit(1 if result["refused_by_destination"] else 0)


def _refuse_what_does_not_fit(ctx: click.Context, capacity: str | None, *, is_trace: bool) -> None:
    """Refuse options that would be passed over in silence."""
    unfit = {"name": "--scenario", "windows": "--windows"} if is_trace else {"minutes": "--minutes"}
    for parameter, option in unfit.items():
        if ctx.get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} {'does not go' if is_trace else 'goes'} with --trace")
    if not is_trace and capacity is not None and capacity.startswith("p"):
        raise click.UsageError(f"--capacity {capacity}: a percentile goes with --trace")


def _run(scenario: Scenario, window_seconds: int) -> dict[str, object]:
    from balancer.demo.run import Options, Run, stack_of_the_demo  # noqa: PLC0415

    def say(line: str) -> None:
        click.echo(line, err=True)

    say(
        f"{scenario.name}: {scenario.windows} windows of {window_seconds} s, "
        f"about {scenario.windows * window_seconds + 20} s in all"
    )
    with stack_of_the_demo(say) as stack, _screen(say) as (tell, show):
        options = Options(window_seconds=window_seconds, say=tell, show=show)
        return asyncio.run(_until_done_or_interrupted(Run(scenario, options, stack)))


async def _until_done_or_interrupted(run: Run) -> dict[str, object]:
    task = asyncio.ensure_future(run.execute())
    loop = asyncio.get_running_loop()
    was_told = False

    def interrupt() -> None:
        nonlocal was_told
        if not was_told:  # a second time would cut short the ending, which is bounded
            was_told = True
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        return await task
    except asyncio.CancelledError:
        raise click.Abort from None


@contextmanager
def _screen(
    say: Callable[[str], None],
) -> Iterator[tuple[Callable[[str], None], Callable[[Frame], None]]]:
    """Yield (tell a line, show a frame): a live table on a terminal, a line a window elsewhere."""
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    from balancer.demo import table  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield say, lambda frame: say(table.line(frame))
        return
    with Live(console=console, auto_refresh=False) as live:

        def tell(line: str) -> None:
            console.print(line, markup=False, highlight=False)

        def show(frame: Frame) -> None:
            live.update(table.table(frame), refresh=True)

        yield tell, show
