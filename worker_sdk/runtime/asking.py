"""Asking for permits and waiting for them, from a thread or from an event loop.

Decides nothing but what an unserved caller is told: too late, closed, or impossible. A caller that
stops waiting, for whatever reason, takes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from worker_sdk.core.ledger import check_permits
from worker_sdk.core.waiters import Waiter
from worker_sdk.errors import ClientClosedError, ImpossibleRequestError, PermitTimeout
from worker_sdk.runtime.member import Member
from worker_sdk.runtime.standstill import tell_of_standstill
from worker_sdk.transports.threads import Bell, is_guest

WAIT_SECONDS_MAX: Final = 1e9
"""A wait of 30 years is as good as one without an end, and every clock can count it."""

_GLANCE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """What a thread looks after while it waits.

    Attributes:
        look: called every so often until the wait is over; an error of it ends the wait.
        every_seconds: how often.
    """

    look: Callable[[], object]
    every_seconds: float


def checked_seconds(timeout: object) -> float:
    """Return the seconds to wait, within what clocks can count.

    Raises:
        ValueError: where it is no number: nothing is before or after NaN.
    """
    if not isinstance(timeout, (int, float)) or timeout != timeout:  # noqa: PLR0124 - NaN
        raise ValueError(f"timeout must be a number of seconds, not {timeout!r:.40}")
    return max(-1.0, min(timeout, WAIT_SECONDS_MAX))


def take(
    member: Member,
    destination: str,
    permits: int,
    timeout: float | None,
    caller: Hashable,
    meanwhile: Meanwhile | None = None,
) -> None:
    """Block until the permits are granted.

    Args:
        member: whose permits.
        destination: what for.
        permits: how many at once.
        timeout: seconds to wait at most; None waits as long as it takes.
        caller: who asks; a `Delivery` if its end will be reported, and it is by who is interrupted.
        meanwhile: what to look after.

    Raises:
        PermitTimeout: if they were not to be had in time.
        ImpossibleRequestError: if no window can give so many at once.
        ValueError: if ``permits`` is not a whole number of at least 1, or ``timeout`` no number.
        ClientClosedError: if the client was closed.
    """
    deadline = None if timeout is None else time.monotonic() + checked_seconds(timeout)
    if member.take(destination, permits, caller):
        return
    if is_guest():  # the host's log, perhaps; what it would wait for may be this thread's work
        deadline = time.monotonic()
    decided = Bell()
    waiter = Waiter(destination, permits, caller, decided.ring)
    glance_seconds = _GLANCE_SECONDS if meanwhile is None else meanwhile.every_seconds
    try:
        _ask(member, waiter)
        if not waiter.granted and (deadline is None or deadline > time.monotonic()):
            tell_of_standstill(member, destination)
        while not waiter.granted:
            left = glance_seconds if deadline is None else deadline - time.monotonic()
            if left <= 0 or decided.wait(min(left, glance_seconds)):
                break
            member.pump()  # whatever befell the background, who waits is served
            if meanwhile is not None:
                meanwhile.look()
    except BaseException:
        _withdraw(member, waiter)
        raise
    _conclude(member, waiter)


async def take_async(
    member: Member,
    destination: str,
    permits: int,
    timeout: float | None,  # noqa: ASYNC109 - the same face as take
    caller: Hashable,
) -> None:
    """As `take`, without blocking the event loop. Cancellation takes nothing."""
    import asyncio  # noqa: PLC0415 - whoever comes here has it loaded

    if timeout is not None:
        timeout = checked_seconds(timeout)
    if member.take(destination, permits, caller):
        return
    loop = asyncio.get_running_loop()
    decided = asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(decided.set)

    waiter = Waiter(destination, permits, caller, wake)
    try:
        _ask(member, waiter)
        if waiter.granted:
            return
        async with asyncio.timeout(timeout):
            await decided.wait()
    except TimeoutError:
        pass
    except BaseException:
        _withdraw(member, waiter)
        raise
    _conclude(member, waiter)


def _ask(member: Member, waiter: Waiter) -> None:
    destination, permits = waiter.destination, waiter.permits
    check_permits(permits)
    if not member.can_ever_give(destination, permits):
        raise _impossible(destination, permits)
    if member.enqueue(waiter):
        return
    if member.is_closed:
        raise ClientClosedError("the client was closed")
    raise _late(member, destination, permits)


def _withdraw(member: Member, waiter: Waiter) -> None:
    if not member.give_up(waiter):
        member.return_granted(waiter)


def _conclude(member: Member, waiter: Waiter) -> None:
    # Granted in the last moment is granted.
    if waiter.granted or not member.give_up(waiter):
        return
    if member.is_closed:
        raise ClientClosedError("the client was closed while waiting for a permit")
    if waiter.is_impossible:
        raise _impossible(waiter.destination, waiter.permits)
    raise _late(member, waiter.destination, waiter.permits)


def _impossible(destination: str, permits: int) -> ImpossibleRequestError:
    return ImpossibleRequestError(
        f"{permits} permits of {destination!r} at once are more than this member's share gives "
        "in any window; ask for fewer at a time"
    )


def _late(member: Member, destination: str, permits: int) -> PermitTimeout:
    return PermitTimeout(destination, member.retry_after_seconds(destination, permits))
