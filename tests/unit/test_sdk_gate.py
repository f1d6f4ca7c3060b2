"""How many deliveries are under way at once: the gate, alone and in a client."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.real_clients import await_condition
from worker_sdk import ClientClosedError, DestinationHandle, PermitClient, PermitTimeout
from worker_sdk.runtime.gate import Gate
from worker_sdk.testing import InMemoryBalancer
from worker_sdk.testing.plugin import StartPermitClient

WAIT_SECONDS = 20.0
SOON = 0.01


@pytest.fixture
def client(permit_client: StartPermitClient) -> PermitClient:
    return permit_client(InMemoryBalancer({"db": 1000}, members=2))


@pytest.fixture
def db(client: PermitClient) -> DestinationHandle:
    return client.destination("db")


class Crowd:
    """Counts who is inside at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.most = 0
        self.go = threading.Event()

    def __enter__(self) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1


def test_threads_are_under_way_up_to_the_limit_and_all_get_there(db: DestinationHandle) -> None:
    db.limit_concurrency(3)
    crowd = Crowd()

    def deliver() -> None:
        with db.permit(timeout=WAIT_SECONDS), crowd:
            crowd.go.wait(WAIT_SECONDS)

    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(deliver) for _ in range(20)]
        await_condition(lambda: crowd.inside == 3, "three are inside")
        assert db.state.in_delivery == 3
        assert db.state.used == 3  # the others have not taken their permits yet
        crowd.go.set()
        assert [future.exception(WAIT_SECONDS) for future in done] == [None] * 20
    assert (crowd.most, db.state.in_delivery, db.state.used) == (3, 0, 20)


def test_a_raised_limit_lets_waiters_in_and_a_lowered_one_sends_nobody_out(
    db: DestinationHandle,
) -> None:
    db.limit_concurrency(1)
    crowd = Crowd()

    def deliver() -> None:
        with db.permit(timeout=WAIT_SECONDS), crowd:
            crowd.go.wait(WAIT_SECONDS)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(deliver)
        await_condition(lambda: crowd.inside == 1, "one is inside")
        db.limit_concurrency(3)
        await_condition(lambda: crowd.inside == 3, "three are inside")
        db.limit_concurrency(2)
        assert crowd.inside == 3
        assert db.state.concurrency == db.concurrency == 2
        db.limit_concurrency(None)
        await_condition(lambda: crowd.inside == 4, "all are inside")
        crowd.go.set()


async def test_tasks_and_threads_share_one_limit(db: DestinationHandle) -> None:
    db.limit_concurrency(1)
    with db.permit():
        waiting = asyncio.create_task(_deliver(db))
        await asyncio.sleep(SOON)
        assert not waiting.done()
    await asyncio.wait_for(waiting, WAIT_SECONDS)


async def _deliver(db: DestinationHandle) -> None:
    async with db.permit(timeout=WAIT_SECONDS):
        pass


def test_who_finds_no_room_in_time_is_told_so_and_takes_no_permit(db: DestinationHandle) -> None:
    db.limit_concurrency(1)
    with db.permit():
        with pytest.raises(PermitTimeout, match="1 delivery is under way") as late:
            db.permit(timeout=SOON).__enter__()
        assert late.value.concurrency == 1
        assert db.state.used == 1
    with db.permit(timeout=SOON):
        pass


async def test_a_cancelled_task_leaves_its_place_to_the_next(db: DestinationHandle) -> None:
    db.limit_concurrency(1)
    async with db.permit():
        first, second = (asyncio.create_task(_deliver(db)) for _ in range(2))
        await asyncio.sleep(SOON)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    await asyncio.wait_for(second, WAIT_SECONDS)
    async with db.permit(timeout=SOON):
        pass


async def test_a_task_cancelled_just_as_it_was_let_in_makes_room_again(
    db: DestinationHandle,
) -> None:
    db.limit_concurrency(1)
    async with db.permit():
        waiting = asyncio.create_task(_deliver(db))
        await asyncio.sleep(SOON)
    waiting.cancel()  # it is inside, but has not run since
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with db.permit(timeout=SOON):
        pass


def test_no_permit_means_that_the_place_is_free_again(permit_client: StartPermitClient) -> None:
    db = permit_client({"db": 1}).destination("db")
    db.limit_concurrency(1)
    with db.permit():
        pass
    for _ in range(2):
        with pytest.raises(PermitTimeout) as late:
            db.permit(timeout=SOON).__enter__()
        assert late.value.concurrency is None


def test_places_are_given_in_the_order_of_asking() -> None:
    gate = Gate("db", 1)
    gate.enter("first", None)
    order: list[int] = []

    async def ask(number: int) -> None:
        await gate.enter_async(number, WAIT_SECONDS)
        order.append(number)
        gate.leave(number)

    async def ask_all() -> None:
        tasks = [asyncio.create_task(ask(number)) for number in range(5)]
        await asyncio.sleep(0)
        gate.leave("first")
        await asyncio.gather(*tasks)

    asyncio.run(ask_all())
    assert order == [0, 1, 2, 3, 4]


def test_a_waiter_whose_event_loop_is_gone_does_not_keep_the_place() -> None:
    gate = Gate("db", 1)
    gate.enter("first", None)

    def wake() -> None:
        raise RuntimeError("Event loop is closed")

    gate._join("gone", wake)
    gate.leave("first")
    gate.enter("next", SOON)


def test_a_finaliser_that_ends_a_delivery_amid_a_call_loses_no_place() -> None:
    gate = Gate("db", 1)
    gate.enter("first", None)
    with gate._lock:  # as when the collector runs while this thread changes the gate
        gate.leave("first")
    gate.enter("next", SOON)
    with pytest.raises(PermitTimeout):
        gate.enter("late", SOON)


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "3"])
def test_a_limit_that_is_no_number_of_deliveries_is_refused(
    db: DestinationHandle, most: object
) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        db.limit_concurrency(most)  # type: ignore[arg-type]
    assert db.concurrency is None


def test_who_waits_for_room_as_the_client_ends_is_told_once_there_is_room(
    client: PermitClient,
) -> None:
    db = client.destination("db")
    db.limit_concurrency(1)
    with ThreadPoolExecutor(1) as pool:
        with db.permit():
            waiting = pool.submit(db.permit().__enter__)
            await_condition(lambda: len(db._gates.of("db")._waiters) == 1, "it waits")
            client.close()
        assert isinstance(waiting.exception(WAIT_SECONDS), ClientClosedError)


def _deliver_in_child(db: DestinationHandle, answers: object) -> None:
    with db.permit(timeout=WAIT_SECONDS):
        state = db.state
    answers.put((state.in_delivery, state.concurrency))  # type: ignore[attr-defined]
    gc.collect()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_child_has_the_limit_but_none_of_its_parents_deliveries(
    db: DestinationHandle,
) -> None:
    db.limit_concurrency(1)
    forking = multiprocessing.get_context("fork")
    answers = forking.Queue()
    with db.permit():
        child = forking.Process(target=_deliver_in_child, args=(db, answers))
        child.start()
        assert answers.get(timeout=WAIT_SECONDS) == (1, 1)
        child.join(WAIT_SECONDS)
        assert child.exitcode == 0
        with pytest.raises(PermitTimeout):
            db.permit(timeout=SOON).__enter__()
    with db.permit(timeout=SOON):
        pass
