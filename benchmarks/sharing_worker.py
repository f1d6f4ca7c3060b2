"""One of the processes of ``python -m benchmarks sharing``: takes all the permits it can get.

``python -m benchmarks.sharing_worker CONTENDER ADDRESS CAPACITY WINDOW_SECONDS``; then, on standard
input, the Unix second at which to begin and the one at which to end. Decides how each contender is
asked: without waiting, and again after a pause where it refuses. Prints what it was granted, by
tenths of a second, with its processor time and its calls of the back end.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import limits
import limits.storage
import limits.strategies
import pyrate_limiter
import redis
import redis.connection
import throttled

from worker_sdk import PermitClient

DESTINATION: Final = "orders-db"
PAUSE_SECONDS: Final = 0.01
BIN_NS: Final = 100_000_000

Take = Callable[[], bool]
Count = Callable[[], int]


@contextmanager
def ours(address: str, capacity: int, window_seconds: int) -> Iterator[tuple[Take, Count]]:
    """Run a client of the balancer; its capacity is the balancer's matter."""
    kafka, distribution, s3_url = address.split(",")
    client = PermitClient(
        destinations=[DESTINATION],
        kafka=kafka,
        distribution=distribution,
        host=f"host-{os.getpid()}",
        flush_seconds=window_seconds,
        s3_endpoint_url=s3_url,
    )
    with client:

        def calls() -> int:
            state = client.state
            return state.reads + state.flushes_delivered + state.flushes_failed

        yield client.destination(DESTINATION).try_acquire, calls


def limits_by(strategy: str) -> Callable[[str, int, int], Any]:
    """Return how limits is set up with one of its strategies."""

    @contextmanager
    def begin(address: str, capacity: int, window_seconds: int) -> Iterator[tuple[Take, Count]]:
        storage = limits.storage.RedisStorage(address)
        limiter = limits.strategies.STRATEGIES[strategy](storage)
        item = limits.RateLimitItemPerSecond(capacity, window_seconds)
        yield lambda: limiter.hit(item, DESTINATION), counted_commands()

    return begin


@contextmanager
def pyrate(address: str, capacity: int, window_seconds: int) -> Iterator[tuple[Take, Count]]:
    """Set up pyrate-limiter's log of what was granted."""
    rate = pyrate_limiter.Rate(capacity, window_seconds * 1000)
    bucket = pyrate_limiter.RedisBucket.init([rate], redis.Redis.from_url(address), DESTINATION)
    limiter = pyrate_limiter.Limiter(bucket)
    yield lambda: bool(limiter.try_acquire(blocking=False)), counted_commands()


@contextmanager
def throttled_gcra(
    address: str, capacity: int, window_seconds: int
) -> Iterator[tuple[Take, Count]]:
    """Set up throttled-py with the algorithm that keeps to the rate most closely."""
    limiter = throttled.Throttled(
        key=DESTINATION,
        using=throttled.RateLimiterType.GCRA.value,
        quota=throttled.per_duration(
            timedelta(seconds=window_seconds), capacity, burst=capacity // 10
        ),
        store=throttled.RedisStore(server=address),
    )
    yield lambda: not limiter.limit().limited, counted_commands()


def counted_commands() -> Count:
    """Return a count of what is sent to the server from now on."""
    connection: Any = redis.connection.Connection
    send = connection.send_packed_command
    sent = 0

    def counting(*given: object, **more: object) -> object:
        nonlocal sent
        sent += 1
        return send(*given, **more)

    connection.send_packed_command = counting
    return lambda: sent


CONTENDERS: Final[dict[str, Callable[[str, int, int], Any]]] = {
    "this project": ours,
    "limits, fixed window": limits_by("fixed-window"),
    "limits, moving window": limits_by("moving-window"),
    "pyrate-limiter, log": pyrate,
    "throttled-py, GCRA": throttled_gcra,
}


def spend(take: Take, end_ns: int) -> tuple[Counter[int], int]:
    """Take what there is until the end; return the grants by tenths of a second, and the asks."""
    bins: Counter[int] = Counter()
    asked = 0
    while (now_ns := time.time_ns()) < end_ns:
        asked += 1
        if take():
            bins[time.time_ns() // BIN_NS] += 1
        else:
            time.sleep(min(PAUSE_SECONDS, max(0, end_ns - now_ns) / 1e9))
    return bins, asked


def main() -> None:
    """Run as told."""
    contender, address, capacity, window_seconds = sys.argv[1:]
    with CONTENDERS[contender](address, int(capacity), int(window_seconds)) as (take, calls):
        print("ready", flush=True)
        begin, warm, end = (float(word) for word in sys.stdin.readline().split())
        time.sleep(max(0.0, begin - time.time()))
        spend(take, int(warm * 1e9))
        cpu, called = time.process_time(), calls()
        bins, asked = spend(take, int(end * 1e9))
        told = {
            "bins": bins,
            "asked": asked,
            "cpu_seconds": time.process_time() - cpu,
            "calls": calls() - called,
        }
        print(json.dumps(told), flush=True)
        with contextlib.suppress(EOFError):
            sys.stdin.readline()


if __name__ == "__main__":
    main()
