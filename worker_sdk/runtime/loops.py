"""The event loop that runs behind a client.

Decides two things that make it a good guest: it survives a fork of its process without harm to the
parent's loop, and it can look up names while the interpreter exits. Knows nothing of permits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import socket
import threading
from typing import Any, Final

_logger: Final = logging.getLogger("worker_sdk")


def _note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Leftovers of drivers that were given up; what matters of them was counted.
    _logger.debug("event loop: %s", context.get("message"), exc_info=context.get("exception"))


class GuestLoop(asyncio.SelectorEventLoop):
    """An event loop on `poll`, which has no state in the kernel that a forked child shares.

    With epoll the clearing up of a copy in the child would take the parent's sockets out of the
    parent's set.
    """

    def __init__(self) -> None:
        has_poll = hasattr(selectors, "PollSelector")
        super().__init__(selectors.PollSelector() if has_poll else selectors.SelectSelector())
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
            except OSError as fault:
                error = fault
            if not self.is_closed():
                self.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=look_up, name="permit-lookup", daemon=True).start()
        return await found
