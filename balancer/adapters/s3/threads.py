"""Threads for calls that block, which nobody has to wait for at the end.

Decides how many calls run at once and how long each is waited for. Knows nothing of what they do.
An executor's threads hold up the interpreter's exit until the store has answered; these do not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class Threads:
    """Runs calls on threads of their own, at most ``at_once`` at a time."""

    def __init__(self, at_once: int) -> None:
        self._turns = asyncio.Semaphore(at_once)

    async def call(self, function: Callable[[], _T], seconds: float) -> _T:
        """Return what ``function`` returns.

        Args:
            function: what to call.
            seconds: how long to wait for it, its turn included. A call that is given up runs on
                and keeps its turn until it ends.

        Raises:
            TimeoutError: where it takes longer.
        """
        async with asyncio.timeout(seconds):
            await self._turns.acquire()
            loop = asyncio.get_running_loop()
            outcome: asyncio.Future[_T] = loop.create_future()

            def end(result: _T | None, error: BaseException | None) -> None:
                self._turns.release()
                if outcome.done():
                    return
                if error is None:
                    outcome.set_result(result)  # type: ignore[arg-type]  # it is _T then
                else:
                    outcome.set_exception(error)

            def run() -> None:
                result: _T | None = None
                error: BaseException | None = None
                try:
                    result = function()
                except BaseException as fault:
                    error = fault
                try:
                    loop.call_soon_threadsafe(end, result, error)
                except RuntimeError:  # the loop was closed: nobody waits any more
                    return

            try:
                threading.Thread(target=run, name="s3", daemon=True).start()
            except RuntimeError:  # no more threads are to be had
                self._turns.release()
                raise
            return await outcome
