"""Waiting for a condition, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(
    condition: Callable[[], bool], *, seconds: float = 10, poll_seconds: float = 0.001
) -> None:
    """Wait until ``condition`` holds.

    Raises:
        TimeoutError: where it does not in time.
    """
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions of others' code have no event
            await asyncio.sleep(poll_seconds)
