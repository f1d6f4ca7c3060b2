"""A running HTTP face on stores in memory, and fixtures that give it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from yarl import URL

from balancer.adapters.http.distribution import Distribution
from balancer.adapters.http.operations import Operations
from balancer.adapters.http.server import Address, HttpServer
from balancer.adapters.metrics.prometheus import PrometheusMetrics
from balancer.app.readiness import Readiness
from balancer.app.view import DistributionView
from balancer.errors import BalancerError
from tests.support.fakes_repository import FakeRepository
from tests.support.service_doubles import ManualClock
from worker_sdk.wire.distribution import Document

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

    async def documents(self, _: str) -> tuple[int, tuple[Document, ...]]:
        """Return what the view has of the one shard."""
        return 0, self.view.documents_of(0)

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

    async def make(
        *, token: str | None = None, waiters_max: int = 100, follows: bool = True
    ) -> Served:
        view, repository = DistributionView(1, follows=follows), FakeRepository()
        metrics = PrometheusMetrics()
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

        async def documents(_: str) -> tuple[int, tuple[Document, ...]]:
            if "s3" in faults:
                raise faults["s3"]
            return 0, view.documents_of(0)

        async def known_host(host: str) -> bool:
            return await connected().known_host(host)

        server = HttpServer(
            Distribution(view, known_host, metrics, waiters_max=waiters_max, round_seconds=60),
            Operations(
                repository=connected,
                documents=documents,
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


async def until_waiting(served: Served, count: int) -> None:
    async with asyncio.timeout(10):
        while True:
            _, text, _ = await served.ask("/metrics")
            if f"permit_http_waiting {float(count)}" in text.decode():
                return
            await asyncio.sleep(0.01)
