"""``python -m benchmarks permit-cost``: what a permit costs, beside the limiters that others use.

Decides the contenders and the order: in each round every contender does the same work once, one
after the other, so that whatever disturbs the machine hits all alike; the table shows medians over
the rounds. Every limit is far away, so that each call is granted: what is measured is the limiter
and not the waiting. One thread is measured by its own processor time, eight threads by the wall
clock until the last one is done, since waiting for one another is what they differ in.

Last, each call waits: many tasks share a rate far below what they ask for, and what counts is the
processor time of the whole process for each permit, background included.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Final

import limits
import limits.storage
import limits.strategies
import pyrate_limiter
import throttled
from aiolimiter import AsyncLimiter
from asyncio_throttle.throttler import Throttler

from worker_sdk import DestinationHandle
from worker_sdk.testing import InMemoryBalancer, wait_until_ready
from worker_sdk.wire.distribution import Pacing

PLENTY: Final = 1_000_000_000
CALLS, CALLS_QUICK = 20_000, 4_000
ROUNDS, ROUNDS_QUICK = 21, 5
THREADS: Final = 8
WAITING_TASKS: Final = 500
WAITED_RATE: Final = 1_667
WAITED_SECONDS, WAITED_SECONDS_QUICK = 10.0, 1.0
OURS: Final = "this client"
BARE: Final = "a bare lock and an integer"

Take = Callable[[], object]
TakeAsync = Callable[[], Awaitable[object]]


def bare_lock() -> Take:
    """Return the least that any limiter for threads does."""
    lock = threading.Lock()
    left = [PLENTY]

    def take() -> bool:
        with lock:
            left[0] -= 1
            return left[0] >= 0

    return take


def limits_in_memory() -> Take:
    """Return limits' cheapest strategy."""
    limiter = limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage())
    item = limits.RateLimitItemPerMinute(PLENTY)
    return lambda: limiter.hit(item, "orders-db")


def pyrate() -> pyrate_limiter.Limiter:
    """Return pyrate-limiter with its algorithm of constant state."""
    rate = pyrate_limiter.Rate(PLENTY, pyrate_limiter.Duration.MINUTE)
    return pyrate_limiter.Limiter(pyrate_limiter.StateBucket([rate]))


def throttled_in_memory() -> Take:
    """Return throttled-py's cheapest algorithm."""
    limiter = throttled.Throttled(
        key="orders-db",
        using=throttled.RateLimiterType.FIXED_WINDOW.value,
        quota=throttled.per_min(PLENTY),
        store=throttled.MemoryStore(),
    )
    return limiter.limit


@contextmanager
def our_handle(balancer: InMemoryBalancer | None = None) -> Iterator[DestinationHandle]:
    """Run a client, on the machine's clocks, whose balancer is in memory."""
    balancer = balancer or InMemoryBalancer({"orders-db": 1000 * PLENTY})
    with balancer.client() as client:
        wait_until_ready(client)
        yield client.destination("orders-db")


def blocking(handle: DestinationHandle) -> dict[str, Take]:
    """Return those that never wait and may be called from any thread."""
    with_pyrate = pyrate()
    return {
        BARE: bare_lock(),
        f"{OURS}, try_acquire": handle.try_acquire,
        "limits (memory, fixed window)": limits_in_memory(),
        "pyrate-limiter (memory, GCRA)": lambda: with_pyrate.try_acquire(blocking=False),
        "throttled-py (memory, fixed window)": throttled_in_memory(),
    }


def awaited(handle: DestinationHandle) -> dict[str, TakeAsync]:
    """Return those that are awaited, made for the running loop."""
    return {
        f"{OURS}, acquire_async": handle.acquire_async,
        "aiolimiter": AsyncLimiter(PLENTY).acquire,
        "asyncio-throttle": Throttler(PLENTY).acquire,
    }


def spend(take: Take, calls: int) -> None:
    """Take as often as told."""
    for _ in range(calls):
        take()


def by_one_thread(take: Take, calls: int) -> float:
    """Return microseconds of processor time for a call."""
    began = time.thread_time_ns()
    spend(take, calls)
    return (time.thread_time_ns() - began) / calls / 1000


