"""The client's own threads, and how they are woken.

Decides what a thread of the client is and whether threads are greenlets here. Knows nothing of what
the threads do.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

WAIT_MAX_SECONDS = 1e6
"""Longer than any period, and every clock can count it."""


class GuestThread(threading.Thread):
    """A thread of the client in the host's process: a daemon, which keeps no interpreter alive."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        super().__init__(target=work, name=name, daemon=True)

    def start(self) -> None:
        """Begin; return once it has.

        Raises:
            RuntimeError: if the system gives no thread (any more).
        """
        handled = sys.exception()
        try:
            super().start()
        except RuntimeError as error:
            # What a signal's handler raises amid the wait for the beginning may leave a lock of
            # threading's so that its release fails in turn. That hides what happened.
            raised = error.__context__
            if raised is None or raised is handled:
                raise
            raise raised from None


def is_guest() -> bool:
    """Say whether this is a thread of the client's own, where to wait for another may be for ever.

    The host's code comes here by finalisers that the collector runs in whatever thread.
    """
    return isinstance(threading.current_thread(), GuestThread)


class Bell:
    """Wakes the one thread that waits for it, from any other.

    An Event is set under a lock of its own; a signal handler or a finaliser that sets it amid
    another set of its thread would wait for itself. To ring takes no lock.
    """

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """End the present wait, or the next one at once."""
        if self._silence.locked():
            with contextlib.suppress(RuntimeError):  # somebody rang at the same time
                self._silence.release()

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; say whether it rang."""
        return self._silence.acquire(timeout=max(0.0, min(seconds, WAIT_MAX_SECONDS)))


class Latch:
    """Opens once, for all who wait, from then on.

    As with a `Bell`, and not with an Event, a handler that waits amid a wait of its own thread
    does not wait for itself.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._closed = threading.Lock()
        self._closed.acquire()

    def open(self) -> None:
        """Let everybody go on. From one thread only."""
        if not self.is_open:
            self.is_open = True
            self._closed.release()

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; say whether it is open."""
        timeout_seconds = max(0.0, min(seconds, WAIT_MAX_SECONDS))
        if not self.is_open and self._closed.acquire(timeout=timeout_seconds):
            self._closed.release()
        return self.is_open


def has_greenlets() -> bool:
    """Say whether threads are greenlets here (gevent, eventlet), all on one of the system's."""
    gevent: Any = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        return True
    eventlet: Any = sys.modules.get("eventlet.patcher")
    return eventlet is not None and bool(eventlet.is_monkey_patched("thread"))
