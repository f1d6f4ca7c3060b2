"""``python -m benchmarks permit-cost``: the cost of a permit beside a bare lock and integer.

Decides nothing; prints medians of several repetitions and their ratio. Absolute times are of the
machine it runs on.
"""

from __future__ import annotations

import statistics
import threading
import timeit
from collections.abc import Callable

from worker_sdk.core.engine import Engine
from worker_sdk.wire.distribution import OwnShare, Pacing, Terms
from worker_sdk.wire.limits import PERMITS_MAX
from worker_sdk.wire.shares import POINTS

CALLS = 100_000
REPETITIONS = 7
NOW_MS = 1_800_000_030_000


def bare_lock() -> Callable[[], bool]:
    """Return the least that any limiter for threads does."""
    lock = threading.Lock()
    left = [PERMITS_MAX]

    def take() -> bool:
        with lock:
            left[0] -= 1
            return left[0] >= 0

    return take


def engine() -> Callable[[], bool]:
    """Return the engine's answer, without the client's lock and clock."""
    own = Engine("host", "instance", ["orders-db"])
    window = NOW_MS // 60_000
    terms = Terms("orders-db", PERMITS_MAX, 60, window, window + 1, pacing=Pacing.WINDOW)
    share = OwnShare(0, 1, NOW_MS, NOW_MS + 180_000, terms, ((0, POINTS),), 0)
    own.offer([share], NOW_MS)
    account = own.account("orders-db")
    return lambda: account.try_acquire(1, NOW_MS)


def microseconds(take: Callable[[], bool]) -> float:
    """Return the median cost of a call."""
    times = timeit.repeat(take, number=CALLS, repeat=REPETITIONS)
    return statistics.median(times) / CALLS * 1e6


def main() -> None:
    """Measure and print."""
    base = microseconds(bare_lock())
    cost = microseconds(engine())
    print(f"bare lock and integer   {base:.3f} us")
    print(f"engine, one permit      {cost:.3f} us   {cost / base:.2f} x")
