"""Calls that no sound program makes, and those that interrupt another one of their own thread."""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections.abc import Callable

import pytest

from worker_sdk import PermitClient, PermitTimeout, ReentrantCallError
from worker_sdk.testing import InMemoryBalancer, ManualClock
from worker_sdk.transports.memory import MemorySink, MemorySource
from worker_sdk.wire.usage import MemberState, UsageBatch

WAIT_SECONDS = 20.0
NO_COUNTS = [0, -1, 1.0, 1.5, math.nan, math.inf, True, "1", None]
NO_TIMES = [math.nan, "1", [1]]


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.005)


def fresh(client: PermitClient) -> None:
    eventually(lambda: client.destination("db").state.epoch > 0, "the first document")


@pytest.mark.parametrize("permits", NO_COUNTS)
async def test_permits_are_whole_numbers_or_nothing_is_taken(permits: int) -> None:
    async with InMemoryBalancer({"db": 5}).client(clock=ManualClock()) as client:
        await asyncio.to_thread(fresh, client)
        handle = client.destination("db")
        with pytest.raises(ValueError, match="whole number"):
            handle.try_acquire(permits)
        with pytest.raises(ValueError, match="whole number"):
            handle.acquire(permits)
        with pytest.raises(ValueError, match="whole number"):
            await handle.acquire_async(permits)
        with pytest.raises(ValueError, match="whole number"):
            handle.refund(permits)
        assert [handle.try_acquire() for _ in range(6)] == [True] * 5 + [False]
        assert (handle.state.used, handle.state.denied) == (5, 1)


@pytest.mark.parametrize("seconds", NO_TIMES)
async def test_a_timeout_that_is_no_number_is_refused_before_anything_waits(seconds: float) -> None:
    async with InMemoryBalancer({"db": 1}).client(clock=ManualClock()) as client:
        await asyncio.to_thread(fresh, client)
        handle = client.destination("db")
        assert handle.try_acquire()
        with pytest.raises(ValueError, match="number of seconds"):
            handle.acquire(timeout=seconds)
        with pytest.raises(ValueError, match="number of seconds"):
            await handle.acquire_async(timeout=seconds)
        with pytest.raises(ValueError, match="number of seconds"):
            client.close(timeout=seconds)
        assert (handle.state.waiting, handle.state.used) == (0, 1)
        for none in (0, -5, -math.inf):
            with pytest.raises(PermitTimeout):
                handle.acquire(timeout=none)
            with pytest.raises(PermitTimeout):
                await handle.acquire_async(timeout=none)


@pytest.mark.parametrize(
    "seconds", [math.inf, 1e300, 10**400], ids=["infinite", "huge", "overflowing"]
)
def test_a_wait_without_an_end_ends_with_its_permit(seconds: float) -> None:
    clock = ManualClock()
    client = InMemoryBalancer({"db": 1}).client(clock=clock)
    client.start()
    fresh(client)
    handle = client.destination("db")
    assert handle.try_acquire()
    waiter = threading.Thread(target=handle.acquire, kwargs={"timeout": seconds}, daemon=True)
    waiter.start()
    eventually(lambda: handle.state.waiting == 1, "somebody waits")
    clock.advance(60)
    waiter.join(WAIT_SECONDS)
    assert handle.state.used == 2
    assert client.close(timeout=seconds) == 0


class InterruptingClock(ManualClock):
    """Runs a call in the midst of another one, as a signal handler or a finaliser would."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupt: Callable[[], object] | None = None
        self.thread = threading.get_ident()

    def wall_ms(self) -> int:
        interrupt = self.interrupt
        if interrupt is not None and threading.get_ident() == self.thread:
            self.interrupt = None
            interrupt()
        return super().wall_ms()


def test_a_call_amid_another_one_of_its_thread_is_refused_and_never_hangs() -> None:
    clock = InterruptingClock()
    with InMemoryBalancer({"db": 2}).client(clock=clock) as client:
        fresh(client)
        handle = client.destination("db")
        heard: list[object] = []

        def call(asked: Callable[[], object]) -> None:
            try:
                heard.append(asked())
            except ReentrantCallError:
                heard.append("refused")

        for asked in (
            handle.try_acquire,
            lambda: handle.acquire(timeout=0),
            handle.refund,
            lambda: handle.state,
            lambda: client.state,
        ):
            clock.interrupt = lambda asked=asked: call(asked)
            handle.try_acquire(2)  # several at once are always asked for under the lock
        assert heard == [False, "refused", "refused", "refused", "refused"]
        assert handle.state.used == 2


def test_close_amid_a_call_of_its_thread_returns_and_says_goodbye_after_it() -> None:
    clock = InterruptingClock()
    balancer = InMemoryBalancer({"db": 2})
    client = balancer.client(clock=clock)
    client.start()
    fresh(client)
    handle = client.destination("db")
    clock.interrupt = lambda: client.close(timeout=WAIT_SECONDS)
    assert handle.try_acquire(2)
    eventually(lambda: balancer.batches[-1].state is MemberState.LEAVING, "the goodbye")
    assert sum(entry.used for batch in balancer.batches for entry in batch.tuples) == 2


def test_a_client_closed_by_its_own_background_says_goodbye() -> None:
    batches: list[UsageBatch] = []
    closing: list[PermitClient] = []

    def take(batch: UsageBatch) -> None:
        batches.append(batch)
        while closing:
            closing.pop().close(timeout=WAIT_SECONDS)

    sink = MemorySink(take)
    client = PermitClient(
        destinations=["db"], kafka=lambda: sink, distribution=lambda _: MemorySource(), host="h"
    )
    closing.append(client)
    client.start()
    eventually(lambda: bool(batches) and batches[-1].state is MemberState.LEAVING, "the goodbye")


async def test_a_storm_of_cancelled_waiters_loses_no_permit_and_leaves_nobody_waiting() -> None:
    clock = ManualClock()
    random_ = random.Random(20_26)
    async with InMemoryBalancer({"db": 7}).client(clock=clock) as client:
        await asyncio.to_thread(fresh, client)
        handle = client.destination("db")
        taken = 0

        async def work() -> None:
            nonlocal taken
            await handle.acquire_async(random_.randint(1, 3), timeout=WAIT_SECONDS)
            taken += 1

        for _ in range(20):
            tasks = [asyncio.create_task(work()) for _ in range(30)]
            for step in range(3):
                await asyncio.sleep(0.001 * step)
                for task in random_.sample(tasks, 12):
                    task.cancel()
                if step == 1:
                    clock.advance(60)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert handle.state.waiting == 0
            clock.advance(60)
            left = handle.state.left_permits
            assert left == 7, "what cancelled waiters were granted came back"
        assert taken > 0
