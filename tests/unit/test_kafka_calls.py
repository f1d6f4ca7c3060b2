"""Whose cancellation it is that a call of the Kafka client ends with."""

from __future__ import annotations

import asyncio

import pytest

from balancer.adapters.kafka.calls import bounded
from balancer.errors import UnavailableError

SECONDS = 30.0


async def test_a_cancellation_that_the_client_lets_through_is_a_fault_of_kafka() -> None:
    with pytest.raises(UnavailableError, match="Kafka could not be left"):
        async with bounded("be left", SECONDS):
            raise asyncio.CancelledError


async def test_who_is_cancelled_in_a_call_is_cancelled() -> None:
    calling = asyncio.Event()

    async def call() -> None:
        async with bounded("be read", SECONDS):
            calling.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(call())
    await calling.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_that_takes_too_long_is_a_fault_of_kafka() -> None:
    with pytest.raises(UnavailableError, match="TimeoutError"):
        async with bounded("be read", 0.001):
            await asyncio.Event().wait()
