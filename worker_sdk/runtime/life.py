"""A client's lives: one from start to close, and another in each forked child.

Decides when a life begins, ends, and is none of this process. Knows nothing of how permits are
asked for.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from worker_sdk.core.machines import make_instance
from worker_sdk.errors import ClientClosedError
from worker_sdk.runtime import processes
from worker_sdk.runtime.background import Background
from worker_sdk.runtime.clocks import Clock
from worker_sdk.runtime.guard import entered, is_interrupted, make_guard
from worker_sdk.runtime.member import Member
from worker_sdk.runtime.options import Options
from worker_sdk.runtime.surroundings import check_surroundings, machine
from worker_sdk.transports.threads import has_greenlets, is_guest

INSTANCE_BYTES: Final = 8
NOT_STARTED: Final = (
    'the client is not started, or closed already; call start(), or use "with client:"'
)


class Lives:
    """The present life of a client.

    Args:
        options: the client's settings.
        clock: where it reads the time.
        on_change: called with the member of a new life, and with None when one ends.
    """

    def __init__(
        self, options: Options, clock: Clock, on_change: Callable[[Member | None], None]
    ) -> None:
        self._options = options
        self._clock = clock
        self._on_change = on_change
        self._lock = make_guard()
        self._has_greenlets = has_greenlets()
        self._pid = os.getpid()
        self._is_started = False
        self._entered = 0
        self._member: Member | None = None
        self._last: Member | None = None
        self._background: Background | None = None
        self._ending: threading.Thread | None = None
        self._closing: Background | None = None

    def start(self) -> None:
        """Begin a life; nothing happens if there is one.

        Raises:
            ConfigurationError: where a driver is missing or refuses its settings, or where the
                process is one in which the client cannot work.
            ClientClosedError: where the system gives no thread (any more).
        """
        self._start(entries=0)

    def enter(self) -> None:
        """As `start`, by one who will `leave`.

        Raises:
            PermitError: as `start` does; who gets it has not entered.
        """
        self._start(entries=1)

    def _start(self, entries: int) -> None:
        check_surroundings()
        self._forget_parents()
        self._mind_greenlets()
        with entered(self._lock):
            if self._member is None:
                self._begin()
            self._entered += entries

    def _begin(self) -> Member:
        instance = make_instance(machine(), os.urandom(INSTANCE_BYTES).hex())
        member = Member(self._options, instance, self._clock)
        source = self._options.open_source(member.identity)
        sink = self._options.open_sink()
        background = Background(member, sink, source, self._options.flush_seconds)
        try:
            background.start()
            self._member, self._background = member, background
            self._last = member
            processes.watch(self)
            self._on_change(member)
            self._is_started = True
        except BaseException as error:  # by Ctrl-C, too: nobody would ever close this life
            self._member = self._background = None
            background.forsake()
            self._on_change(None)
            if not isinstance(error, RuntimeError):
                raise
            # There are too many threads, or the interpreter is at its end.
            raise ClientClosedError(f"the client's threads cannot be started: {error}") from error
        return member

    def present(self) -> Member:
        """Return the member of this process; after a fork a new one begins.

        Raises:
            ClientClosedError: before the start and after the end.
        """
        self._forget_parents()
        member = self._member
        if member is not None:
            return member
        self._mind_greenlets()
        with entered(self._lock):
            if not self._is_started:
                raise ClientClosedError(NOT_STARTED)
            return self._member or self._begin()

    @property
    def last(self) -> Member | None:
        """The member of this process's present life, or of the last one if that has ended."""
        return self._last if os.getpid() == self._pid else None

    def end(self, timeout_seconds: float) -> int:
        """End the life within the time; return how many tuples were not delivered.

        Nothing happens if there is none. An end that somebody else is at, or that was interrupted,
        is waited for.
        """
        return self._end(timeout_seconds, entries=0)

    def leave(self, timeout_seconds: float) -> int:
        """As `end`, by one who entered; nothing happens while others who did have not left."""
        return self._end(timeout_seconds, entries=1)

    def _end(self, timeout_seconds: float, entries: int) -> int:
        self._forget_parents()
        if self._interrupts() or is_guest():
            return self._end_later(timeout_seconds, entries)
        with entered(self._lock):
            self._entered = max(0, self._entered - entries)
            if entries and self._entered:
                return 0
            background = self._background
            if background is not None:
                self._closing = background  # until it has; a second Ctrl-C may come anywhere here
            closing = self._closing
            self._member = self._background = None
            self._is_started = False
            self._on_change(None)
        if closing is None:
            return 0
        delivered = closing.close(timeout_seconds)
        if self._closing is closing and (delivered or background is not None):
            self._closing = None
        return 0 if delivered else len(self._options.destinations)

    def _interrupts(self) -> bool:
        member = self._member
        guards = [self._lock] if member is None else [self._lock, member.lock]
        return any(is_interrupted(guard) for guard in guards)

    def _end_later(self, timeout_seconds: float, entries: int) -> int:
        # What the end needs is held, or done, by the very call that was interrupted for it.
        self._ending = threading.Thread(
            target=self._end, args=(timeout_seconds, entries), name="permit-ending", daemon=True
        )
        with contextlib.suppress(RuntimeError):  # no thread any more; the exit comes to it
            self._ending.start()
        return len(self._options.destinations)

    # -- processes

    def _forget_parents(self) -> None:
        # For a fork that did not run Python's hooks; with them it was done already.
        if os.getpid() != self._pid:
            self.after_fork_in_child()

    def _mind_greenlets(self) -> None:
        # What was made before threads became greenlets (a server's preloaded program) has a lock
        # that cannot tell them apart.
        if not self._has_greenlets and has_greenlets():
            self._has_greenlets = True
            self._lock = make_guard()

    def after_fork_in_child(self) -> None:
        """Drop the parent's life; the next use begins a new one."""
        processes.abandon(self._member, self._background, self._closing, self._lock)
        self._lock = make_guard()
        self._pid = os.getpid()
        self._entered = 0  # most children never come back to where the parent entered
        self._member = self._last = None
        self._background = self._closing = self._ending = None
        self._on_change(None)

    def at_exit(self, timeout_seconds: float) -> None:
        """End the life, as the interpreter exits."""
        if self._pid != os.getpid():
            return
        deadline = time.monotonic() + timeout_seconds
        if self._ending is not None and self._ending.ident is not None:
            self._ending.join(timeout_seconds)
        if self._member is not None or self._closing is not None:
            self.end(max(0.0, deadline - time.monotonic()))
