"""What HTTP serves from memory."""

from __future__ import annotations

import asyncio
import json

from balancer.app.view import DistributionView
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Terms

T0 = 1_800_000_000_000


def document(epoch: int, *hosts: str) -> Document:
    part = 1_000_000_000 // max(1, len(hosts))
    entries = tuple(
        Entry(host, "i", ((number * part, (number + 1) * part),), 0)
        for number, host in enumerate(hosts)
    )
    line = DestinationShares(Terms("orders-db", 100, 60, 30_000_000, 30_000_001), (), entries)
    return Document(0, epoch, T0, T0 + 180_000, (line,))


def test_a_host_gets_its_documents_newest_first() -> None:
    view = DistributionView(shards=1)
    view.publish(0, [document(2, "a", "b"), document(1, "a")])
    body = view.host_answer("a")
    assert body is not None
    rows = json.loads(body)["destinations"]["orders-db"]
    assert [row["epoch"] for row in rows] == [2, 1]


def test_a_host_without_an_entry_has_no_answer() -> None:
    view = DistributionView(shards=1)
    view.publish(0, [document(1, "a")])
    assert view.host_answer("b") is None
    view.publish(0, [document(2, "b")])
    assert view.host_answer("a") is None
    assert view.host_answer("b") is not None


async def test_a_waiter_wakes_when_something_else_is_published() -> None:
    view = DistributionView(shards=1)
    view.publish(0, [document(1, "a")])
    waiting = asyncio.create_task(view.wait_changed("a", view.version, 30))
    await asyncio.sleep(0)
    view.publish(0, [document(1, "a")])
    assert not waiting.done()
    view.publish(0, [document(2, "a")])
    assert await asyncio.wait_for(waiting, 5) == 2


async def test_a_wait_ends_with_its_time() -> None:
    view = DistributionView(shards=1)
    assert await view.wait_changed("a", 0, 0.01) == 0