def by_threads(take: Take, calls: int) -> float:
    """Return microseconds for a call, of the time until all threads have done their part."""
    each = calls // THREADS
    threads = [threading.Thread(target=spend, args=(take, each)) for _ in range(THREADS)]
    began = time.perf_counter_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter_ns() - began) / (each * THREADS) / 1000


async def by_one_task(take: TakeAsync, calls: int) -> float:
    """Return microseconds of processor time for an awaited call."""
    began = time.thread_time_ns()
    for _ in range(calls):
        await take()
    return (time.thread_time_ns() - began) / calls / 1000


async def by_waiting_tasks(take: TakeAsync, seconds: float) -> tuple[float, float]:
    """Return permits a second, and microseconds of the process for each, with tasks that wait."""
    taken = 0

    async def work() -> None:
        nonlocal taken
        while True:
            await take()
            taken += 1

    tasks = [asyncio.create_task(work()) for _ in range(WAITING_TASKS)]
    await asyncio.sleep(seconds / 10)
    before, began, began_cpu = taken, time.perf_counter(), time.process_time_ns()
    await asyncio.sleep(seconds)
    count = max(1, taken - before)
    rate = count / (time.perf_counter() - began)
    cost = (time.process_time_ns() - began_cpu) / count / 1000
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return rate, cost


async def measure_waiting(*, quick: bool) -> dict[str, tuple[float, float]]:
    """Return permits a second and cost of each that can be waited for in an event loop."""
    seconds = WAITED_SECONDS_QUICK if quick else WAITED_SECONDS
    balancer = InMemoryBalancer(
        {"orders-db": WAITED_RATE * 5}, window_seconds=5, pacing=Pacing.EVEN
    )
    with our_handle(balancer) as handle:
        contenders: dict[str, TakeAsync] = {
            f"{OURS}, acquire_async": handle.acquire_async,
            "aiolimiter": AsyncLimiter(WAITED_RATE / 10, 0.1).acquire,
            "asyncio-throttle": Throttler(WAITED_RATE).acquire,
        }
        return {name: await by_waiting_tasks(take, seconds) for name, take in contenders.items()}


Costs = dict[str, list[float]]


def measure(*, quick: bool = False) -> tuple[Costs, Costs, Costs]:
    """Return each contender's costs, a number a round: one thread, eight threads, awaited."""
    calls = CALLS_QUICK if quick else CALLS
    one: Costs = {}
    many: Costs = {}
    waited: Costs = {}

    async def await_all(handle: DestinationHandle) -> None:
        for name, take in awaited(handle).items():
            waited.setdefault(name, []).append(await by_one_task(take, calls))

    with our_handle() as handle:
        contenders = blocking(handle)
        for _ in range(ROUNDS_QUICK if quick else ROUNDS):
            for name, take in contenders.items():
                one.setdefault(name, []).append(by_one_thread(take, calls))
            for name, take in contenders.items():
                many.setdefault(name, []).append(by_threads(take, calls))
            asyncio.run(await_all(handle))
    return one, many, waited


def show(title: str, costs: Mapping[str, list[float]], ours: str) -> None:
    """Print a table: median, best, and how many times ours the median is."""
    base = median(costs[ours])
    print(f"\n{title:<46}{'median us':>10}{'best us':>10}{'x ours':>9}")
    for name, found in costs.items():
        print(f"{name:<46}{median(found):>10.3f}{min(found):>10.3f}{median(found) / base:>9.2f}")


def main(*, quick: bool = False) -> None:
    """Measure and print."""
    one, many, waited = measure(quick=quick)
    ours = f"{OURS}, try_acquire"
    peers_awaited = {name: found for name, found in waited.items() if not name.startswith(OURS)}
    show("one thread, each call granted", one | peers_awaited, ours)
    show(f"{THREADS} threads, the same work together", many, ours)
    show("awaited, each call granted", waited, f"{OURS}, acquire_async")
    print(f"\n{f'{WAITING_TASKS} tasks that wait':<46}{'permits/s':>10}{'us':>10}")
    for name, (rate, cost) in asyncio.run(measure_waiting(quick=quick)).items():
        print(f"{name:<46}{rate:>10.0f}{cost:>10.1f}")
    bare = median(many[ours]) / median(many[BARE])
    print(f"\n{THREADS} threads: {bare:.2f} x of a bare lock and an integer")
