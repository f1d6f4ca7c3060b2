"""Shares over HTTP, asked by a real client on loopback; stores are in memory."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from balancer.adapters.http import distribution as distribution_module
from balancer.errors import UnavailableError
from balancer.ports import AcceptedBatch
from tests.support.http_face import LEGAL_NAMES, Served, until_waiting
from tests.support.service_doubles import T0
from tests.unit.test_view import document
from worker_sdk.transports.base import Identity
from worker_sdk.transports.http import HttpSource, quoted_host
from worker_sdk.wire.spoken import NOBODY, ROUND_HEADER
from worker_sdk.wire.usage import MemberState, UsageBatch


async def test_a_host_gets_its_shares_with_a_tag_and_the_time(served: Served) -> None:
    served.view.publish(0, [document(2, "a", "b"), document(1, "a")])
    status, body, headers = await served.ask("/distribution/a")
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    assert "Date" in headers
    assert body["host"] == "a"
    rows = body["destinations"]["orders-db"]
    assert [(row["epoch"], row["percent"], row["permits"]) for row in rows] == [
        (2, 50.0, 50),
        (1, 100.0, 100),
    ]
    again, nothing, _ = await served.ask(
        "/distribution/a", headers={"If-None-Match": headers["ETag"]}
    )
    assert (again, nothing) == (304, b"")


@pytest.mark.parametrize("instance", ["", "x" * 256, "a%00b"])
async def test_an_instance_that_is_no_name_is_refused(served: Served, instance: str) -> None:
    status, body, _ = await served.ask(f"/distribution/a?instance={instance}")
    assert status == 400
    assert "instance" in body["detail"]


async def test_an_instance_gets_its_own_intervals_alone(served: Served) -> None:
    served.view.publish(0, [document(1, "a")])
    _, body, _ = await served.ask("/distribution/a?instance=other")
    (row,) = body["destinations"]["orders-db"]
    assert (row["instances"], row["percent"]) == ({}, 100.0)
    _, body, _ = await served.ask("/distribution/a?instance=i")
    assert list(body["destinations"]["orders-db"][0]["instances"]) == ["i"]


async def test_each_answer_tells_the_length_of_a_round(served: Served) -> None:
    served.view.publish(0, [document(1, "a", "b")])
    _, _, headers = await served.ask("/distribution/a")
    assert headers[ROUND_HEADER] == "60"
    source = HttpSource(Identity("a", "i", ("orders-db",)), served.url)
    for _ in range(2):  # the second one is unchanged
        assert (await asyncio.to_thread(source.read, {}, 0.0)).round_seconds == 60


async def test_a_host_that_nobody_has_seen_is_a_problem_of_404(served: Served) -> None:
    status, body, headers = await served.ask("/distribution/a")
    assert status == 404
    assert headers["Content-Type"].startswith("application/problem+json")
    assert body == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": NOBODY,
    }


async def test_a_host_that_was_seen_and_has_no_share_gets_an_empty_answer(served: Served) -> None:
    batch = UsageBatch("a", "i", T0, MemberState.STARTING)
    await served.repository.store_batches([AcceptedBatch(batch, T0, T0)])
    status, body, _ = await served.ask("/distribution/a")
    assert (status, body) == (200, {"host": "a", "shards": 1, "destinations": {}})


@pytest.mark.parametrize("name", LEGAL_NAMES)
async def test_any_legal_name_is_answered_for_exactly_itself(served: Served, name: str) -> None:
    served.view.publish(0, [document(1, name, "a", "b")])
    status, body, _ = await served.ask(f"/distribution/{quote(name, safe='')}")
    assert (status, body["host"]) == (200, name)
    source = HttpSource(Identity(name, "i", ("orders-db",)), served.url)
    reading = await asyncio.to_thread(source.read, {}, 0.0)
    assert [share.intervals for share in reading.shares] == [((0, 333333333),)]
    dotted, _, _ = await served.ask(f"/distribution/{quoted_host(name)}")
    assert dotted == 200


@pytest.mark.parametrize(
    "path",
    [
        "/distribution/",
        "/distribution/a/b",
        "/distribution/%00",
        "/distribution/a%09b",
        "/distribution/%FF",
        "/distribution/" + "n" * 256,
        "/distribution",
    ],
)
async def test_what_is_no_legal_name_is_nobody(served: Served, path: str) -> None:
    served.view.publish(0, [document(1, "a")])
    status, body, _ = await served.ask(path)
    assert (status, body["status"]) == (404, 404)


async def test_a_wait_ends_as_soon_as_the_answer_differs(served: Served) -> None:
    served.view.publish(0, [document(1, "a")])
    _, _, headers = await served.ask("/distribution/a")
    waiting = asyncio.create_task(
        served.ask("/distribution/a?wait=15", headers={"If-None-Match": headers["ETag"]})
    )
    await until_waiting(served, 1)
    served.view.publish(0, [document(2, "a")])
    status, body, _ = await asyncio.wait_for(waiting, 10)
    assert (status, body["destinations"]["orders-db"][0]["epoch"]) == (200, 2)


async def test_a_wait_for_an_unknown_host_ends_when_it_has_a_share(served: Served) -> None:
    waiting = asyncio.create_task(served.ask("/distribution/new?wait=15"))
    await until_waiting(served, 1)
    served.view.publish(0, [document(1, "other")])
    served.view.publish(0, [document(2, "other", "new")])
    status, body, _ = await asyncio.wait_for(waiting, 10)
    assert (status, body["host"]) == (200, "new")


async def test_a_wait_that_is_over_gives_what_there_is(served: Served) -> None:
    served.view.publish(0, [document(1, "a")])
    _, _, headers = await served.ask("/distribution/a")
    tag = {"If-None-Match": headers["ETag"]}
    assert (await served.ask("/distribution/a?wait=0.05", headers=tag))[0] == 304
    assert (await served.ask("/distribution/b?wait=0.05"))[0] == 404


async def test_an_answer_that_differs_already_is_not_held(served: Served) -> None:
    served.view.publish(0, [document(1, "a")])
    asking = served.ask("/distribution/a?wait=60", headers={"If-None-Match": '"old"'})
    assert (await asyncio.wait_for(asking, 5))[0] == 200


@pytest.mark.parametrize("wait", ["61", "-1", "nan", "inf", "soon", ""])
async def test_a_wrong_wait_is_told(served: Served, wait: str) -> None:
    status, body, _ = await served.ask(f"/distribution/a?wait={wait}")
    assert (status, body["detail"]) == (400, "wait must be a number of seconds from 0 to 60")


async def test_so_many_may_wait_and_no_more(make_served: Any) -> None:
    served: Served = await make_served(waiters_max=1)
    waiting = asyncio.create_task(served.ask("/distribution/a?wait=15"))
    await until_waiting(served, 1)
    status, body, headers = await served.ask("/distribution/b?wait=15")
    assert (status, headers["Retry-After"]) == (503, "1")
    assert "1 requests wait already" in body["detail"]
    served.view.publish(0, [document(1, "a")])
    assert (await asyncio.wait_for(waiting, 10))[0] == 200
    assert (await served.ask("/distribution/b?wait=0.01"))[0] == 404


async def test_a_waiter_whose_client_went_away_waits_no_longer(served: Served) -> None:
    waiting = asyncio.create_task(served.ask("/distribution/a?wait=60"))
    await until_waiting(served, 1)
    waiting.cancel()
    await until_waiting(served, 0)


async def test_stopping_lets_waiters_go_at_once(served: Served) -> None:
    waiting = asyncio.create_task(served.ask("/distribution/a?wait=60"))
    await until_waiting(served, 1)
    async with asyncio.timeout(5):
        await served.server.stop()
        status, _, _ = await waiting
    assert status == 404


async def test_before_everything_was_read_nobody_is_told_to_be_unknown(served: Served) -> None:
    served.view.shards = 2
    status, _, headers = await served.ask("/distribution/a")
    assert (status, headers["Retry-After"]) == (503, "1")


async def test_a_database_that_is_away_does_not_hide_a_share(served: Served) -> None:
    served.faults["postgres"] = UnavailableError("no answer")
    served.view.publish(0, [document(1, "a")])
    assert (await served.ask("/distribution/a"))[0] == 200
    assert (await served.ask("/distribution/b"))[0] == 404


async def test_what_is_known_of_unknown_hosts_is_bounded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution_module, "KNOWN_MAX", 2)
    for host in "abcdef":
        batch = UsageBatch(host, "i", T0, MemberState.STARTING)
        await served.repository.store_batches([AcceptedBatch(batch, T0, T0)])
        assert (await served.ask(f"/distribution/{host}"))[0] == 200


async def test_strangers_leave_the_database_to_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = most = 0
    free, busy = asyncio.Event(), asyncio.Event()

    async def known_host(host: str) -> bool:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        if most >= distribution_module.KNOWN_AT_ONCE:
            busy.set()
        await free.wait()
        asking -= 1
        return False

    monkeypatch.setattr(served.repository, "known_host", known_host)
    questions = [asyncio.create_task(served.ask(f"/distribution/{n}")) for n in range(20)]
    async with asyncio.timeout(10):
        await busy.wait()
    served.view.publish(0, [document(1, "a")])
    assert (await served.ask("/distribution/a"))[0] == 200
    free.set()
    assert {status for status, _, _ in await asyncio.gather(*questions)} == {404}
    assert most == distribution_module.KNOWN_AT_ONCE


async def test_a_database_that_hangs_does_not_hold_a_stranger_for_ever(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def known_host(host: str) -> bool:
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(served.repository, "known_host", known_host)
    monkeypatch.setattr(distribution_module, "KNOWN_SECONDS", 0.05)
    questions = [served.ask(f"/distribution/{n}") for n in range(10)]
    async with asyncio.timeout(10):
        assert {status for status, _, _ in await asyncio.gather(*questions)} == {404}
