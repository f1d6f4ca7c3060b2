"""Cancelling: whose it is that a call ends with, and how long it is waited for.

Drivers let the cancellation of tasks of their own through, and whoever took that for its own would
end without a word; so it is decided by the running task alone. Knows no driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

CANCELLED_SECONDS: Final = 1.0


def is_cancelled() -> bool:
    """Say whether somebody cancelled the running task.

    Where nobody did, a `CancelledError` is of a task of a driver's own that it let through.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def ended(tasks: Collection[asyncio.Task[None]], seconds: float) -> None:
    """Let tasks end by themselves for a time, then cancel them and wait for that, a second."""
    if not tasks:
        return
    _, pending = await asyncio.wait(list(tasks), timeout=seconds)
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending, timeout=CANCELLED_SECONDS)
