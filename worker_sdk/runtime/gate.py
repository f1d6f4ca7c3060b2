"""How many deliveries of a process may be under way at once to one destination.

Decides who comes in: first come, first served, from threads and event loops alike. Knows nothing of
permits: those limit the rate, this limits what is under way.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from worker_sdk.errors import PermitTimeout
from worker_sdk.runtime.asking import Meanwhile, checked_seconds
from worker_sdk.runtime.guard import entered, is_interrupted, make_guard


class _Waiter:
    __slots__ = ("is_inside", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.is_inside = False


class Gate:
    """Lets so many in at once. Belongs to the process that made it.

    Args:
        destination: what is delivered to, for messages.
        most: how many may be inside; None for any number.
    """

    __slots__ = ("_destination", "_inside", "_leaving", "_lock", "_most", "_pid", "_waiters")

    def __init__(self, destination: str, most: int | None = None) -> None:
        self._destination = destination
        self._lock = make_guard()
        self._most = most
        self._inside = 0
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        # Who has left and is not yet counted as such. A finaliser may end a delivery amid any
        # call here, in the thread that holds the lock; to append is all that it can do then.
        self._leaving: list[None] = []
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

    def enter(self, timeout: float | None, meanwhile: Meanwhile | None = None) -> float | None:
        """Come in, waiting if need be; return what is left of the timeout.

        Args:
            timeout: seconds to wait at most; None waits as long as it takes.
            meanwhile: what to look after.

        Raises:
            PermitTimeout: if there was no room in time.
            ValueError: if the timeout is no number.
        """
        if self._comes_in():
            return timeout
        deadline = None if timeout is None else time.monotonic() + checked_seconds(timeout)
        let_in = threading.Event()
        waiter = self._join(let_in.set)
        if waiter.is_inside:
            return timeout
        try:
            while not let_in.wait(_glance_seconds(deadline, meanwhile)):
                if deadline is not None and time.monotonic() >= deadline:
                    break
                if meanwhile is not None:
                    meanwhile.look()
        except BaseException:
            self._withdraw(waiter)
            raise
        return self._conclude(waiter, deadline)

    async def enter_async(
        self,
        timeout: float | None,  # noqa: ASYNC109 - the same face as enter
    ) -> float | None:
        """As `enter`, without blocking the event loop. Cancellation leaves nothing behind."""
        import asyncio  # noqa: PLC0415 - whoever comes here has it loaded

        if self._comes_in():
            return timeout
        deadline = None if timeout is None else time.monotonic() + checked_seconds(timeout)
        loop = asyncio.get_running_loop()
        let_in = asyncio.Event()
        waiter = self._join(lambda: loop.call_soon_threadsafe(let_in.set))
        if waiter.is_inside:
            return timeout
        try:
            async with asyncio.timeout(
                None if deadline is None else max(0.0, deadline - time.monotonic())
            ):
                await let_in.wait()
        except TimeoutError:
            pass
        except BaseException:
            self._withdraw(waiter)
            raise
        return self._conclude(waiter, deadline)

    def leave(self) -> None:
        """Make room. In a forked child nothing happens: the delivery is the parent's."""
        if self.is_of_this_process:
            self._leaving.append(None)
            if not is_interrupted(self._lock):
                self._settle()

    def _settle(self) -> None:
        while self._leaving:
            with entered(self._lock):
                self._admit()

    def _comes_in(self) -> bool:
        """Come in if nothing is in the way."""
        with entered(self._lock):
            has_come = not self._waiters and self._has_room()
            if has_come:
                self._inside += 1
        self._settle()
        return has_come

    def _join(self, wake: Callable[[], object]) -> _Waiter:
        waiter = _Waiter(wake)
        with entered(self._lock):
            if not self._waiters and self._has_room():
                self._inside += 1
                waiter.is_inside = True
            else:
                self._waiters[waiter] = None
        self._settle()
        return waiter

    def _has_room(self) -> bool:
        return self._most is None or self._inside < self._most

    def _admit(self) -> None:
        while self._leaving:
            self._leaving.pop()
            self._inside -= 1
        while self._waiters and self._has_room():
            waiter, _ = self._waiters.popitem(last=False)
            waiter.is_inside = True
            self._inside += 1
            try:
                waiter.wake()
            except RuntimeError:  # its event loop was closed: nobody is there to come in
                self._inside -= 1

    def _give_up(self, waiter: _Waiter) -> bool:
        with entered(self._lock):
            given_up = self._waiters.pop(waiter, self) is None
        self._settle()
        return given_up

    def _withdraw(self, waiter: _Waiter) -> None:
        if not self._give_up(waiter):
            self.leave()

    def _conclude(self, waiter: _Waiter, deadline: float | None) -> float | None:
        # Let in at the last moment is let in.
        if not waiter.is_inside and self._give_up(waiter):
            raise PermitTimeout(self._destination, None, concurrency=self._most)
        return None if deadline is None else max(0.0, deadline - time.monotonic())


def _glance_seconds(deadline: float | None, meanwhile: Meanwhile | None) -> float | None:
    left_seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
    if meanwhile is None:
        return left_seconds
    every_seconds = meanwhile.every_seconds
    return every_seconds if left_seconds is None else min(left_seconds, every_seconds)
