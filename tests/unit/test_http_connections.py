"""Limits on connections and requests: what strangers send, and how slowly they read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from balancer.adapters.http import connections as connections_module
from balancer.adapters.http import server as server_module
from balancer.adapters.http.server import Address
from tests.support.http_face import Served, until_waiting
from tests.unit.test_view import document
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Terms

SECONDS = 10.0
WAITERS = 10_000


@asynccontextmanager
async def connected(served: Served) -> AsyncIterator[tuple[asyncio.StreamReader, Any]]:
    """A raw connection; it is closed at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer_to(served: Served, request: bytes) -> bytes:
    """Send bytes on a connection of their own; return all that comes until it is closed."""
    async with connected(served) as (reader, writer):
        writer.write(request)
        return await asyncio.wait_for(reader.read(), SECONDS)


async def test_one_connection_too_many_is_told_to_come_again(
    make_served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SPARE_CONNECTIONS", 1)
    served: Served = await make_served(waiters_max=1)
    async with connected(served) as (first, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await asyncio.wait_for(first.readline(), SECONDS)).startswith(b"HTTP/1.1 200")
        async with connected(served) as (second, other):
            other.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await asyncio.wait_for(second.readline(), SECONDS)).startswith(b"HTTP/1.1 200")
            told = await answer_to(served, b"")
            assert told.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: 1" in told
    async with asyncio.timeout(SECONDS):  # those two are gone: there is room again
        while b" 200 " not in await answer_to(served, b"GET /healthz HTTP/1.0\r\n\r\n"):
            pass


@pytest.mark.parametrize("head", [b"", b"GET /healthz HTTP/1.1\r\nX-Slow: "])
async def test_who_never_ends_a_first_request_is_hung_up_on(
    make_served: Any, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(connections_module, "FIRST_SECONDS", 0.05)
    served: Served = await make_served()
    async with connected(served) as (reader, writer):
        writer.write(head)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), SECONDS)


async def test_a_connection_that_has_asked_once_may_be_idle_for_longer(
    make_served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "FIRST_SECONDS", 0.05)
    served: Served = await make_served()
    async with connected(served) as (reader, writer):
        for _ in range(2):
            writer.write(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            told = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
            assert told.startswith(b"HTTP/1.1 200 ")
            await asyncio.sleep(0.1)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such limit")
async def test_who_does_not_read_is_hung_up_on_and_costs_no_one_else_an_answer(
    make_served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "SLOW_READER_MS", 200)
    served: Served = await make_served()
    part = 1_000_000_000 // 50_000
    entries = tuple(
        Entry("a", f"{n:032x}", ((n * part, (n + 1) * part),), 0) for n in range(50_000)
    )
    line = DestinationShares(Terms("orders-db", 100, 60, 30_000_000, 30_000_001), (), entries)
    served.view.publish(0, [Document(0, 1, 1_800_000_000_000, 1_800_000_180_000, (line,))])
    answer = served.view.answer("a")
    assert answer is not None
    assert len(answer.body) > 4_000_000, "less than that lies in the system's buffers"
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", int(served.url.rpartition(":")[2]), limit=1024
    )
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport reads
    writer.write(b"GET /distribution/a HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await served.ask("/healthz"))[0] == 200
    runner = served.server._runner
    assert runner is not None
    assert runner.server is not None
    async with asyncio.timeout(SECONDS):
        while len(runner.server.connections) > 1:  # that of the other questions stays open
            assert (await served.ask("/healthz"))[0] == 200
    writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
    got = 0
    with pytest.raises(ConnectionResetError):  # noqa: PT012  # many reads, and one of them fails
        while data := await asyncio.wait_for(reader.read(65_536), SECONDS):
            got += len(data)
        raise ConnectionResetError  # the end came as an end
    assert got < len(answer.body)
    writer.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /distribution/" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 10_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X-Many: 1\r\n" * 1_000 + b"\r\n",
    ],
    ids=["path", "header", "headers"],
)
async def test_a_request_whose_head_is_too_large_is_refused(
    served: Served, request_: bytes
) -> None:
    assert (await answer_to(served, request_))[8:13] == b" 400 "
    assert (await served.ask("/healthz"))[0] == 200


async def test_a_client_that_asks_before_it_sends_a_body_is_told_to_go_on(served: Served) -> None:
    async with connected(served) as (reader, writer):
        writer.write(
            b"PUT /destinations/x HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        told = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        assert told == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b'{"capacity": 5}')
        told = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        assert told.startswith(b"HTTP/1.1 201 ")


async def test_a_body_that_does_not_come_is_not_waited_for_for_ever(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balancer.adapters.http.operations.BODY_SECONDS", 0.05)
    async with connected(served) as (reader, writer):
        writer.write(b"PUT /destinations/x HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{")
        told = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        assert told.startswith(b"HTTP/1.1 408 ")


async def test_an_answer_to_head_has_no_body(served: Served) -> None:
    served.view.publish(0, [document(1, "a")])
    told = await answer_to(served, b"HEAD /distribution/a HTTP/1.0\r\n\r\n")
    assert told[8:13] == b" 200 "
    assert b"\r\netag: " in told.lower()
    assert told.endswith(b"\r\n\r\n")


async def test_ten_thousand_waiters_hear_of_a_change_and_others_are_answered_meanwhile(
    make_served: Any,
) -> None:
    """Through the handler, since a process has no files for as many sockets of its own."""
    served: Served = await make_served(waiters_max=WAITERS)
    hosts = [f"host-{number}" for number in range(WAITERS)]
    served.view.publish(0, [document(1, *hosts)])
    distribution = served.server._distribution
    waiting = [
        asyncio.create_task(
            distribution._changed(host, None, served.view.answer(host).tag, 2, 60)  # type: ignore[union-attr]  # each has an answer
        )
        for host in hosts
    ]
    await until_waiting(served, WAITERS)
    served.view.publish(0, [document(2, *hosts)])
    asked = 0
    while not all(task.done() for task in waiting):
        async with aiohttp.ClientSession() as session, session.get(served.url + "/healthz") as told:
            asked += told.status == 200
    assert asked > 1, "the loop saw to others while it woke them"
    tags = {task.result().tag for task in waiting if task.result() is not None}  # type: ignore[union-attr]  # seen just there
    assert len(tags) == WAITERS
    await until_waiting(served, 0)


async def test_several_servers_share_a_port_where_they_are_told_to(make_served: Any) -> None:
    one: Served = await make_served()
    other: Served = await make_served()
    await one.server.stop()
    await other.server.stop()
    address = await one.server.start(Address("127.0.0.1", 0, shared=True))
    await other.server.start(Address("127.0.0.1", address.port, shared=True))
    await one.server.stop()
    url = f"http://127.0.0.1:{address.port}/healthz"
    async with aiohttp.ClientSession() as session, session.get(url) as told:
        assert told.status == 200, "the other one answers on"
