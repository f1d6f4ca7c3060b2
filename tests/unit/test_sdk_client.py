"""The client through its public face, on the balancer in memory."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from worker_sdk import (
    ClientClosedError,
    ImpossibleRequestError,
    Mode,
    PermitClient,
    PermitTimeout,
)
from worker_sdk.testing import InMemoryBalancer, ManualClock
from worker_sdk.transports.base import Identity
from worker_sdk.transports.memory import MemorySink, MemorySource
from worker_sdk.wire.distribution import Pacing
from worker_sdk.wire.usage import MemberState, UsageBatch

WAIT_SECONDS = 20.0


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.005)


def fresh(client: PermitClient, name: str = "db") -> None:
    handle = client.destination(name)
    eventually(lambda: handle.state.mode is Mode.FRESH, "the first document")


def test_permits_of_the_share_are_given_and_no_more() -> None:
    balancer = InMemoryBalancer({"db": 30}, members=3)
    with balancer.client(clock=ManualClock()) as client:
        fresh(client)
        handle = client.destination("db")
        assert [handle.try_acquire(4), handle.try_acquire(6), handle.try_acquire()] == [
            True,
            True,
            False,
        ]
        state = handle.state
        assert (state.used, state.denied, state.left_permits, state.granted_permits) == (
            10,
            1,
            0,
            10,
        )
        assert state.share_percent == pytest.approx(33.3, abs=0.1)


def test_acquire_waits_for_the_next_window_and_then_returns() -> None:
    clock = ManualClock()
    with InMemoryBalancer({"db": 1}).client(clock=clock) as client:
        fresh(client)
        handle = client.destination("db")
        handle.acquire(timeout=WAIT_SECONDS)
        taken = threading.Event()

        def ask() -> None:
            handle.acquire(timeout=WAIT_SECONDS)
            taken.set()

        waiter = threading.Thread(target=ask, daemon=True)
        waiter.start()
        eventually(lambda: handle.state.waiting == 1, "somebody waits")
        assert not taken.is_set()
        clock.advance(60)
        assert taken.wait(WAIT_SECONDS)
        waiter.join(WAIT_SECONDS)


def test_a_timeout_takes_nothing_and_says_when_to_come_again() -> None:
    clock = ManualClock()
    with InMemoryBalancer({"db": 1}).client(clock=clock) as client:
        fresh(client)
        handle = client.destination("db")
        handle.acquire(timeout=WAIT_SECONDS)
        with pytest.raises(PermitTimeout) as late:
            handle.acquire(timeout=0.01)
        expected = (60_000 - clock.now_ms % 60_000) / 1000
        assert late.value.retry_after_seconds == pytest.approx(expected)
        assert handle.state.waiting == 0
        assert handle.state.denied == 1
        clock.advance(expected)
        assert handle.try_acquire()


def test_waiters_are_served_first_come_first_served() -> None:
    clock = ManualClock()
    with InMemoryBalancer({"db": 1}).client(clock=clock) as client:
        fresh(client)
        handle = client.destination("db")
        assert handle.try_acquire()
        order: list[int] = []
        threads = []
        for n in range(5):

            def ask(number: int = n) -> None:
                handle.acquire(timeout=WAIT_SECONDS)
                order.append(number)

            threads.append(threading.Thread(target=ask, daemon=True))
            threads[-1].start()
            eventually(lambda count=n + 1: handle.state.waiting == count, "they queue up")  # type: ignore[misc]
        for n in range(5):
            clock.advance(60)
            eventually(lambda count=n + 1: len(order) == count, "the next is served")  # type: ignore[misc]
        assert order == [0, 1, 2, 3, 4]


async def test_acquire_async_waits_without_blocking_its_loop() -> None:
    clock = ManualClock()
    async with InMemoryBalancer({"db": 1}).client(clock=clock) as client:
        await asyncio.to_thread(fresh, client)
        handle = client.destination("db")
        await handle.acquire_async(timeout=WAIT_SECONDS)
        waiting = asyncio.create_task(handle.acquire_async(timeout=WAIT_SECONDS))
        await asyncio.sleep(0)
        assert not waiting.done()
        clock.advance(60)
        await waiting
        with pytest.raises(PermitTimeout):
            await handle.acquire_async(timeout=0.01)


async def test_a_cancelled_waiter_takes_nothing_and_lets_the_next_one_by() -> None:
    clock = ManualClock()
    async with InMemoryBalancer({"db": 1}).client(clock=clock) as client:
        await asyncio.to_thread(fresh, client)
        handle = client.destination("db")
        assert handle.try_acquire()
        first = asyncio.create_task(handle.acquire_async())
        second = asyncio.create_task(handle.acquire_async(timeout=WAIT_SECONDS))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        clock.advance(60)
        await second
        assert handle.state.used == 2


async def test_a_task_cancelled_just_after_its_grant_gives_the_permit_back() -> None:
    clock = ManualClock()
    async with InMemoryBalancer({"db": 1}).client(clock=clock) as client:
        await asyncio.to_thread(fresh, client)
        handle = client.destination("db")
        assert handle.try_acquire()
        waiting = asyncio.create_task(handle.acquire_async())
        await asyncio.sleep(0)
        clock.advance(60)
        # Granted by the background while this loop is kept from running the waiter.
        eventually(lambda: handle.state.waiting == 0, "the waiter is granted")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert handle.try_acquire()


def test_several_event_loops_wait_side_by_side() -> None:
    clock = ManualClock()
    with InMemoryBalancer({"db": 2}).client(clock=clock) as client:
        fresh(client)
        handle = client.destination("db")
        assert handle.try_acquire(2)
        threads = [
            threading.Thread(
                target=lambda: asyncio.run(handle.acquire_async(timeout=WAIT_SECONDS)), daemon=True
            )
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: handle.state.waiting == 2, "both wait")
        clock.advance(60)
        for thread in threads:
            thread.join(WAIT_SECONDS)
        assert handle.state.used == 4


def test_more_than_a_window_can_give_is_refused_at_once_with_a_reason() -> None:
    with InMemoryBalancer({"db": 10}).client(clock=ManualClock()) as client:
        fresh(client)
        with pytest.raises(ImpossibleRequestError, match="11 permits of 'db'"):
            client.destination("db").acquire(11)
        with pytest.raises(ValueError, match="at least 1"):
            client.destination("db").acquire(0)


def test_permit_times_the_delivery_and_reports_it_as_busy() -> None:
    clock = ManualClock()
    balancer = InMemoryBalancer({"db": 10})
    client = balancer.client(clock=clock)
    client.start()
    fresh(client)
    with client.destination("db").permit():
        clock.advance(3)

    def fail() -> None:
        with client.destination("db").permit():
            clock.advance(2)
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert client.close(timeout=WAIT_SECONDS) == 0
    last = balancer.batches[-1]
    assert last.state is MemberState.LEAVING
    assert (last.tuples[0].used, last.tuples[0].busy_ms) == (2, 5_000)


def test_refunded_permits_may_be_spent_again_in_their_window() -> None:
    clock = ManualClock()
    with InMemoryBalancer({"db": 3}).client(clock=clock) as client:
        fresh(client)
        handle = client.destination("db")
        assert handle.try_acquire(3)
        assert handle.refund(2) == 2
        assert handle.try_acquire(2)
        assert not handle.try_acquire()
        clock.advance(60)
        assert handle.refund(1) == 0


def test_close_sends_the_last_tuple_with_a_goodbye_and_ends_everything() -> None:
    balancer = InMemoryBalancer({"db": 10})
    client = balancer.client(clock=ManualClock())
    client.start()
    fresh(client)
    handle = client.destination("db")
    assert handle.try_acquire(2)
    assert client.close(timeout=WAIT_SECONDS) == 0
    used = [entry.used for batch in balancer.batches for entry in batch.tuples]
    assert sum(used) == 2
    assert balancer.batches[-1].spent["db"][1] == 2
    assert client.close() == 0
    for call in (handle.try_acquire, handle.acquire, handle.refund):
        with pytest.raises(ClientClosedError):
            call()
    assert handle.state.used == 2


def test_close_sends_waiters_away() -> None:
    client = InMemoryBalancer({"db": 1}).client(clock=ManualClock())
    client.start()
    fresh(client)
    handle = client.destination("db")
    assert handle.try_acquire()
    outcome: list[BaseException] = []

    def ask() -> None:
        try:
            handle.acquire()
        except ClientClosedError as error:
            outcome.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    eventually(lambda: handle.state.waiting == 1, "somebody waits")
    client.close(timeout=WAIT_SECONDS)
    thread.join(WAIT_SECONDS)
    assert len(outcome) == 1


def test_a_client_that_was_never_started_says_so() -> None:
    handle = InMemoryBalancer({"db": 1}).client().destination("db")
    with pytest.raises(ClientClosedError, match="not started"):
        handle.try_acquire()
    with pytest.raises(ClientClosedError):
        _ = handle.state


def test_a_client_started_again_is_a_new_member() -> None:
    balancer = InMemoryBalancer({"db": 2}, members=2)
    client = balancer.client(clock=ManualClock())
    handle = client.destination("db")
    instances = set()
    for _ in range(2):
        with client:
            fresh(client)
            assert handle.try_acquire()
            instances.add(handle.state.instance)
    assert len(instances) == 2


def test_failed_flushes_are_counted_merged_and_delivered_later() -> None:
    sink, source = MemorySink(), MemorySource()
    sink.fault = "down"
    client = PermitClient(
        destinations=["db"], kafka=lambda: sink, distribution=lambda _: source, flush_seconds=1
    )
    with client:
        eventually(lambda: client.state.flushes_failed >= 1, "a flush fails")
        assert not client.destination("db").try_acquire(7)
        sink.fault = None
        eventually(
            lambda: sum(entry.denied for batch in sink.batches for entry in batch.tuples) == 7,
            "the count arrives",
        )
        assert client.state.failures["flush:down"] >= 1
    assert sum(entry.denied for batch in sink.batches for entry in batch.tuples) == 7


def test_a_sink_that_raises_anything_at_all_does_not_end_the_flushing() -> None:
    class Moody(MemorySink):
        calls = 0

        def send(self, batch: object, timeout_seconds: float) -> None:
            self.calls += 1
            if self.calls in {2, 3}:
                raise RuntimeError("unexpected")
            super().send(batch, timeout_seconds)  # type: ignore[arg-type]  # as given

    sink, source = Moody(), MemorySource()
    client = PermitClient(
        destinations=["db"], kafka=lambda: sink, distribution=lambda _: source, flush_seconds=1
    )
    with client:
        assert not client.destination("db").try_acquire(5)
        eventually(lambda: client.state.flushes_delivered >= 4, "flushes go on")
    assert sum(entry.denied for batch in sink.batches for entry in batch.tuples) == 5


def test_a_source_that_fails_is_counted_and_the_last_shares_stay() -> None:
    balancer = InMemoryBalancer({"db": 10})
    clock, source = ManualClock(), MemorySource()

    def make_source(identity: Identity) -> MemorySource:
        arrived = UsageBatch(identity.host, identity.instance, 0, MemberState.STARTING)
        balancer.sink.send(arrived, 1)
        source.publish(*balancer.shares(identity, clock.now_ms))
        return source

    client = PermitClient(
        destinations=["db"],
        kafka=lambda: balancer.sink,
        distribution=make_source,
        flush_seconds=1,
        clock=clock,
    )
    with client:
        fresh(client)
        source.fault = "gone"
        clock.advance(60 * 20_000)
        eventually(lambda: client.state.failures.get("read:TransportError", 0) > 0, "it fails")
        clock.advance(-60 * 20_000 + 60)
        assert client.destination("db").try_acquire(10)


def test_even_pacing_serves_a_waiter_at_the_promised_instant() -> None:
    clock = ManualClock(1_796_000_040_000)
    balancer = InMemoryBalancer({"db": 10}, pacing=Pacing.EVEN)
    with balancer.client(clock=clock) as client:
        fresh(client)
        handle = client.destination("db")
        while handle.try_acquire():
            pass
        retry_after_seconds = handle.state.retry_after_seconds
        assert retry_after_seconds is not None
        clock.advance(retry_after_seconds)
        assert handle.try_acquire()
