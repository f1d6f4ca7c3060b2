"""An event loop in the host's process, for drivers that need one.

Decides four things that make it a good guest: it has a thread of its own, it survives a fork of its
process without harm to the parent's loop, it can look up names while the interpreter exits, and
where threads are greenlets it leaves the host's own event loops alone. Knows nothing of permits.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import logging
import os
import selectors
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from worker_sdk.transports.threads import GuestThread, Latch, has_greenlets

T = TypeVar("T")

END_SECONDS: Final = 0.2
"""What tasks that are left have for their end."""

_logger: Final = logging.getLogger("worker_sdk")

# Meant for those who make event loops.
_get_running_loop: Final = asyncio._get_running_loop  # noqa: SLF001
_set_running_loop: Final = asyncio._set_running_loop  # noqa: SLF001


def _note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Leftovers of drivers that were given up; what matters of them was counted.
    _logger.debug("event loop: %s", context.get("message"), exc_info=context.get("exception"))


def _make_selector() -> selectors.BaseSelector:
    base: Any = getattr(selectors, "PollSelector", selectors.SelectSelector)
    if not has_greenlets():
        selector: selectors.BaseSelector = base()
        return selector

    class Aside(base):  # type: ignore[misc]  # which one it is, is known here only
        """While its greenlet waits, others run in this thread: its loop is not theirs."""

        _of_others: asyncio.AbstractEventLoop | None = None

        def select(self, timeout: float | None = None) -> Any:
            own = _get_running_loop()
            _set_running_loop(self._of_others)
            try:
                return super().select(timeout)
            finally:
                self._of_others = _get_running_loop()
                _set_running_loop(own)

    return Aside()


class GuestLoop(asyncio.SelectorEventLoop):
    """An event loop on `poll`, which has no state in the kernel that a forked child shares.

    With epoll the clearing up of a copy in the child would take the parent's sockets out of the
    parent's set.
    """

    def __init__(self) -> None:
        super().__init__(_make_selector())
        self._owner_pid = os.getpid()
        self.set_exception_handler(_note)

    def __del__(self) -> None:
        if os.getpid() == self._owner_pid:
            super().__del__()

    async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> Any:
        """Look a name up on a thread of its own: executors take no work at the exit."""
        found: asyncio.Future[Any] = self.create_future()

        def settle(result: Any, error: Exception | None) -> None:
            if found.done():
                return
            if error is None:
                found.set_result(result)
            else:
                found.set_exception(error)

        def look_up() -> None:
            result, error = None, None
            try:
                result = socket.getaddrinfo(host, port, **hints)
            except Exception as fault:
                error = fault
            if not self.is_closed():
                self.call_soon_threadsafe(settle, result, error)

        # Thread.start would wait for its beginning, and as greenlets others would run meanwhile.
        _thread.start_new_thread(look_up, ())
        return await found


class LoopThread:
    """A loop on a thread; both begin with the first use.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: GuestLoop | None = None
        self._ended = Latch()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_seconds: float) -> T:
        """Run a coroutine to its end. From one other thread only.

        Raises:
            TimeoutError: if it does not end in time; it is cancelled then.
            RuntimeError: if the system gives no thread, or after `stop`.
        """
        try:
            ending = asyncio.run_coroutine_threadsafe(coroutine, self._started_loop())
        except RuntimeError:
            coroutine.close()
            raise
        try:
            return ending.result(timeout_seconds)
        finally:
            ending.cancel()

    def call(self, callback: Callable[[], object]) -> None:
        """Have a callback called on the loop, if it runs, after what was run before."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(callback)

    def stop(self, timeout_seconds: float) -> None:
        """End the loop and its thread within the time; raise nothing."""
        if self._loop is not None:
            self.call(self._loop.stop)
            # Not by joining: where gevent patched threads after this was loaded, that never ends.
            self._ended.wait(timeout_seconds)

    def _started_loop(self) -> GuestLoop:
        if self._loop is None:
            loop = GuestLoop()
            try:
                GuestThread(self._name, lambda: _run_until_stopped(loop, self._ended)).start()
            except RuntimeError:
                loop.close()
                raise
            self._loop = loop
        return self._loop


def _run_until_stopped(loop: GuestLoop, ended: Latch) -> None:
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=END_SECONDS))
    finally:
        loop.close()
        ended.open()
