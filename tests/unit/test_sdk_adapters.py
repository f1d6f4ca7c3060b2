"""The adapters, in the libraries that they are for."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator

import aiohttp
import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.real_clients import await_condition
from worker_sdk import ClientClosedError, DestinationHandle, PermitClient, PermitTimeout
from worker_sdk.adapters.aiohttp import permit_middleware
from worker_sdk.adapters.httpx import AsyncPermitTransport, PermitTransport
from worker_sdk.adapters.threads import PermitThreadPool
from worker_sdk.testing import InMemoryBalancer, ManualClock
from worker_sdk.testing.plugin import StartPermitClient

WAIT_SECONDS = 20.0
SOON = 0.01


@pytest.fixture
def balancer() -> InMemoryBalancer:
    return InMemoryBalancer({"db": 2})


@pytest.fixture
def client(permit_client: StartPermitClient, balancer: InMemoryBalancer) -> PermitClient:
    return permit_client(balancer)


@pytest.fixture
def db(client: PermitClient) -> DestinationHandle:
    return client.destination("db")


def busy_ms(client: PermitClient, balancer: InMemoryBalancer) -> int:
    client.close()
    return balancer.batches[-1].tuples[0].busy_ms


# -- what each is given


@pytest.mark.parametrize(
    "make", [PermitTransport, AsyncPermitTransport, permit_middleware, PermitThreadPool]
)
def test_a_wrong_argument_is_told_when_it_is_given(
    make: Callable[..., object], client: PermitClient, db: DestinationHandle
) -> None:
    with pytest.raises(TypeError, match=r'permits must be a .*client.destination\("orders-db"\)'):
        make(client)
    with pytest.raises(ValueError, match="timeout must be a number of seconds, not 'soon'"):
        make(db, timeout="soon")


# -- httpx


class Destination:
    """Answers redirects and text; counts."""

    def __init__(self, clock: ManualClock) -> None:
        self.requests = 0
        self.clock = clock

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        self.clock.advance(0.5)
        if request.url.path == "/moved":
            return httpx.Response(302, headers={"location": "/here"})
        if request.url.path == "/broken":
            raise httpx.ConnectError("away")
        if request.url.path == "/slow":
            return httpx.Response(200, stream=Slow(self.clock))
        return httpx.Response(200, text="ok")


class Slow(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body whose every part takes a second."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    def __iter__(self) -> Iterator[bytes]:
        for part in (b"a", b"b"):
            self.clock.advance(1)
            yield part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part


def test_httpx_sends_as_many_requests_as_there_are_permits(
    db: DestinationHandle, permit_clock: ManualClock
) -> None:
    destination = Destination(permit_clock)
    transport = PermitTransport(db, httpx.MockTransport(destination.answer), timeout=SOON)
    with httpx.Client(transport=transport, base_url="http://db") as http:
        assert [http.get("/").text for _ in range(2)] == ["ok", "ok"]
        with pytest.raises(PermitTimeout):
            http.get("/")
        assert destination.requests == 2


def test_httpx_takes_a_permit_for_a_redirect_too(
    db: DestinationHandle, permit_clock: ManualClock
) -> None:
    destination = Destination(permit_clock)
    transport = PermitTransport(db, httpx.MockTransport(destination.answer), timeout=SOON)
    with httpx.Client(transport=transport, base_url="http://db", follow_redirects=True) as http:
        assert http.get("/moved").text == "ok"
    assert (destination.requests, db.state.used) == (2, 2)


@pytest.mark.parametrize(("path", "expected"), [("/", 500), ("/slow", 2500)])
def test_httpx_delivers_until_the_body_is_read(
    client: PermitClient,
    balancer: InMemoryBalancer,
    permit_clock: ManualClock,
    path: str,
    expected: int,
) -> None:
    mock = httpx.MockTransport(Destination(permit_clock).answer)
    transport = PermitTransport(client.destination("db"), mock)
    with httpx.Client(transport=transport, base_url="http://db") as http:
        http.get(path)
    permit_clock.advance(7)
    assert busy_ms(client, balancer) == expected


def test_httpx_ends_the_delivery_of_a_request_that_failed(
    client: PermitClient, balancer: InMemoryBalancer, permit_clock: ManualClock
) -> None:
    mock = httpx.MockTransport(Destination(permit_clock).answer)
    transport = PermitTransport(client.destination("db"), mock)
    with (
        httpx.Client(transport=transport, base_url="http://db") as http,
        pytest.raises(httpx.ConnectError),
    ):
        http.get("/broken")
    permit_clock.advance(7)
    assert busy_ms(client, balancer) == 500


async def test_httpx_async_does_the_same(
    client: PermitClient, balancer: InMemoryBalancer, permit_clock: ManualClock
) -> None:
    destination = Destination(permit_clock)
    mock = httpx.MockTransport(destination.answer)
    transport = AsyncPermitTransport(client.destination("db"), mock, timeout=SOON)
    async with httpx.AsyncClient(transport=transport, base_url="http://db") as http:
        assert (await http.get("/slow")).text == "ab"
        permit_clock.advance(7)
        with pytest.raises(httpx.ConnectError):
            await http.get("/broken")
        with pytest.raises(PermitTimeout):
            await http.get("/")
    assert destination.requests == 2
    assert busy_ms(client, balancer) == 3000


# -- aiohttp


async def test_aiohttp_takes_a_permit_for_each_request_that_leaves(db: DestinationHandle) -> None:
    reached: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        reached.append(request.path)
        if request.path == "/moved":
            raise web.HTTPFound("/here")
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/{any:.*}", answer)
    middleware = permit_middleware(db, timeout=SOON)
    async with TestServer(app) as server, aiohttp.ClientSession(middlewares=[middleware]) as http:
        async with http.get(server.make_url("/moved")) as response:
            assert await response.text() == "ok"
        with pytest.raises(PermitTimeout):
            await http.get(server.make_url("/"))
    assert reached == ["/moved", "/here"]
    assert db.state.used == 2


# -- threads


def test_a_pool_runs_what_has_permits_and_says_what_had_none(db: DestinationHandle) -> None:
    with PermitThreadPool(db, 2, timeout=SOON) as pool:
        futures = [pool.submit(pow, number, 2) for number in range(3)]
        done = [future.exception(WAIT_SECONDS) for future in futures]
    assert sum(error is None for error in done) == 2
    assert sum(isinstance(error, PermitTimeout) for error in done) == 1


def test_a_pool_maps_with_a_permit_each(db: DestinationHandle) -> None:
    with PermitThreadPool(db, 2, timeout=WAIT_SECONDS) as pool:
        assert list(pool.map(str, [1, 2])) == ["1", "2"]
    assert db.state.used == 2


def test_what_waits_in_a_pool_goes_on_with_the_next_window(
    db: DestinationHandle, permit_clock: ManualClock
) -> None:
    assert db.try_acquire(2)
    with PermitThreadPool(db, 1, timeout=WAIT_SECONDS) as pool:
        future = pool.submit(threading.get_ident)
        await_condition(lambda: db.state.waiting == 1, "the task waits")
        permit_clock.advance(60)
        assert future.result(WAIT_SECONDS) != threading.get_ident()


def test_what_waits_in_a_pool_ends_with_the_client(client: PermitClient) -> None:
    db = client.destination("db")
    assert db.try_acquire(2)
    with PermitThreadPool(db, 1) as pool:
        future = pool.submit(threading.get_ident)
        await_condition(lambda: db.state.waiting == 1, "the task waits")
        client.close()
        assert isinstance(future.exception(WAIT_SECONDS), ClientClosedError)
