"""The HTTP face, asked by a real client on loopback; stores are in memory."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL

from balancer.adapters.http import distribution as distribution_module
from balancer.adapters.http.distribution import Distribution
from balancer.adapters.http.operations import Operations
from balancer.adapters.http.server import BODY_MAX_BYTES, Address, HttpServer
from balancer.adapters.metrics.prometheus import PrometheusMetrics
from balancer.app.readiness import Readiness
from balancer.app.view import DistributionView
from balancer.core.model import Destination
from balancer.errors import BalancerError, UnavailableError
from balancer.ports import AcceptedBatch
from tests.support.fakes_repository import FakeRepository
from tests.support.service_doubles import T0, ManualClock
from tests.unit.test_view import document
from worker_sdk.transports.base import Identity
from worker_sdk.transports.http import HttpSource, quoted_host
from worker_sdk.wire.usage import MemberState, UsageBatch

TOKEN = "a-long-random-text"
LEGAL_NAMES = [
    "a/b",
    "a b",
    "..",
    ".",
    "50%",
    "a?b",
    "a#b",
    "a%2Fb",
    "[::1]:8080",
    "fe80::1%eth0",
    "日本-01",
    "a+b",
    "distribution",
    "x/distribution",
    'quote"back\\slash',
    "n" * 255,
]


@dataclass
class Served:
    """A running server and everything behind it."""

    url: str
    view: DistributionView
    repository: FakeRepository
    readiness: Readiness
    session: aiohttp.ClientSession
    server: HttpServer
    changes: list[int]
    faults: dict[str, BalancerError]

    async def ask(
        self,
        path: str,
        method: str = "GET",
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any, Mapping[str, str]]:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        async with self.session.request(
            method, URL(self.url + path, encoded=True), data=data, headers=headers
        ) as answer:
            text = await answer.read()
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, json.loads(text) if is_json else text, answer.headers


@pytest.fixture
async def make_served() -> AsyncIterator[Any]:
    made: list[Served] = []

    async def make(*, token: str | None = None, waiters_max: int = 100) -> Served:
        view, repository, metrics = DistributionView(1), FakeRepository(), PrometheusMetrics()
        view.publish(0, [])
        faults: dict[str, BalancerError] = {}
        changes: list[int] = []

        async def check() -> None:
            if "kafka" in faults:
                raise faults["kafka"]

        readiness = Readiness({"kafka": check}, view, metrics)

        def connected() -> FakeRepository:
            if "postgres" in faults:
                raise faults["postgres"]
            return repository

        async def known_host(host: str) -> bool:
            return await connected().known_host(host)

        server = HttpServer(
            Distribution(view, known_host, metrics, waiters_max=waiters_max),
            Operations(
                repository=connected,
                view=view,
                readiness=readiness,
                clock=ManualClock(),
                metrics_text=metrics.text,
                token=token,
                round_seconds=60,
                on_change=lambda: changes.append(1),
            ),
            metrics,
        )
        address = await server.start(Address("127.0.0.1", 0))
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20))
        url = f"http://127.0.0.1:{address.port}"
        served = Served(url, view, repository, readiness, session, server, changes, faults)
        made.append(served)
        return served

    yield make
    for served in made:
        await served.session.close()
        await served.server.stop()


@pytest.fixture
async def served(make_served: Any) -> Served:
    result: Served = await make_served()
    return result


# ---------------------------------------------------------------- distribution


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


async def test_an_instance_gets_its_own_intervals_alone(served: Served) -> None:
    served.view.publish(0, [document(1, "a")])
    _, body, _ = await served.ask("/distribution/a?instance=other")
    (row,) = body["destinations"]["orders-db"]
    assert (row["instances"], row["percent"]) == ({}, 100.0)
    _, body, _ = await served.ask("/distribution/a?instance=i")
    assert list(body["destinations"]["orders-db"][0]["instances"]) == ["i"]


async def test_a_host_that_nobody_has_seen_is_a_problem_of_404(served: Served) -> None:
    status, body, headers = await served.ask("/distribution/a")
    assert status == 404
    assert headers["Content-Type"].startswith("application/problem+json")
    assert body == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "nobody of this host was ever seen",
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
    await _until_waiting(served, 1)
    served.view.publish(0, [document(2, "a")])
    status, body, _ = await asyncio.wait_for(waiting, 10)
    assert (status, body["destinations"]["orders-db"][0]["epoch"]) == (200, 2)


async def test_a_wait_for_an_unknown_host_ends_when_it_has_a_share(served: Served) -> None:
    waiting = asyncio.create_task(served.ask("/distribution/new?wait=15"))
    await _until_waiting(served, 1)
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
    await _until_waiting(served, 1)
    status, body, headers = await served.ask("/distribution/b?wait=15")
    assert (status, headers["Retry-After"]) == (503, "1")
    assert "1 requests wait already" in body["detail"]
    served.view.publish(0, [document(1, "a")])
    assert (await asyncio.wait_for(waiting, 10))[0] == 200
    assert (await served.ask("/distribution/b?wait=0.01"))[0] == 404


async def test_a_waiter_whose_client_went_away_waits_no_longer(served: Served) -> None:
    waiting = asyncio.create_task(served.ask("/distribution/a?wait=60"))
    await _until_waiting(served, 1)
    waiting.cancel()
    await _until_waiting(served, 0)


async def test_stopping_lets_waiters_go_at_once(served: Served) -> None:
    waiting = asyncio.create_task(served.ask("/distribution/a?wait=60"))
    await _until_waiting(served, 1)
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


# ---------------------------------------------------------------- destinations


async def test_a_destination_is_created_shown_changed_listed_and_removed(served: Served) -> None:
    policy = {"newcomer_reserve_points": 0, "valid_for_seconds": 15, "pacing": "window"}
    body = {"capacity": 500, "window_seconds": 5, "policy": policy}
    status, created, _ = await served.ask("/destinations/orders-db", "PUT", body)
    assert (status, created["capacity"], created["window_seconds"]) == (201, 500, 5)
    assert created["policy"]["valid_for_seconds"] == 15
    status, changed, _ = await served.ask("/destinations/orders-db", "PUT", {"capacity": 600})
    assert (status, changed["capacity"]) == (200, 600)
    assert changed["policy"] == created["policy"]
    assert (await served.ask("/destinations/orders-db"))[1] == changed
    assert (await served.ask("/destinations"))[1] == {"destinations": [changed]}
    assert (await served.ask("/destinations/orders-db", "DELETE"))[0] == 204
    assert (await served.ask("/destinations/orders-db", "DELETE"))[0] == 404
    assert (await served.ask("/destinations/orders-db"))[0] == 404
    assert (await served.ask("/destinations"))[1] == {"destinations": []}
    assert len(served.changes) == 3


async def test_what_get_gives_put_takes(served: Served) -> None:
    body = {"capacity": 5, "policy": {"on_expiry": {"permille": 500, "for_ms": 60_000}}}
    _, created, _ = await served.ask("/destinations/x", "PUT", body)
    status, again, _ = await served.ask("/destinations/x", "PUT", created)
    assert (status, again) == (200, created)
    closed = {"policy": {"on_expiry": "closed"}}
    _, changed, _ = await served.ask("/destinations/x", "PUT", closed)
    assert changed["policy"]["on_expiry"] == "closed"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "Invalid JSON"),
        (b"[]", "the body"),
        (b"{", "Invalid JSON"),
        ({}, "capacity is missing"),
        ({"capacity": -1}, "capacity is -1"),
        ({"capacity": 1.5}, "capacity"),
        ({"capacity": "5"}, "capacity"),
        ({"capacity": True}, "capacity"),
        ({"capacity": 10**13}, "capacity"),
        (b'{"capacity": NaN}', "capacity: "),
        (b'{"capacity": 1e999}', "capacity"),
        ({"capacity": 1, "capcity": 2}, "capcity"),
        ({"capacity": 1, "window_seconds": 0}, "window_seconds"),
        ({"capacity": 1, "window_seconds": 7}, "it must divide the round"),
        ({"capacity": 1, "policy": {"strategy": "best"}}, "policy.strategy"),
        ({"capacity": 1, "policy": {"safe_permille": 1001}}, "safe_permille is 1001"),
        ({"capacity": 1, "policy": {"guard_ms": 30_000}}, "guard_ms"),
        ({"capacity": 1, "name": "other"}, "name is 'other'"),
    ],
)
async def test_a_wrong_value_is_named_and_changes_nothing(
    served: Served, body: object, told: str
) -> None:
    status, answer, headers = await served.ask("/destinations/x", "PUT", body)
    assert status == 400
    assert headers["Content-Type"].startswith("application/problem+json")
    assert told in answer["detail"]
    assert (await served.ask("/destinations"))[1] == {"destinations": []}
    assert served.changes == []


async def test_a_window_that_was_set_cannot_change(served: Served) -> None:
    await served.ask("/destinations/x", "PUT", {"capacity": 1, "window_seconds": 60})
    status, body, _ = await served.ask("/destinations/x", "PUT", {"window_seconds": 30})
    assert (status, "window_seconds" in body["detail"]) == (409, True)


async def test_a_body_that_is_too_large_is_refused(served: Served) -> None:
    status, body, _ = await served.ask("/destinations/x", "PUT", b" " * (BODY_MAX_BYTES + 1))
    assert (status, body["status"]) == (413, 413)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"]
)
async def test_changes_need_the_token_where_there_is_one(
    make_served: Any, method: str, header: str | None
) -> None:
    served: Served = await make_served(token=TOKEN)
    await served.repository.put_destination(Destination("x", 1))
    headers = {} if header is None else {"Authorization": header}
    status, _, _ = await served.ask("/destinations/x", method, {"capacity": 2}, headers)
    assert status == 401
    assert [entry.capacity for entry in await served.repository.list_destinations()] == [1]
    assert (await served.ask("/destinations/x"))[0] == 200


async def test_with_the_token_changes_are_made(make_served: Any) -> None:
    served: Served = await make_served(token=TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    body = {"capacity": 2}
    assert (await served.ask("/destinations/x", "PUT", body, headers))[0] == 201


async def test_a_destinations_shares_are_shown_with_every_member(served: Served) -> None:
    assert (await served.ask("/destinations/orders-db/distribution"))[0] == 404
    await served.repository.put_destination(Destination("orders-db", 100))
    _, body, _ = await served.ask("/destinations/orders-db/distribution")
    assert body["documents"] == []
    served.view.publish(0, [document(1, "a", "b")])
    status, body, _ = await served.ask("/destinations/orders-db/distribution")
    (shown,) = body["documents"]
    assert (status, shown["epoch"], shown["holds"]) == (200, 1, [])
    assert shown["members"][1] == {
        "host": "b",
        "instance": "i",
        "intervals": [[500_000_000, 1_000_000_000]],
        "safe": 0,
        "percent": 50.0,
        "permits": 50,
    }


@pytest.mark.parametrize("name", [name for name in LEGAL_NAMES if name not in (".", "..")])
async def test_a_destination_may_have_any_legal_name(served: Served, name: str) -> None:
    path = f"/destinations/{quote(name, safe='')}"
    status, body, _ = await served.ask(path, "PUT", {"capacity": 1})
    assert (status, body["name"]) == (201, name)
    assert (await served.ask(path))[0] == 200
    assert (await served.ask(f"{path}/distribution"))[0] == 200


async def test_a_database_that_is_away_is_a_problem_of_503(served: Served) -> None:
    served.faults["postgres"] = UnavailableError("postgresql://permit:hunter2@x does not answer")
    status, body, headers = await served.ask("/destinations")
    assert (status, headers["Retry-After"]) == (503, "1")
    assert "hunter2" not in json.dumps(body)


# ---------------------------------------------------------------- health


async def test_readiness_says_which_dependency_is_not_ready(served: Served) -> None:
    assert (await served.ask("/readyz"))[0] == 503
    served.faults["kafka"] = UnavailableError("no broker answers")
    await served.readiness.look()
    status, body, _ = await served.ask("/readyz")
    assert status == 503
    assert body["dependencies"]["kafka"] == {"ready": False, "detail": "no broker answers"}
    assert body["dependencies"]["distribution"] == {"ready": True}
    del served.faults["kafka"]
    await served.readiness.look()
    assert (await served.ask("/readyz"))[0] == 200
    assert (await served.ask("/healthz"))[1] == {"status": "ok"}


async def test_requests_are_counted_by_route_and_not_by_name(served: Served) -> None:
    for host in ("a", "b"):
        await served.ask(f"/distribution/{host}")
    await served.ask("/nowhere")
    status, text, _ = await served.ask("/metrics")
    assert status == 200
    counted = 'permit_http_requests_total{route="/distribution/{host}",status="404"} 2.0'
    assert counted in text.decode()
    assert 'route="none",status="404"' in text.decode()


async def test_an_unknown_method_is_told(served: Served) -> None:
    status, body, headers = await served.ask("/destinations", "POST", {})
    assert (status, body["status"], headers["Allow"]) == (405, 405, "GET,HEAD")


async def test_a_connection_that_was_kept_is_answered_again(served: Served) -> None:
    served.view.publish(0, [document(1, "a")])

    def ask_twice() -> list[int]:
        connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=10)
        statuses = []
        for _ in range(2):
            connection.request("GET", "/distribution/a")
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
        connection.close()
        return statuses

    assert await asyncio.to_thread(ask_twice) == [200, 200]


async def test_an_address_that_is_taken_is_told_with_the_settings(served: Served) -> None:
    port = int(served.url.rpartition(":")[2])
    second = HttpServer(
        served.server._distribution,
        Operations(
            repository=lambda: served.repository,
            view=served.view,
            readiness=served.readiness,
            clock=ManualClock(),
            metrics_text=bytes,
            token=None,
            round_seconds=60,
            on_change=lambda: None,
        ),
        PrometheusMetrics(),
    )
    with pytest.raises(BalancerError, match="PERMIT_HTTP_PORT"):
        await second.start(Address("127.0.0.1", port))


async def _until_waiting(served: Served, count: int) -> None:
    async with asyncio.timeout(10):
        while True:
            _, text, _ = await served.ask("/metrics")
            if f"permit_http_waiting {float(count)}" in text.decode():
                return
            await asyncio.sleep(0.01)
