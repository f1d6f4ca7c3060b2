"""The event loop that runs behind a client.

Decides three things that make it a good guest: it survives a fork of its process without harm to
the parent's loop, it can look up names while the interpreter exits, and where threads are greenlets
it leaves the host's own event loops alone. Knows nothing of permits.
"""

from __future__ import annotations

import _thread
import asyncio
import logging
import os
import selectors
import socket
from typing import Any, Final

from worker_sdk.runtime.surroundings import has_greenlets

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
