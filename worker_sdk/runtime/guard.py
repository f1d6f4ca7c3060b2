"""The lock of a member, and what happens to a thread that comes back while it holds it.

Decides that a signal handler or a finaliser which interrupts a call of the client in its own thread
is told so instead of waiting for itself for ever. Knows nothing of what the lock guards.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Protocol, cast

from worker_sdk.errors import ReentrantCallError


class Guard(Protocol):
    """A re-entrant lock that can say whether the present thread holds it."""

    def __enter__(self) -> bool:
        """Take the lock."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the lock go."""

    def _is_owned(self) -> bool: ...


def make_guard() -> Guard:
    """Return a guard that nobody holds."""
    # threading.Condition relies on the same method; the type stubs do not know it.
    return cast("Guard", threading.RLock())


def is_interrupted(guard: Guard) -> bool:
    """Say whether this call interrupts another one of this thread that holds the guard."""
    return guard._is_owned()  # noqa: SLF001 - see make_guard


def entered(guard: Guard) -> Guard:
    """Return the guard for a ``with``, unless this call interrupts one that holds it.

    Raises:
        ReentrantCallError: then; what is guarded is half changed.
    """
    if guard._is_owned():  # noqa: SLF001 - see make_guard
        raise ReentrantCallError(
            "called from a signal handler or finaliser that interrupted this client at work; "
            "try again once it has returned"
        )
    return guard
