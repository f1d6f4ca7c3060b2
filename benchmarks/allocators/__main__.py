"""``python -m benchmarks.allocators``: other rules and ours on the same inputs, one table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from balancer.simulation.scenario import Scenario
from benchmarks.allocators import inputs
from benchmarks.allocators.table import compared, lines
from worker_sdk.errors import ConfigurationError

SEED = 1
TRACE = Path(__file__).resolve().parents[3] / "shared" / "data" / "azure_functions_2019_100.csv"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allocators", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs, for a first look")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all that is drawn [{SEED}]")
    parser.add_argument(
        "--trace",
        type=Path,
        help="recorded demand, columns minute_1 and so on [shared/data/"
        f"{TRACE.name} beside the project, where it is]",
    )
    parser.add_argument(
        "--input", action="append", metavar="NAME", help="only this input; may be repeated"
    )
    options = parser.parse_args(arguments)
    try:
        scenarios = _scenarios(options)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    rows = compared(scenarios, options.seed)
    if options.json:
        print(json.dumps({"seed": options.seed, "rows": [row.as_json() for row in rows]}, indent=1))
        return 0
    print(f"allocators, seed {options.seed}; all but time in percent or windows")
    for line in lines(rows):
        print(line, flush=True)
    return 0


def _scenarios(options: argparse.Namespace) -> list[Scenario]:
    scenarios = inputs.made_up(options.seed, quick=options.quick)
    path = options.trace or TRACE
    if options.trace is not None or path.exists():
        scenarios = inputs.recorded(path, options.seed, quick=options.quick) + scenarios
    else:
        print(
            f"no recorded demand: {path.name} is not in shared/data beside the project and "
            "--trace names no other; made-up inputs only",
            file=sys.stderr,
        )
    if options.input is None:
        return scenarios
    known = {scenario.name: scenario for scenario in scenarios}
    for name in options.input:
        if name not in known:
            raise ConfigurationError(f"--input {name}: there are {', '.join(known)}")
    return [known[name] for name in options.input]


if __name__ == "__main__":
    sys.exit(main())
