"""`DestinationHandle`: what a worker holds to take permits, from threads and from asyncio.

Decides nothing: it takes a permit that the engine laid out, or else asks the engine under the
member's lock, and blocks where a caller wants to wait. Nothing here does I/O; that is the
background's.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn, ParamSpec, Self, TypeVar

from worker_sdk.core.account import Account
from worker_sdk.core.ledger import check_permits
from worker_sdk.core.purse import Purse
from worker_sdk.errors import ClientClosedError
from worker_sdk.runtime.asking import Meanwhile, checked_seconds, take, take_async
from worker_sdk.runtime.birthmark import NOBODYS, Birthmark, present_birthmark
from worker_sdk.runtime.clocks import Clock, SystemClock
from worker_sdk.runtime.decorated import decorated
from worker_sdk.runtime.gate import Gates
from worker_sdk.runtime.guard import is_interrupted, make_guard
from worker_sdk.runtime.held import Held, let_go
from worker_sdk.runtime.life import NOT_STARTED, Lives
from worker_sdk.runtime.member import Member
from worker_sdk.runtime.states import DestinationState, destination_state

P = ParamSpec("P")
T = TypeVar("T")

_ONE: Final = 1
_NUMBERS: Final = (float, int)

# Whether a step of an iterator or a dictionary is done in one go; see core.purse.
_STEPS_ARE_WHOLE: Final = (
    sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
)


def _load_current_task() -> object:
    # Programs without an event loop are spared asyncio; an import in each call would cost a tenth
    # of it.
    global _current_task  # noqa: PLW0603 - from now on it is asyncio's own
    from asyncio import current_task  # noqa: PLC0415 - see above

    _current_task = current_task
    return current_task()


_current_task: Callable[[], object] = _load_current_task


class DestinationHandle:
    """Permits of one destination. Get it from `PermitClient.destination`."""

    __slots__ = (
        *("_account", "_clock", "_gates", "_lives", "_lock", "_mark", "_purse", "_wall_ns"),
        "name",
    )

    def __init__(self, name: str, lives: Lives, gates: Gates) -> None:
        self.name = name
        self._lives = lives
        self._mark: Birthmark = NOBODYS
        self._lock = make_guard()
        self._account: Account | None = None
        self._purse = Purse()
        self._gates = gates
        self._clock: Clock = SystemClock()
        self._wall_ns = time.time_ns

    def rebind(self, member: Member | None) -> None:
        """Serve from ``member`` from now on; from nobody if None. The client's own call."""
        self._mark = NOBODYS
        self._purse = Purse()
        self._gates.renew(self.name)
        if member is not None:
            # The lock first: whoever sees the new account must see its lock.
            self._lock = member.lock
            account = self._account = member.engine.account(self.name)
            account.lays_out = _STEPS_ARE_WHOLE
            self._clock = member.clock
            self._wall_ns = _nanoseconds(member.clock)
            self._purse = account.ledger.purse
            self._mark = present_birthmark()

    def __repr__(self) -> str:
        return f"<permits of {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "permits cannot be sent to another process; ask a PermitClient there for them"
        )

    if not TYPE_CHECKING:  # to a type checker it stays the error that it is

        def __enter__(self) -> NoReturn:
            raise TypeError("a handle is no context by itself; write: with orders.permit():")

        def __aenter__(self) -> NoReturn:
            raise TypeError("a handle is no context by itself; write: async with orders.permit():")

        __exit__ = __aexit__ = None  # Python looks for them first

    # -- taking

    def try_acquire(self, permits: int = 1) -> bool:
        """Take permits if they may be spent now; never blocks. A refusal counts as denied.

        In a signal handler or finaliser that interrupts another call of this client in its own
        thread the answer may be False though there are permits; that is not counted.

        Raises:
            ValueError: if ``permits`` is not a whole number of at least 1.
            ClientClosedError: before the start and after the end.
        """
        purse = self._purse
        if (
            permits is _ONE  # or equal to it, and then it is slower
            and self._mark[0]
            and purse.from_ns <= self._wall_ns() < purse.until_ns
        ):
            for _ in purse.permits:  # this takes one, if there is one, in one go
                return True
        return self._try_acquire_locked(permits)

    def _try_acquire_locked(self, permits: int) -> bool:
        if not self._mark[0]:
            self._lives.present()
        account = self._account
        if account is None:
            raise ClientClosedError(NOT_STARTED)
        if is_interrupted(self._lock):
            return False
        with self._lock:
            now_ms = self._clock.wall_ms()
            if not account.try_acquire(permits, now_ms):
                return False
            if permits == 1:
                account.lay_out(now_ms, self._clock.mono_ms())
            return True

    def _take_laid_out(self, permits: int, timeout: float | None, caller: int) -> bool:
        purse = self._purse
        if (
            permits is _ONE
            and self._mark[0]
            and (timeout is None or (timeout.__class__ in _NUMBERS and timeout >= 0))
            and purse.from_ns <= (now_ns := self._wall_ns()) < purse.until_ns
        ):
            for _ in purse.permits:
                purse.takers[caller] = now_ns
                return True
        return False

    def acquire(self, permits: int = 1, timeout: float | None = None) -> None:
        """Take permits, waiting for them if need be; first come, first served.

        Args:
            permits: how many at once.
            timeout: seconds to wait at most; None waits as long as it takes.

        Raises:
            PermitTimeout: if they were not to be had in time; none is taken then.
            ImpossibleRequestError: if no window can give so many at once.
            ValueError: if ``permits`` is not a whole number of at least 1.
            ClientClosedError: before the start and after the end.
        """
        caller = threading.get_ident()
        if not self._take_laid_out(permits, timeout, caller):
            take(self._lives.present(), self.name, permits, timeout, caller)

    async def acquire_async(
        self,
        permits: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109 - the same face as acquire
    ) -> None:
        """As `acquire`, from any event loop. A cancelled call takes nothing."""
        caller = id(_current_task())
        if not self._take_laid_out(permits, timeout, caller):
            await take_async(self._lives.present(), self.name, permits, timeout, caller)

    def acquire_many(self, most: int, timeout: float | None = None) -> int:
        """Take as many permits as may be spent now, up to ``most``; wait for the first if need be.

        For loops that send in batches: one call, and no more waiting than for a single permit.

        Args:
            most: how many are wanted.
            timeout: seconds to wait for the first at most; None waits as long as it takes.

        Returns:
            How many were taken, at least 1.

        Raises:
            PermitTimeout: if not one was to be had in time; none is taken then.
            ValueError: if ``most`` is not a whole number of at least 1.
            ClientClosedError: before the start and after the end.
        """
        check_permits(most)
        member, caller = self._lives.present(), threading.get_ident()
        take(member, self.name, 1, timeout, caller)
        return 1 + member.top_up(self.name, most - 1, caller)

    async def acquire_many_async(
        self,
        most: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the same face as acquire_many
    ) -> int:
        """As `acquire_many`, from any event loop. A cancelled call takes nothing."""
        check_permits(most)
        member, caller = self._lives.present(), id(_current_task())
        await take_async(member, self.name, 1, timeout, caller)
        return 1 + member.top_up(self.name, most - 1, caller)

    def permit(self, permits: int = 1, timeout: float | None = None) -> Permit:
        """Return a context, also an asynchronous one, that takes permits and times the delivery.

        Entering waits and raises like `acquire`, and for room under `limit_concurrency`; the time
        inside is reported as busy.

        Raises:
            ValueError: if ``permits`` is not a whole number of at least 1, or ``timeout`` no
                number.
        """
        if permits is not _ONE:
            check_permits(permits)
        if timeout is not None:
            checked_seconds(timeout)
        return Permit(self, permits, timeout)

    def limited(
        self, permits: int = 1, timeout: float | None = None
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Return a decorator: each call of the function is a delivery under `permit`.

        The function may be a coroutine function.

        Raises:
            ValueError: if ``permits`` is not a whole number of at least 1, or ``timeout`` no
                number.
            TypeError: on decorating a generator function, whose call does not do its work, and
                without parentheses.
        """
        if callable(permits):
            raise TypeError(f"limited needs parentheses above {permits!r:.60}: @orders.limited()")
        check_permits(permits)
        if timeout is not None:
            checked_seconds(timeout)

        def decorate(deliver: Callable[P, T]) -> Callable[P, T]:
            return decorated(deliver, functools.partial(self.permit, permits, timeout))

        return decorate

    @property
    def concurrency(self) -> int | None:
        """How many deliveries may be under way at once; None for any number."""
        return self._gates.most(self.name)

    def limit_concurrency(self, most: int | None) -> None:
        """Let at most so many deliveries be under way at once in this process, beside the rate.

        This counts for `permit`, `limited` and what is built on them, not for bare acquires, whose
        end nobody reports. It may be changed at any time; deliveries under way go on.

        Args:
            most: how many; None for any number.

        Raises:
            ValueError: if it is not a whole number of at least 1, or None.
        """
        self._gates.of(self.name).set_most(most)

    def refund(self, permits: int = 1) -> int:
        """Give back permits that were taken and not used.

        Returns:
            How many may be spent again: not more than were spent in the present window.
        """
        return self._lives.present().refund(self.name, permits)

    @property
    def state(self) -> DestinationState:
        """What may be spent now, why, and what was counted since the start.

        After the end it is the last state.

        Raises:
            ClientClosedError: before the start.
        """
        member = self._lives.last
        if member is None:
            member = self._lives.present()
        return destination_state(self.name, member, self.concurrency)


class Permit:
    """A context in which permits are held and the delivery is timed; for one use at a time.

    Get it from `DestinationHandle.permit`. ``meanwhile`` is for the libraries' adapters, whose
    threads have something to look after while they wait.
    """

    __slots__ = ("__weakref__", "_handle", "_held", "_meanwhile", "_permits", "_timeout")

    def __init__(
        self,
        handle: DestinationHandle,
        permits: int,
        timeout: float | None,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        self._handle = handle
        self._permits = permits
        self._timeout = timeout
        self._meanwhile = meanwhile
        self._held: Held[Permit] | None = None

    # Room first, as a permit is good for its window only. What is taken is known by its mark from
    # before it is taken: a signal's handler that raises, a time limit or Ctrl-C, may come anywhere.

    def __enter__(self) -> Self:
        held = self._begun()
        try:
            mark = held.delivery
            member, meanwhile = held.member, self._meanwhile
            left_seconds = held.gate.enter(mark, self._timeout, meanwhile, member)
            take(member, held.name, self._permits, left_seconds, mark, meanwhile)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _begun(self) -> Held[Permit]:
        handle = self._handle
        member = handle._lives.present()  # noqa: SLF001 - its own module
        held = self._held = Held(self, let_go)
        # The gate is of this process only now.
        gate = handle._gates.of(handle.name)  # noqa: SLF001
        held.begin(handle.name, handle._lives, member, gate)  # noqa: SLF001
        return held

    def _end(self) -> None:
        held = self._held
        if held is not None:
            let_go(held)
            self._held = None

    async def __aenter__(self) -> Self:
        held = self._begun()
        try:
            mark = held.delivery
            left_seconds = await held.gate.enter_async(mark, self._timeout)
            await take_async(held.member, held.name, self._permits, left_seconds, mark)
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()


def _nanoseconds(clock: Clock) -> Callable[[], int]:
    if type(clock) is SystemClock:
        return time.time_ns
    return lambda: clock.wall_ms() * 1_000_000
