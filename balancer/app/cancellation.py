"""Whether the running task was cancelled, and how tasks are brought to their end.

Drivers let through the cancellation of tasks of their own. A task that took that for its own
cancellation would end without a word; so the running task alone decides. Knows no driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

CANCELLED_SECONDS: Final = 1.0
"""How long a cancelled task is waited for."""


def is_cancelled() -> bool:
    """Say whether somebody cancelled the running task.

    If not, a `CancelledError` is that of a driver's own task, which the driver let through.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def ended(tasks: Collection[asyncio.Task[None]], seconds: float) -> None:
    """Let tasks end by themselves for a time, then cancel them and wait for that a second more."""
    if not tasks:
        return
    _, pending = await asyncio.wait(list(tasks), timeout=seconds)
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending, timeout=CANCELLED_SECONDS)
