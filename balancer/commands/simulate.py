"""``permit-balancer simulate``: a fleet on a virtual clock, planned by the real planner.

Decides which run the options mean and how its outcome is told. Knows nothing of how it is run.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from balancer.commands.common import config_option, json_option, print_json, print_table
from balancer.commands.policy_options import policy_options, policy_parts

if TYPE_CHECKING:
    from balancer.simulation.requirements import Requirements
    from balancer.simulation.results import Outcome
    from balancer.simulation.scenario import Faults, Scenario

LIST = "list"
MEMBERS_SHOWN = 10
COLLECT_AFTER = 200_000
TRACE_CAPACITY = "p90"
TIMETABLES = ("window", "service")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A run as asked for."""

    scenario: Scenario
    description: str
    demanded: Requirements | None
    must_be_reached: bool


@click.command()
@click.option("--scenario", "name", help="A built-in scenario; list prints them all.")
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A CSV file of recorded demand: a row a host with columns minute_1 and so on (as the "
    "Azure Functions 2019 invocation files), or a row a request with a column TIMESTAMP.",
)
@click.option(
    "--file",
    "scenario_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A scenario in TOML; its form is documented under simulation.",
)
@click.option(
    "--replay",
    nargs=2,
    metavar="FROM TO",
    help="Recorded demand of --destination between two instants (2026-11-30T03:00Z, 03:00, -15m, "
    "now), planned by its policy of today. Needs PERMIT_POSTGRES_DSN.",
)
@click.option("--destination", help="Whose demand is replayed.")
@config_option
@click.option(
    "--capacity",
    help="Permits a window, or a percentile of the window totals such as p90 "
    "[default: p90 for a trace, else the scenario's].",
)
@policy_options
@click.option("--lost-reads", type=float, help="Part of reads that fail, from 0 to 1.")
@click.option("--lost-reports", type=float, help="Part of reports that are lost, from 0 to 1.")
@click.option(
    "--delay-rounds", type=int, help="Rounds until a report counts; 1: the window before is known."
)
@click.option(
    "--timetable",
    type=click.Choice(TIMETABLES),
    help="window: a round knows exactly the window before; service: reports, plans and reads at "
    "the seconds at which the service has them [default: window, else the file's].",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of everything drawn.")
@click.option("--backlog", is_flag=True, help="Unserved work waits instead of being dropped.")
@click.option("--windows", type=click.IntRange(1, 100_000), help="How many windows to run.")
@click.option(
    "--hosts",
    type=click.IntRange(1, 10_000),
    help="Among how many hosts a trace of one request a row is spread [default: 100].",
)
@click.option(
    "--window-seconds",
    type=click.IntRange(1, 86_400),
    help="Length of a window of a trace of one request a row [default: 60].",
)
@json_option
@click.option(
    "--html",
    "html_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write one self-contained page with plots to this file.",
)
def simulate(
    *,
    name: str | None,
    trace_file: Path | None,
    scenario_file: Path | None,
    replay: tuple[str, str] | None,
    destination: str | None,
    config_file: Path | None,
    capacity: str | None,
    lost_reads: float | None,
    lost_reports: float | None,
    delay_rounds: int | None,
    timetable: str | None,
    seed: int,
    backlog: bool,
    windows: int | None,
    hosts: int | None,
    window_seconds: int | None,
    as_json: bool,
    html_file: Path | None,
    **policy: Any,
) -> None:
    """Run a fleet on a virtual clock: the real planner, the real SDK's engine, made-up demand.

    Takes one of --scenario, --trace and --file, or --replay. The same seed gives the same run. Exit
    code 1 if more was spent in a window than its bound, if a plan would have broken an invariant,
    or if what a file demands was not reached.
    """
    if sum(given is not None for given in (name, trace_file, scenario_file, replay)) != 1:
        raise click.UsageError("give one of --scenario, --trace and --file, or --replay")
    if (replay is None) != (destination is None):
        raise click.UsageError("--replay and --destination go together")
    if trace_file is None and (hosts is not None or window_seconds is not None):
        raise click.UsageError("--hosts and --window-seconds go with --trace")
    if name == LIST:
        _list(as_json=as_json)
        return
    if name is not None:
        wanted = _built_in(name, seed, windows)
    elif trace_file is not None:
        wanted = _trace(trace_file, seed, windows, hosts or 100, window_seconds or 60)
    elif replay is not None:
        wanted = _replay(config_file, destination or "", replay, capacity, windows)
    else:
        wanted = _file(scenario_file or Path(), seed, windows)
    faults = wanted.scenario.faults
    faults = replace(
        faults,
        lost_reads=faults.lost_reads if lost_reads is None else lost_reads,
        lost_reports=faults.lost_reports if lost_reports is None else lost_reports,
        delay_rounds=faults.delay_rounds if delay_rounds is None else delay_rounds,
    )
    parts = policy_parts(policy)
    wanted = _changed(wanted, capacity, parts, timetable, faults, keeps_backlog=backlog)
    if html_file is not None and not html_file.parent.is_dir():
        raise click.UsageError(f"--html {html_file}: there is no folder {html_file.parent}")
    sys.exit(_run(wanted, seed, as_json=as_json, html_file=html_file))


def _list(*, as_json: bool) -> None:
    from balancer.simulation.catalogue import CATALOGUE  # noqa: PLC0415

    if as_json:
        print_json({name: known.description for name, known in CATALOGUE.items()})
        return
    print_table(
        ("scenario", "windows", "what it is"),
        [(name, known.windows, known.description) for name, known in CATALOGUE.items()],
    )


def _built_in(name: str, seed: int, windows: int | None) -> _Wanted:
    from balancer.simulation.catalogue import scenario_named  # noqa: PLC0415

    known = scenario_named(name)
    is_usual = windows is None or windows == known.windows
    return _Wanted(
        known.make(seed, windows),
        known.description,
        known.demanded if is_usual else None,
        must_be_reached=False,
    )


def _trace(path: Path, seed: int, windows: int | None, hosts: int, seconds: int) -> _Wanted:
    from balancer.simulation.scenario import MemberPlan, Scenario, series  # noqa: PLC0415
    from balancer.simulation.traces import parse_capacity, read_trace  # noqa: PLC0415

    trace = read_trace(path, windows=windows, hosts=hosts, window_seconds=seconds, seed=seed)
    digits = len(str(len(trace.rows)))
    scenario = Scenario(
        name=trace.name,
        capacity=parse_capacity(TRACE_CAPACITY, trace.totals, least=0),
        windows=len(trace.rows[0]),
        members=tuple(
            MemberPlan(f"host-{number:0{digits}}", series(row))
            for number, row in enumerate(trace.rows, start=1)
        ),
        window_seconds=trace.window_seconds,
    )
    return _Wanted(scenario, "recorded demand", None, must_be_reached=False)


def _replay(
    config_file: Path | None,
    destination: str,
    stretch: tuple[str, str],
    capacity: str | None,
    windows: int | None,
) -> _Wanted:
    from balancer.commands.replay import read_replay  # noqa: PLC0415
    from balancer.simulation.scenario import Events  # noqa: PLC0415

    found = read_replay(config_file, destination, stretch)
    scenario = found.scenario
    if capacity is not None:  # it stands for all that were in force
        scenario = replace(scenario, events=Events())
    if windows is not None and windows < scenario.windows:
        first = min(scenario.measured_from_window, windows - 1)
        scenario = replace(scenario, windows=windows, measured_from_window=first)
    told = f"{found.rounds} recorded rounds"
    if found.filled_windows:
        told += f", {found.filled_windows} windows without any filled by those that follow"
    if found.unknown_members:
        told += f", without {found.unknown_members} members whose demand is not known"
    return _Wanted(scenario, told, None, must_be_reached=False)


def _file(path: Path, seed: int, windows: int | None) -> _Wanted:
    from balancer.simulation.scenario_file import read_scenario  # noqa: PLC0415

    scenario, demanded = read_scenario(path, seed=seed)
    if windows is not None and windows != scenario.windows:
        first = min(scenario.measured_from_window, windows - 1)
        scenario = replace(scenario, windows=windows, measured_from_window=first)
    return _Wanted(scenario, f"from {path.name}", demanded, must_be_reached=True)


def _changed(
    wanted: _Wanted,
    capacity: str | None,
    policy: Mapping[str, Any],
    timetable: str | None,
    faults: Faults,
    *,
    keeps_backlog: bool,
) -> _Wanted:
    """Return the run with what the options change; a built-in one's demands end there."""
    from balancer.simulation.scenario import TimetableKind, totals_of  # noqa: PLC0415
    from balancer.simulation.traces import parse_capacity  # noqa: PLC0415

    scenario = wanted.scenario
    if capacity is not None:
        totals = totals_of(scenario.members, scenario.windows) if capacity[:1] == "p" else ()
        permits = parse_capacity(capacity, totals, least=0)
        scenario = replace(scenario, capacity=permits)
    if policy:
        scenario = replace(scenario, policy=replace(scenario.policy, **policy))
    if timetable is not None and timetable != scenario.timetable:
        scenario = replace(scenario, timetable=TimetableKind(timetable))
    if faults != scenario.faults:
        scenario = replace(scenario, faults=faults)
    if keeps_backlog:
        scenario = replace(scenario, keeps_backlog=True)
    is_changed = scenario is not wanted.scenario
    if is_changed and not wanted.must_be_reached:
        return replace(wanted, scenario=scenario, demanded=None)
    return replace(wanted, scenario=scenario)


def _run(wanted: _Wanted, seed: int, *, as_json: bool, html_file: Path | None) -> int:
    from balancer.simulation.report import report  # noqa: PLC0415
    from balancer.simulation.run import Simulation  # noqa: PLC0415

    simulation = Simulation(wanted.scenario, seed)
    with _rare_collection(), _progress(wanted.scenario) as advance:
        for _ in simulation.steps():
            advance()
    outcome = simulation.outcome
    result = report(wanted.scenario, outcome, seed=seed, demanded=wanted.demanded)
    if html_file is not None:
        _write_page(html_file, result, outcome, wanted.description)
    if as_json:
        print_json(result)
    else:
        _tell(result, outcome, wanted)
    is_unmet = wanted.must_be_reached and bool(result["unmet"])
    return 1 if result["broken"] or is_unmet else 0


def _write_page(path: Path, result: dict[str, object], outcome: Outcome, description: str) -> None:
    from balancer.simulation.page import page  # noqa: PLC0415

    try:
        path.write_text(page(result, outcome, description), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"--html {path}: cannot be written: {error}") from error


def _tell(result: dict[str, object], outcome: Outcome, wanted: _Wanted) -> None:
    from balancer.simulation.outcome import summary_lines  # noqa: PLC0415
    from balancer.simulation.report import most_in_need  # noqa: PLC0415
    from worker_sdk.wire.shares import POINTS  # noqa: PLC0415

    click.echo(f"{result['scenario']}: {wanted.description}")
    click.echo(
        f"{result['hosts']} hosts, {result['windows']} windows, capacity {result['capacity']}, "
        f"strategy {result['strategy']}, seed {result['seed']}"
    )
    click.echo()
    for line in summary_lines(result):
        click.echo(line)
    for key, words in (("broken", "not safe"), ("unmet", "not reached")):
        listed = result[key]
        for sentence in listed if isinstance(listed, list) else ():
            click.echo(f"{words}: {sentence}")
    last = len(outcome.views) - 1
    click.echo()
    print_table(
        ("host", "wanted", "used", "used/wanted", "share at the end", "longest at zero"),
        [
            (
                account.host,
                total := sum(account.wanted),
                served := sum(account.served),
                _RightAligned(f"{100 * served / total:.1f} %" if total else "-"),
                _RightAligned(f"{100 * account.points_in(last) / POINTS:.3f} %"),
                account.longest_zero_windows,
            )
            for account in most_in_need(outcome, MEMBERS_SHOWN)
        ],
    )
    if len(outcome.hosts) > MEMBERS_SHOWN:
        click.echo(f"(those of {len(outcome.hosts)} hosts that went without most)")


class _RightAligned:
    """A text that a table puts to the right, as numbers are."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


@contextmanager
def _rare_collection() -> Iterator[None]:
    """Look for garbage rarely: a run makes many values and hardly a cycle; it saves a sixth."""
    thresholds = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@contextmanager
def _progress(scenario: Scenario) -> Iterator[Callable[[], None]]:
    """Yield what is called after each window: a bar on a terminal, nothing elsewhere."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(f"{scenario.name}, windows", total=scenario.windows)
        yield lambda: bar.advance(task)
