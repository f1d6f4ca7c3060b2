"""``python -m benchmarks footprint``: what the client takes of its host's memory and start.

Decides what is compared: fresh interpreters, each doing one thing more than the one before. Memory
is what the kernel counts (resident, and the part that is private and written to); the time of an
import is processor time, a median over interpreters started in turn. Linux only.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
STARTS, STARTS_QUICK = 15, 3
ACQUIRES, ACQUIRES_QUICK = 10_000_000, 500_000

_LOOK: Final = """
def look():
    with open("/proc/self/smaps_rollup") as lines:
        sizes = {line.split(":")[0]: line.split()[1] for line in lines if line[0] in "RP"}
    return int(sizes["Rss"]), int(sizes["Private_Dirty"])
look()
before = look()
"""
_TELL: Final = """
after = look()
print(*(b - a for a, b in zip(before, after)))
"""
_STARTED: Final = """
import time
from worker_sdk import PermitClient
from worker_sdk.transports.memory import MemorySink, MemorySource
client = PermitClient(
    destinations=["orders-db"],
    kafka=lambda: MemorySink(lambda batch: None),
    distribution=lambda identity: MemorySource(),
)
client.start()
while not client.state.flushes_delivered:
    time.sleep(0.01)
"""
_WITH_SHARES: Final = """
import gc
from worker_sdk.testing import InMemoryBalancer, wait_until_ready
def begin(names, **options):
    balancer = InMemoryBalancer(dict.fromkeys(names, 10**12), **options)
    client = balancer.client(flush_seconds=5)
    client.start()
    wait_until_ready(client)
    for name in names:
        client.destination(name).try_acquire()
    gc.collect()
    return client
first = begin(["orders-db"])
"""

MEMORY: Final[Mapping[str, str]] = {
    "import asyncio, and nothing of ours": f"{_LOOK}import asyncio{_TELL}",
    "import worker_sdk": f"{_LOOK}import worker_sdk{_TELL}",
    "a client started": f"{_LOOK}{_STARTED}{_TELL}",
    "the same in a program that uses asyncio": f"import asyncio\n{_LOOK}{_STARTED}{_TELL}",
    "1,000 destinations more, with shares, used": (
        f"{_WITH_SHARES}{_LOOK}many = begin([f'destination-{{n}}' for n in range(1000)]){_TELL}"
    ),
}

GROWTH: Final = """
client = begin(["db"], window_seconds=1)
take = client.destination("db").try_acquire
for _ in range(CALLS // 10):
    take()
LOOK
for _ in range(CALLS):
    take()
gc.collect()
TELL
"""

IMPORTS: Final[Mapping[str, str]] = {
    "import worker_sdk": "import worker_sdk",
    "from worker_sdk import PermitClient": "from worker_sdk import PermitClient",
    "import asyncio, to compare": "import asyncio",
}

# A package that is installed has its bytecode beside it; to compile is not what is measured.
_ENVIRONMENT: Final = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


def run(program: str) -> tuple[list[int], float]:
    """Run a program in a new interpreter; return the numbers it printed and its CPU time in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=_ENVIRONMENT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [int(word) for word in done.stdout.split()], spent * 1000


def import_costs(starts: int) -> dict[str, float]:
    """Return milliseconds of processor time above a bare interpreter, by import."""
    costs: dict[str, list[float]] = {}
    for _ in range(starts):
        _, bare = run("pass")
        for name, program in IMPORTS.items():
            costs.setdefault(name, []).append(run(program)[1] - bare)
    return {name: median(found) for name, found in costs.items()}


def growth(acquires: int) -> int:
    """Return by how many kB a client's process grew over so many acquires."""
    program = GROWTH.replace("CALLS", str(acquires)).replace("LOOK", _LOOK).replace("TELL", _TELL)
    return run(_WITH_SHARES + program)[0][0]


def main(*, quick: bool = False) -> None:
    """Measure and print."""
    if sys.platform != "linux":
        print("this reads what the Linux kernel counts; left out")
        return
    run("import worker_sdk.client")
    print(f"\n{'memory above the interpreter before it':<46}{'resident MB':>12}{'private MB':>12}")
    for name, program in MEMORY.items():
        resident_kb, private_kb = run(program)[0]
        print(f"{name:<46}{resident_kb / 1000:>12.1f}{private_kb / 1000:>12.1f}", flush=True)
    acquires = ACQUIRES_QUICK if quick else ACQUIRES
    print(f"{f'{acquires:,} acquires more':<46}{growth(acquires) / 1000:>12.2f}", flush=True)
    print(f"\n{'start above a bare interpreter':<46}{'CPU ms':>12}")
    for name, cost in import_costs(STARTS_QUICK if quick else STARTS).items():
        print(f"{name:<46}{cost:>12.1f}")
