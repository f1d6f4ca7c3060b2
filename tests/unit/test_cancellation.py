"""Cancellations that nobody asked for and a driver lets through end nothing without a word."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial

import pytest

from balancer.adapters.kafka.calls import bounded, looked_at
from balancer.adapters.postgres.calls import translated
from balancer.app import agenda, catalogue
from balancer.app.cancellation import ended, is_cancelled
from balancer.app.readiness import Readiness
from balancer.app.view import DistributionView
from balancer.core.model import Destination
from balancer.errors import UnavailableError
from tests.support.processes import NAME, Process, Shared, send
from tests.support.service_doubles import CountingMetrics
from tests.support.waiting import until

SECONDS = 30.0
CALLS = [
    pytest.param(partial(bounded, "be read", SECONDS), id="kafka"),
    pytest.param(partial(translated, "tell the time"), id="postgres"),
]

Call = Callable[[], AbstractAsyncContextManager[None]]


@pytest.mark.parametrize("call", CALLS)
async def test_a_cancellation_that_a_client_lets_through_is_a_fault_of_its_server(
    call: Call,
) -> None:
    with pytest.raises(UnavailableError, match="could not"):
        async with call():
            raise asyncio.CancelledError


@pytest.mark.parametrize("call", CALLS)
async def test_who_is_cancelled_in_a_call_is_cancelled(call: Call) -> None:
    calling = asyncio.Event()
    seen: list[bool] = []

    async def work() -> None:
        try:
            async with call():
                calling.set()
                await asyncio.Event().wait()
        finally:
            seen.append(is_cancelled())

    task = asyncio.create_task(work())
    await calling.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == [True]


async def test_a_call_that_takes_too_long_is_a_fault_of_kafka() -> None:
    with pytest.raises(UnavailableError, match="TimeoutError"):
        async with bounded("be read", 0.001):
            await asyncio.Event().wait()


async def test_a_commit_that_was_given_up_and_fails_later_is_no_crash() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    may_fail = asyncio.Event()

    async def commit(offset: int) -> None:
        await may_fail.wait()
        raise ConnectionError(offset)

    began = looked_at(commit)(7)
    with pytest.raises(UnavailableError, match="could not take a commit"):
        async with bounded("take a commit", 0.001):
            await asyncio.shield(began)
    may_fail.set()
    await asyncio.wait([began])
    del began
    gc.collect()
    await asyncio.sleep(0)
    assert told == []


async def test_a_round_that_a_driver_cancels_has_crashed_and_is_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agenda, "SHARE_MAX_MS", 100)
    shared = Shared()
    await shared.repository.put_destination(Destination(NAME, 1000, 60))
    process = Process(shared, "one")
    load, strays = process.store.load, [asyncio.CancelledError()]

    async def stray_once(shard: int, *, now_ms: int) -> object:
        if strays:
            raise strays.pop()
        return await load(shard, now_ms=now_ms)

    monkeypatch.setattr(process.store, "load", stray_once)
    async with process.running():
        send(shared, "a")
        await until(lambda: process.has_share("a"))
    assert process.metrics.counts[catalogue.ROUNDS, "crashed"] == 1


async def test_a_dependency_whose_client_gives_up_by_itself_does_not_answer() -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    readiness = Readiness({"kafka": give_up}, DistributionView(1), CountingMetrics())
    assert await readiness.look_at("kafka") == "its client gave up"


async def test_what_does_not_end_in_time_is_cancelled_and_then_not_waited_for_long() -> None:
    for_ever = asyncio.Event()

    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await for_ever.wait()
        await for_ever.wait()

    tasks = [asyncio.create_task(stubborn()), asyncio.create_task(asyncio.sleep(0))]
    await asyncio.sleep(0)
    async with asyncio.timeout(SECONDS):
        await ended([], 0)
        await ended(tasks, 0)
    assert [task.done() for task in tasks] == [False, True]
    for_ever.set()
    await tasks[0]
