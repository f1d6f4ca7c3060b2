"""The threads behind a client: none holds up another, and a close has the last word."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from tests.support.real_clients import await_condition
from worker_sdk import ClientClosedError, PermitClient
from worker_sdk.testing import InMemoryBalancer, wait_until_ready
from worker_sdk.transports.base import SendError
from worker_sdk.transports.memory import MemorySink, MemorySource
from worker_sdk.transports.threads import Bell
from worker_sdk.wire.usage import MemberState, UsageBatch

WAIT_SECONDS = 20.0


class Stuck(MemorySink):
    """A sink that holds on to every report between greeting and goodbye until it is interrupted."""

    def __init__(self, inner: MemorySink) -> None:
        super().__init__()
        self.is_holding = threading.Event()
        self._inner = inner
        self._interrupted = threading.Event()

    def send(self, batch: UsageBatch, timeout_seconds: float) -> None:
        if batch.state is MemberState.RUNNING:
            self.is_holding.set()
            assert self._interrupted.wait(WAIT_SECONDS), "nobody interrupts"
            raise SendError(batch, "interrupted")
        self._inner.send(batch, timeout_seconds)

    def interrupt(self) -> None:
        self._interrupted.set()


def test_a_report_that_hangs_holds_up_no_waiter_and_its_counts_are_in_the_goodbye() -> None:
    balancer = InMemoryBalancer({"db": 1}, window_seconds=1)
    inner = balancer.sink
    sink = balancer.sink = Stuck(inner)
    client = balancer.client(flush_seconds=1)
    client.start()
    wait_until_ready(client)
    handle = client.destination("db")
    assert not handle.try_acquire(5)
    assert sink.is_holding.wait(WAIT_SECONDS)
    for _ in range(2):  # two windows
        handle.acquire(timeout=WAIT_SECONDS)
    assert client.close(timeout=WAIT_SECONDS) == 0
    goodbye = inner.batches[-1]
    assert goodbye.state is MemberState.LEAVING
    assert [(entry.used, entry.denied) for entry in goodbye.tuples] == [(2, 5)]


def test_a_close_that_hears_of_nobody_ends_in_time_and_sends_waiters_away() -> None:
    class Deaf(MemorySink):
        def send(self, batch: UsageBatch, timeout_seconds: float) -> None:
            ended.wait(WAIT_SECONDS)

    ended = threading.Event()
    client = PermitClient(
        destinations=["db"], kafka=Deaf, distribution=lambda _: MemorySource(), host="host"
    )
    client.start()
    handle = client.destination("db")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(handle.acquire)
        await_condition(lambda: handle.state.waiting == 1, "somebody waits")
        started_mono = time.monotonic()
        assert client.close(timeout=0.5) == 1
        assert time.monotonic() - started_mono < WAIT_SECONDS / 2
        assert isinstance(waiting.exception(WAIT_SECONDS), ClientClosedError)
    ended.set()


def test_a_second_close_waits_for_the_goodbye_that_another_thread_is_at() -> None:
    class Slow(MemorySink):
        def send(self, batch: UsageBatch, timeout_seconds: float) -> None:
            if batch.state is MemberState.LEAVING:
                is_leaving.set()
                assert may_leave.wait(WAIT_SECONDS), "nobody lets it"
            super().send(batch, timeout_seconds)

    is_leaving, may_leave = threading.Event(), threading.Event()
    client = PermitClient(
        destinations=["db"], kafka=Slow, distribution=lambda _: MemorySource(), host="host"
    )
    client.start()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.close, WAIT_SECONDS)
        assert is_leaving.wait(WAIT_SECONDS)
        assert client.close(timeout=0.05) == 1, "it is not said yet"
        may_leave.set()
        assert first.result(WAIT_SECONDS) == 0
    assert client.close(timeout=0.05) == 0


def test_a_bell_that_rang_ends_one_wait_however_often_it_rang() -> None:
    bell = Bell()
    assert not bell.wait(0.0)
    bell.ring()
    bell.ring()
    assert bell.wait(WAIT_SECONDS)
    assert not bell.wait(-1.0)


def test_a_bell_rings_from_a_handler_that_interrupts_a_ring_of_its_thread() -> None:
    # An Event stands still here for ever: its own lock is held while it is set.
    bell = Bell()
    rings = 0

    def ring(_number: int, _frame: FrameType | None) -> None:
        nonlocal rings
        rings += 1
        bell.ring()

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
        until_mono = time.monotonic() + WAIT_SECONDS
        while rings < 1000 and time.monotonic() < until_mono:
            bell.ring()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rings >= 1000
    assert bell.wait(WAIT_SECONDS)
