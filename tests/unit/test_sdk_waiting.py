"""Many who wait at once, and a wall clock that steps while they do."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable

from tests.support.real_clients import await_condition
from worker_sdk import Mode, PermitTimeout
from worker_sdk.testing import InMemoryBalancer, ManualClock, wait_until_ready
from worker_sdk.testing.plugin import StartPermitClient

WAIT_SECONDS = 30.0
WAITERS = 5_000
CAPACITY = 1_000


async def until(holds: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(await_condition, holds, what)


async def test_of_thousands_with_all_kinds_of_patience_each_gets_its_own_or_nothing(
    permit_clock: ManualClock,
) -> None:
    dice = random.Random(20_26)
    balancer = InMemoryBalancer({"db": CAPACITY})
    client = balancer.client(clock=permit_clock, flush_seconds=3600)
    client.start()
    await asyncio.to_thread(wait_until_ready, client)
    db = client.destination("db")
    db.acquire_many(CAPACITY)
    taken: list[int] = []
    late = 0

    async def work() -> None:
        nonlocal late
        permits = dice.choice([1, 1, 2, 3])
        try:
            await db.acquire_async(permits, timeout=dice.choice([None, None, 0, 0.01, 0.3]))
            taken.append(permits)
        except PermitTimeout:
            late += 1

    async with asyncio.timeout(WAIT_SECONDS):
        tasks = [asyncio.create_task(work()) for _ in range(WAITERS)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.02)
            for task in dice.sample(tasks, 50):
                task.cancel()
            permit_clock.advance(60)
        await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = sum(task.cancelled() for task in tasks)
    assert len(taken) + late + cancelled == WAITERS
    assert min(len(taken), late, cancelled) > 0
    assert db.state.waiting == 0
    assert client.close() == 0
    # What was granted to those who were cancelled in that moment was given back.
    told = sum(entry.used for batch in balancer.batches for entry in batch.tuples)
    assert told == CAPACITY + sum(taken)


async def test_tasks_are_served_first_come_first_served_whatever_their_patience(
    permit_clock: ManualClock,
) -> None:
    async with InMemoryBalancer({"db": 1}).client(clock=permit_clock) as client:
        await asyncio.to_thread(wait_until_ready, client)
        db = client.destination("db")
        db.acquire_many(1)
        served: list[int] = []

        async def work(number: int) -> None:
            await db.acquire_async(timeout=None if number % 2 else WAIT_SECONDS)
            served.append(number)

        def waiting(count: int) -> Callable[[], bool]:
            return lambda: db.state.waiting == count

        def has_served(count: int) -> Callable[[], bool]:
            return lambda: len(served) == count

        async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as tasks:
            for number in range(6):
                tasks.create_task(work(number))
                await until(waiting(number + 1), "it waits")
            for number in range(6):
                permit_clock.advance(60)
                await until(has_served(number + 1), "the next is served")
    assert served == list(range(6))


def test_a_wall_clock_that_steps_gives_nobody_more_and_leaves_nobody_waiting(
    permit_client: StartPermitClient, permit_clock: ManualClock
) -> None:
    db = permit_client({"db": 10}).destination("db")
    db.acquire_many(10)
    served = threading.Semaphore(0)

    def work() -> None:
        db.acquire(timeout=WAIT_SECONDS)
        served.release()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(25)]
    for thread in threads:
        thread.start()
    await_condition(lambda: db.state.waiting == 25, "all wait")
    permit_clock.step_wall(-3600)
    assert (db.state.mode, db.state.left_permits) == (Mode.STARTING, 0)
    permit_clock.step_wall(3600)
    assert (db.state.waiting, db.state.left_permits) == (25, 0)  # it is the window of before

    permit_clock.step_wall(60)
    await_condition(lambda: db.state.waiting == 15, "the next window serves ten")
    for seconds in (-60, 60):
        permit_clock.step_wall(seconds)
        assert (db.state.waiting, db.state.spent_permits) == (15, 10)

    permit_clock.step_wall(7200)
    await_condition(lambda: db.state.waiting == 5, "a window two hours ahead serves ten")
    permit_clock.step_wall(-7200)
    assert (db.state.waiting, db.state.spent_permits) == (5, 10)
    permit_clock.step_wall(60)
    for _ in threads:
        assert served.acquire(timeout=WAIT_SECONDS)
    assert (db.state.used, db.state.spent_permits) == (35, 5)


async def test_who_waits_on_an_event_loop_is_served_after_a_step_too(
    permit_client: StartPermitClient, permit_clock: ManualClock
) -> None:
    db = permit_client({"db": 10}).destination("db")
    db.acquire_many(10)
    waiting = asyncio.create_task(db.acquire_async(timeout=WAIT_SECONDS))
    await asyncio.to_thread(await_condition, lambda: db.state.waiting == 1, "it waits")
    for hours in (-1, 2, -1):
        permit_clock.step_wall(hours * 3600)
    permit_clock.advance(60)
    await waiting
    assert db.state.used == 11
