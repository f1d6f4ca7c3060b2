"""``python -m benchmarks [NAME ...]``: one table a benchmark; all of them where none is named.

Decides only which run. Options of a benchmark go to its own command, for instance
``python -m benchmarks.allocators --seed 2``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Final

from benchmarks import footprint, ingest, permit_cost, planning, replicas, scaling, serving, sharing
from benchmarks import round as round_
from benchmarks.allocators import __main__ as allocators


def _permit_cost(quick: bool) -> int:
    permit_cost.main(quick=quick)
    return 0


def _footprint(quick: bool) -> int:
    footprint.main(quick=quick)
    return 0


def _sharing(quick: bool) -> int:
    sharing.main(quick=quick)
    return 0


def _planning(quick: bool) -> int:
    planning.main(quick=quick)
    return 0


def _round(quick: bool) -> int:
    round_.main(["--quick"] if quick else [])
    return 0


def _ingest(quick: bool) -> int:
    ingest.main(["--quick"] if quick else [])
    return 0


def _serving(quick: bool) -> int:
    serving.main(quick=quick)
    return 0


def _scaling(quick: bool) -> int:
    scaling.main(quick=quick)
    return 0


def _replicas(quick: bool) -> int:
    return replicas.main(quick=quick)


def _allocators(quick: bool) -> int:
    return allocators.main(["--quick"] if quick else [])


BENCHMARKS: Final[Mapping[str, tuple[str, Callable[[bool], int]]]] = {
    "permit-cost": (
        "a permit beside a bare lock and integer, and beside other limiters",
        _permit_cost,
    ),
    "footprint": ("memory, growth and start of a client", _footprint),
    "sharing": ("four processes that share a limit, and other limiters through Redis", _sharing),
    "planning": ("planning a round, by members and destinations", _planning),
    "round": ("a whole round over many live accounts, part by part", _round),
    "ingest": ("reports from Kafka to PostgreSQL, beside COPY and executemany", _ingest),
    "serving": ("shares over HTTP, beside a bare aiohttp handler", _serving),
    "scaling": ("planning and documents, by hosts and destinations", _scaling),
    "replicas": ("two replicas on a core each beside one, servers left out", _replicas),
    "allocators": ("other rules of sharing and ours on the same inputs", _allocators),
}


def main() -> int:
    """Run the benchmarks asked for; return the worst exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = "; ".join(f"{name}: {what}" for name, (what, _) in BENCHMARKS.items())
    parser.add_argument("names", nargs="*", metavar="NAME", help=known)
    parser.add_argument("--quick", action="store_true", help="short runs, for a first look")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]}; there are {', '.join(BENCHMARKS)}")
    worst = 0
    for name in options.names or BENCHMARKS:
        what, run = BENCHMARKS[name]
        print(f"== {name}: {what}", flush=True)
        worst = max(worst, run(options.quick))
    return worst


if __name__ == "__main__":
    sys.exit(main())
