"""Other ways to take permits: many at once for a loop, and as a decorator."""

from __future__ import annotations

import asyncio
import math
import pickle
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from tests.support.real_clients import await_condition
from worker_sdk import (
    ClientClosedError,
    DestinationHandle,
    ImpossibleRequestError,
    PermitError,
    PermitTimeout,
)
from worker_sdk.errors import RejectReason, WireError
from worker_sdk.testing import InMemoryBalancer, ManualClock
from worker_sdk.testing.plugin import StartPermitClient

WAIT_SECONDS = 20.0
SOON = 0.01


@pytest.fixture
def db(permit_client: StartPermitClient) -> DestinationHandle:
    return permit_client(InMemoryBalancer({"db": 10})).destination("db")


# -- many at once


def test_a_batch_is_what_is_there_up_to_what_is_wanted(
    db: DestinationHandle, permit_clock: ManualClock
) -> None:
    assert [db.acquire_many(4), db.acquire_many(100)] == [4, 6]
    with pytest.raises(PermitTimeout):
        db.acquire_many(4, timeout=SOON)
    permit_clock.advance(60)
    assert db.acquire_many(100) == 10
    assert (db.state.used, db.state.denied) == (20, 1)  # only what nobody got at all is denied


def test_a_batch_waits_for_its_first_permit_only(
    db: DestinationHandle, permit_clock: ManualClock
) -> None:
    db.acquire_many(10)
    got: list[int] = []
    waiter = threading.Thread(target=lambda: got.append(db.acquire_many(3, WAIT_SECONDS)))
    waiter.start()
    await_condition(lambda: db.state.waiting == 1, "it waits")
    permit_clock.advance(60)
    waiter.join(WAIT_SECONDS)
    assert got == [3]


async def test_a_batch_is_drawn_from_an_event_loop_too(db: DestinationHandle) -> None:
    assert [await db.acquire_many_async(4), await db.acquire_many_async(100)] == [4, 6]
    with pytest.raises(PermitTimeout):
        await db.acquire_many_async(4, timeout=SOON)


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "3", None])
def test_a_batch_of_no_number_is_refused_and_takes_nothing(
    db: DestinationHandle, most: object
) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        db.acquire_many(most)  # type: ignore[arg-type]
    assert db.state.used == 0


# -- the decorator


def test_a_decorated_function_delivers_with_a_permit(db: DestinationHandle) -> None:
    @db.limited(permits=5, timeout=SOON)
    def deliver(number: int, *, twice: bool = False) -> int:
        """Say something."""
        assert db.state.in_delivery == 1
        return number * (2 if twice else 1)

    assert (deliver(1), deliver(2, twice=True)) == (1, 4)
    assert (deliver.__name__, deliver.__doc__) == ("deliver", "Say something.")
    with pytest.raises(PermitTimeout):
        deliver(3)
    assert (db.state.used, db.state.in_delivery) == (10, 0)


def test_an_error_of_a_decorated_function_ends_its_delivery(db: DestinationHandle) -> None:
    @db.limited()
    def deliver() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        deliver()
    assert db.state.in_delivery == 0


async def test_a_decorated_coroutine_function_holds_its_permit_until_it_is_done(
    db: DestinationHandle,
) -> None:
    db.limit_concurrency(1)
    inside = 0

    @db.limited(timeout=WAIT_SECONDS)
    async def deliver(number: int) -> int:
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0)
        inside -= 1
        return number

    assert await asyncio.gather(*(deliver(number) for number in range(5))) == [0, 1, 2, 3, 4]
    assert db.state.used == 5


def test_a_method_can_be_decorated(db: DestinationHandle) -> None:
    class Sender:
        sent = 0

        @db.limited()
        def send(self) -> None:
            self.sent += 1

    sender = Sender()
    sender.send()
    assert (sender.sent, db.state.used) == (1, 1)


def test_generator_functions_are_refused_at_once(db: DestinationHandle) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def numbers_async() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, numbers_async):
        with pytest.raises(TypeError, match="generator function"):
            db.limited()(function)


def test_wrong_settings_of_a_decorator_are_refused_at_once(db: DestinationHandle) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        db.limited(permits=0)
    with pytest.raises(ValueError, match="number of seconds"):
        db.limited(timeout="soon")  # type: ignore[arg-type]


def test_a_decorator_without_parentheses_is_told_so(db: DestinationHandle) -> None:
    with pytest.raises(TypeError, match=r"limited needs parentheses .*: @orders.limited\(\)"):

        @db.limited  # type: ignore[arg-type]  # wrong on purpose
        def deliver() -> None: ...


@pytest.mark.parametrize("permits", [0, 1.5, True, "1", None])
def test_wrong_permits_of_a_context_are_refused_where_it_is_made(
    db: DestinationHandle, permits: object
) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        db.permit(permits)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", ["soon", math.nan, b"1", []])
def test_a_wrong_timeout_of_a_context_is_refused_where_it_is_made(
    db: DestinationHandle, timeout: object
) -> None:
    with pytest.raises(ValueError, match="number of seconds"):
        db.permit(timeout=timeout)  # type: ignore[arg-type]
    assert db.state.used == 0


# -- a handle that is taken for a context


def test_a_handle_that_is_entered_by_itself_says_what_to_write(db: DestinationHandle) -> None:
    words = r"no context by itself; write: with orders\.permit\(\):"
    with pytest.raises(TypeError, match=words), db:  # type: ignore[attr-defined]  # on purpose
        pass
    with pytest.raises(TypeError, match="no context by itself"), ExitStack() as stack:
        stack.enter_context(db)  # type: ignore[arg-type]
    assert (isinstance(db, AbstractContextManager), db.state.used) == (False, 0)


async def test_a_handle_that_is_entered_on_a_loop_says_what_to_write(
    db: DestinationHandle,
) -> None:
    with pytest.raises(TypeError, match=r"write: async with orders\.permit\(\):"):
        async with db:  # type: ignore[attr-defined]  # wrong on purpose
            pass


# -- errors


@pytest.mark.parametrize(
    "error",
    [
        PermitTimeout("db", 1.5),
        PermitTimeout("db", None),
        PermitTimeout("db", None, 8),
        ImpossibleRequestError("11 permits of 'db'"),
        ClientClosedError("the client was closed"),
        WireError(RejectReason.BAD_JSON, "not JSON"),
    ],
    ids=str,
)
def test_an_error_stays_what_it_is_on_its_way_to_another_process(error: PermitError) -> None:
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert (str(arrived), vars(arrived)) == (str(error), vars(error))
