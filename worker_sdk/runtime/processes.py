"""What a fork and the interpreter's exit mean to the clients of a process.

Decides that a child starts clean and that an exit flushes within a deadline. Knows of a client only
the two things it can be told. Signals are the host's: no handler is installed.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Final, Protocol

EXIT_SECONDS: Final = 2.0
"""How long all clients together may hold up the interpreter's exit."""


class ForkAware(Protocol):
    """What can be told of forks and exits."""

    def after_fork_in_child(self) -> None:
        """Forget everything of the parent's."""

    def at_exit(self, timeout_seconds: float) -> None:
        """Flush and end within the time; raise nothing."""


_clients: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_abandoned: list[object] = []


def watch(client: ForkAware) -> None:
    """Tell ``client`` of forks and of the exit, as long as it lives."""
    _clients.add(client)


def abandon(*leftovers: object) -> None:
    """Keep what belongs to the parent from being cleared up in the child.

    Sockets and loops of the parent are harmless as long as nobody closes them.
    """
    _abandoned.extend(leftovers)


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client.after_fork_in_child()


def _at_exit() -> None:
    clients = list(_clients)
    for client in clients:
        client.at_exit(EXIT_SECONDS / len(clients))


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
