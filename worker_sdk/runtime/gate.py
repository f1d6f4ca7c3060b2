"""How many deliveries of a process may be under way at once to one destination.

Decides who comes in: first come, first served, from threads and event loops alike. Knows nothing of
permits: those limit the rate, this limits what is under way.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from worker_sdk.errors import PermitTimeout
from worker_sdk.runtime.asking import WAIT_SECONDS_MAX, Meanwhile, checked_seconds
from worker_sdk.runtime.guard import entered, is_interrupted, make_guard
from worker_sdk.runtime.member import Member
from worker_sdk.runtime.standstill import tell_of_standstill
from worker_sdk.transports.threads import Bell, is_guest


class Gate:
    """Lets so many in at once. Belongs to the process that made it.

    Each who comes in is known by a mark of its own from before it asks until it has left. So
    whoever is interrupted, wherever that is (by Ctrl-C, by a time limit that is a signal), can
    leave, also more than once.

    Args:
        destination: what is delivered to, for messages.
        most: how many may be inside; None for any number.
    """

    __slots__ = ("_destination", "_inside", "_leaving", "_lock", "_most", "_pid", "_waiters")

    def __init__(self, destination: str, most: int | None = None) -> None:
        self._destination = destination
        self._lock = make_guard()
        self._most = most
        self._inside: dict[Hashable, None] = {}
        self._waiters: OrderedDict[Hashable, Callable[[], object]] = OrderedDict()
        # Who has left and is not yet counted as such. A finaliser may end a delivery amid any
        # call here, in the thread that holds the lock; to append is all that it can do then.
        self._leaving: list[Hashable] = []
        self._pid = os.getpid()

    @property
    def most(self) -> int | None:
        """How many may be inside; None for any number."""
        return self._most

    @property
    def is_of_this_process(self) -> bool:
        """Whether no fork lies between its making and now."""
        return self._pid == os.getpid()

    def set_most(self, most: int | None) -> None:
        """Let in another number from now on; nobody inside is sent out.

        Raises:
            ValueError: if it is not a whole number of at least 1, or None.
        """
        if most is not None and (type(most) is not int or most < 1):
            raise ValueError(
                f"most must be a whole number of at least 1, or None, not {most!r:.40}"
            )
        with entered(self._lock):
            self._most = most
            self._admit()
        self._settle()

    def enter(
        self,
        entrant: Hashable,
        timeout: float | None,
        meanwhile: Meanwhile | None = None,
        member: Member | None = None,
    ) -> float | None:
        """Come in, waiting if need be; return what is left of the timeout.

        Args:
            entrant: the mark by which it is to `leave`.
            timeout: seconds to wait at most; None waits as long as it takes.
            meanwhile: what to look after.
            member: who warns if the wait holds up an event loop.

        Raises:
            PermitTimeout: if there was no room in time.
            ValueError: if the timeout is no number.
        """
        if self._comes_in(entrant):
            return timeout
        deadline = None if timeout is None else time.monotonic() + checked_seconds(timeout)
        if is_guest():  # those inside may wait for what this thread has to bring
            deadline = time.monotonic()
        let_in = Bell()
        try:
            self._join(entrant, let_in.ring)
            is_waiting = entrant not in self._inside
            if member is not None and is_waiting and _glance_seconds(deadline, None) > 0:
                tell_of_standstill(member, self._destination)
            while entrant not in self._inside:
                if let_in.wait(_glance_seconds(deadline, meanwhile)):
                    break
                if deadline is not None and time.monotonic() >= deadline:
                    break
                if meanwhile is not None:
                    meanwhile.look()
        except BaseException:
            self.leave(entrant)
            raise
        return self._conclude(entrant, deadline)

    async def enter_async(
        self,
        entrant: Hashable,
        timeout: float | None,  # noqa: ASYNC109 - the same face as enter
    ) -> float | None:
        """As `enter`, without blocking the event loop. Cancellation leaves nothing behind."""
        import asyncio  # noqa: PLC0415 - whoever comes here has it loaded

        if self._comes_in(entrant):
            return timeout
        deadline = None if timeout is None else time.monotonic() + checked_seconds(timeout)
        loop = asyncio.get_running_loop()
        let_in = asyncio.Event()
        try:
            self._join(entrant, lambda: loop.call_soon_threadsafe(let_in.set))
            if entrant not in self._inside:
                async with asyncio.timeout(
                    None if deadline is None else max(0.0, deadline - time.monotonic())
                ):
                    await let_in.wait()
        except TimeoutError:
            pass
        except BaseException:
            self.leave(entrant)
            raise
        return self._conclude(entrant, deadline)

    def leave(self, entrant: Hashable) -> None:
        """Make room, or wait no longer; once it has left nothing happens.

        In a forked child nothing happens either: the delivery is the parent's.
        """
        if self.is_of_this_process:
            self._leaving.append(entrant)
            if not is_interrupted(self._lock):
                self._settle()

    def _settle(self) -> None:
        while self._leaving:
            with entered(self._lock):
                self._admit()

    def _comes_in(self, entrant: Hashable) -> bool:
        """Come in if nothing is in the way."""
        with entered(self._lock):
            has_come = not self._waiters and self._has_room()
            if has_come:
                self._inside[entrant] = None
        self._settle()
        return has_come

    def _join(self, entrant: Hashable, wake: Callable[[], object]) -> None:
        with entered(self._lock):
            self._waiters[entrant] = wake
            self._admit()
        self._settle()

    def _has_room(self) -> bool:
        return self._most is None or len(self._inside) < self._most

    def _admit(self) -> None:
        # An exception may come between any two steps, as by Ctrl-C; each may be done again.
        while self._leaving:
            entrant = self._leaving[0]
            self._inside.pop(entrant, None)
            self._waiters.pop(entrant, None)
            del self._leaving[0]
        while self._waiters:
            entrant, wake = next(iter(self._waiters.items()))
            if entrant not in self._inside and not self._has_room():
                return
            self._inside[entrant] = None
            try:
                wake()
            except RuntimeError:  # its event loop was closed: nobody is there to come in
                self._inside.pop(entrant, None)
            self._waiters.pop(entrant, None)

    def _conclude(self, entrant: Hashable, deadline: float | None) -> float | None:
        # Let in at the last moment is let in.
        if entrant not in self._inside:
            self.leave(entrant)
            raise PermitTimeout(self._destination, None, concurrency=self._most)
        return None if deadline is None else max(0.0, deadline - time.monotonic())


class Gates:
    """The gates of a client's destinations, each made when it is first needed: most never are."""

    def __init__(self) -> None:
        self._made: dict[str, Gate] = {}

    def of(self, destination: str) -> Gate:
        """Return a destination's gate, the same to all threads."""
        gate = self._made.get(destination)
        return self._made.setdefault(destination, Gate(destination)) if gate is None else gate

    def most(self, destination: str) -> int | None:
        """How many may be inside; None for any number."""
        gate = self._made.get(destination)
        return None if gate is None else gate.most

    def renew(self, destination: str) -> None:
        """Have a gate of this process in a forked child: who is inside is the parent's."""
        gate = self._made.get(destination)
        if gate is not None and not gate.is_of_this_process:
            self._made[destination] = Gate(destination, gate.most)


def _glance_seconds(deadline: float | None, meanwhile: Meanwhile | None) -> float:
    every_seconds = WAIT_SECONDS_MAX if meanwhile is None else meanwhile.every_seconds
    return every_seconds if deadline is None else min(deadline - time.monotonic(), every_seconds)
