"""A client that is entered several times: one in another, or by several threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from worker_sdk import ClientClosedError, PermitClient
from worker_sdk.testing import InMemoryBalancer, wait_until_ready
from worker_sdk.wire.usage import MemberState


@pytest.fixture
def balancer() -> InMemoryBalancer:
    return InMemoryBalancer({"db": 100})


def is_closed(client: PermitClient) -> bool:
    try:
        client.destination("db").try_acquire()
    except ClientClosedError:
        return True
    return False


def members(balancer: InMemoryBalancer, state: MemberState) -> int:
    return len({batch.instance for batch in balancer.batches if batch.state is state})


def test_the_last_to_leave_closes_and_it_was_one_member_all_the_time(
    balancer: InMemoryBalancer,
) -> None:
    client = balancer.client()
    with client:
        wait_until_ready(client)
        for _ in range(2):
            with client as same:
                assert same is client
            assert client.destination("db").try_acquire()
        assert members(balancer, MemberState.LEAVING) == 0
    assert is_closed(client)
    assert (members(balancer, MemberState.STARTING), members(balancer, MemberState.LEAVING)) == (
        1,
        1,
    )
    with client:  # as often as one likes, each time as a new member
        wait_until_ready(client)
    assert is_closed(client)
    assert members(balancer, MemberState.LEAVING) == 2


async def test_one_whose_leaving_is_cancelled_has_left(balancer: InMemoryBalancer) -> None:
    client = balancer.client()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    let_go = threading.Event()
    async with client:
        busy = loop.run_in_executor(None, let_go.wait, 10)  # so that leaving has to wait its turn

        async def enter_and_leave() -> None:
            async with client:
                pass

        leaving = asyncio.create_task(enter_and_leave())
        await asyncio.sleep(0)  # entered, and as far out as it gets
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        let_go.set()
        await busy
    assert is_closed(client)
    assert members(balancer, MemberState.LEAVING) == 1


async def test_it_is_the_same_on_an_event_loop(balancer: InMemoryBalancer) -> None:
    client = balancer.client()
    async with client:
        async with client:
            pass
        with client:
            pass
        assert not is_closed(client)
    assert is_closed(client)


def test_threads_that_enter_and_leave_in_any_order_never_close_it_for_each_other(
    balancer: InMemoryBalancer,
) -> None:
    client = balancer.client()
    faults: list[str] = []

    def work() -> None:
        for _ in range(20):
            with client:
                if is_closed(client):
                    faults.append("closed within")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    assert is_closed(client)


def test_close_closes_for_everybody_who_entered(balancer: InMemoryBalancer) -> None:
    client = balancer.client()
    with client, client:
        client.close()
        assert is_closed(client)
    with client:
        assert not is_closed(client)
    assert is_closed(client)


def test_who_could_not_enter_is_not_waited_for(
    balancer: InMemoryBalancer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = balancer.client()

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ClientClosedError), client:
            pass
    with ExitStack() as stack:
        stack.enter_context(client)
        assert not is_closed(client)
    assert is_closed(client)
