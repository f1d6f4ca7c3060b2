"""What a fork and the interpreter's exit mean to the clients of a process.

Decides that a child starts clean and that an exit flushes within a deadline. Knows of a client only
the two things it can be told. Signals are the host's: no handler is installed.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from typing import Final, Protocol

EXIT_SECONDS: Final = 2.0
"""How long all clients together may hold up the interpreter's exit."""

EXIT_LEAST_SECONDS: Final = 0.1
"""What each has at least."""


class ForkAware(Protocol):
    """What can be told of forks and exits."""

    def after_fork_in_child(self) -> None:
        """Forget everything of the parent's."""

    def at_exit(self, timeout_seconds: float) -> None:
        """Flush and end within the time; raise nothing."""


_clients: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_abandoned: list[object] = []
_minded_pids: set[int] = set()


def watch(client: ForkAware) -> None:
    """Tell ``client`` of forks and of the exit, as long as it lives."""
    _clients.add(client)
    _mind_multiprocessing()


def abandon(*leftovers: object) -> None:
    """Keep what belongs to the parent from being cleared up in the child.

    Sockets and loops of the parent are harmless as long as nobody closes them.
    """
    _abandoned.extend(leftovers)


def _mind_multiprocessing() -> None:
    # Its forked children end without the interpreter's exit; they run finalisers of their own.
    parent_process = getattr(sys.modules.get("multiprocessing.process"), "parent_process", None)
    util = sys.modules.get("multiprocessing.util")
    if util is None or parent_process is None or parent_process() is None:
        return
    if os.getpid() not in _minded_pids:
        _minded_pids.add(os.getpid())
        util.Finalize(None, _at_exit, exitpriority=0)


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client.after_fork_in_child()


def _at_exit() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    clients = list(_clients)
    for number, client in enumerate(clients):
        left_seconds = max(0.0, deadline - time.monotonic())
        client.at_exit(max(EXIT_LEAST_SECONDS, left_seconds / (len(clients) - number)))


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
