"""Destinations, health and metrics over HTTP, asked by a real client on loopback."""

from __future__ import annotations

import asyncio
import http.client
import json
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from balancer.adapters.http.connections import BODY_MAX_BYTES
from balancer.adapters.http.operations import Operations
from balancer.adapters.http.server import Address, HttpServer
from balancer.adapters.metrics.prometheus import PrometheusMetrics
from balancer.core.model import Destination
from balancer.errors import BalancerError, UnavailableError
from tests.support.http_face import LEGAL_NAMES, TOKEN, Served
from tests.support.recorded import reason, round_of
from tests.support.service_doubles import ManualClock
from tests.unit.test_view import document


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
    assert (await served.ask("/readyz/kafka"))[:2] == (503, body["dependencies"]["kafka"])
    assert (await served.ask("/readyz/distribution"))[:2] == (200, {"ready": True})
    assert (await served.ask("/readyz/nothing"))[0] == 404
    del served.faults["kafka"]
    await served.readiness.look()
    assert (await served.ask("/readyz"))[0] == 200
    assert (await served.ask("/healthz"))[1] == {"status": "ok"}


async def test_where_workers_do_not_ask_they_are_told_and_it_is_ready_all_the_same(
    make_served: Any,
) -> None:
    served = await make_served(follows=False)
    served.view.publish(0, [document(1, "a")])
    await served.readiness.look()
    told = "PERMIT_HTTP_DISTRIBUTION is false"
    for path, wanted in (("/distribution/a", 501), ("/readyz/distribution", 503)):
        status, body, _ = await served.ask(path)
        assert (status, told in body["detail"]) == (wanted, True)
    assert (await served.ask("/readyz"))[0] == 200
    status, body, _ = await served.ask("/destinations/orders-db/distribution")
    assert (status, len(body["documents"])) == (200, 1)
    stop = asyncio.Event()
    served.readiness.end_with(stop)
    stop.set()
    assert (await served.ask("/readyz"))[0] == 503


async def test_shares_are_explained_without_dates_where_the_store_is_away(served: Served) -> None:
    await served.ask("/destinations/db", "PUT", {"capacity": 1000, "window_seconds": 60})
    await served.repository.store_round(round_of(replace(reason("a"), reserved_points=5)))
    served.faults["s3"] = UnavailableError("S3 did not answer")
    status, body, _ = await served.ask("/destinations/db/explain")
    assert (status, [member["host"] for member in body["members"]]) == (200, ["a"])
    assert (await served.ask("/destinations/db/distribution"))[0] == 503


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
            documents=served.documents,
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


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /healthz HTTP/1.1\r\nAuthorization: Bearer a-secret\x00word\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nAuthorization: Bearer a-secret" + b"x" * 20_000 + b"\r\n\r\n",
        b"PUT /destinations/d HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\xfc\x03",
        bytes(range(256)) * 8,
    ],
    ids=["control", "long", "negative", "tls", "bytes"],
)
async def test_what_is_no_http_is_counted_and_stays_out_of_the_log(
    served: Served, caplog: pytest.LogCaptureFixture, request_bytes: bytes
) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request_bytes)
        await writer.drain()
        assert b" 400 " in await reader.readline()
        writer.close()
    assert caplog.text == ""
    _, text, _ = await served.ask("/metrics")
    assert 'permit_http_requests_total{route="none",status="400"} 1.0' in text.decode()
    assert (await served.ask("/healthz"))[0] == 200
