"""What HTTP serves from memory."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import threading
from collections.abc import Sequence, Set

import pytest

from balancer.app import rendering
from balancer.app import view as view_module
from balancer.app.view import DistributionView
from worker_sdk.wire.answers import encode_host_answer
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Terms
from worker_sdk.wire.pointer import shard_of

T0 = 1_800_000_000_000


def document(epoch: int, *hosts: str) -> Document:
    part = 1_000_000_000 // max(1, len(hosts))
    entries = tuple(
        Entry(host, "i", ((number * part, (number + 1) * part),), 0)
        for number, host in enumerate(hosts)
    )
    line = DestinationShares(Terms("orders-db", 100, 60, 30_000_000, 30_000_001), (), entries)
    return Document(0, epoch, T0, T0 + 180_000, (line,))


def body_of(view: DistributionView, host: str, instance: str | None = None) -> bytes | None:
    answer = view.answer(host, instance)
    return None if answer is None else answer.body


def test_a_host_gets_its_documents_newest_first() -> None:
    view = DistributionView(shards=1)
    view.publish(0, [document(2, "a", "b"), document(1, "a")])
    body = body_of(view, "a")
    assert body is not None
    rows = json.loads(body)["destinations"]["orders-db"]
    assert [row["epoch"] for row in rows] == [2, 1]


def test_a_host_without_an_entry_has_no_answer() -> None:
    view = DistributionView(shards=1)
    view.publish(0, [document(1, "a")])
    assert body_of(view, "b") is None
    view.publish(0, [document(2, "b")])
    assert body_of(view, "a") is None
    assert body_of(view, "b") is not None


async def test_a_waiter_wakes_when_something_else_is_published() -> None:
    view = DistributionView(shards=1)
    view.publish(0, [document(1, "a")])
    waiting = asyncio.create_task(view.wait_changed("a", view.version, 30))
    await asyncio.sleep(0)
    view.publish(0, [document(1, "a")])
    assert not waiting.done()
    view.publish(0, [document(2, "a")])
    assert await asyncio.wait_for(waiting, 5) == 2


async def test_what_was_taken_up_later_stays_though_it_was_ready_sooner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_go_on = threading.Event()
    real = rendering.change

    def slow(
        documents: Sequence[Document], before: rendering.Shown
    ) -> tuple[rendering.Shown, Set[str], Set[str]]:
        if documents[0].epoch == 1:
            may_go_on.wait(10)
        return real(documents, before)

    monkeypatch.setattr(view_module, "change", slow)
    view = DistributionView(shards=1)
    first = asyncio.create_task(view.show(0, [document(1, "a")]))
    await asyncio.sleep(0)
    await view.show(0, [document(2, "a")])
    may_go_on.set()
    await first
    assert [known.epoch for known in view.documents_of(0)] == [2]


async def test_a_wait_ends_with_its_time() -> None:
    view = DistributionView(shards=1)
    assert await view.wait_changed("a", 0, 0.01) == 0


ODD = ('x"abc', "abc", "{", "}", ',"abc":{', "\\", "é", "i", '"instances":{')


def rich_document(epoch: int, shard: int, hosts: list[str], shards: int) -> Document:
    """Several destinations, several instances under strange names, hosts here and not there."""
    lines = []
    for name in ("a", "ä", "b/c", "orders-db", 'q"'):
        if shard_of(name, shards) != shard:
            continue
        part = 1_000_000_000 // (len(hosts) * len(ODD))
        entries = [
            Entry(host, instance, ((at * part, at * part + epoch),) * (at % 3 > 0), at)
            for at, (host, instance) in enumerate((host, odd) for host in hosts for odd in ODD)
        ]
        lines.append(
            DestinationShares(Terms(name, 100, 60, epoch, epoch + 1), (), tuple(entries[epoch:]))
        )
    return Document(shard, epoch, T0 + epoch, T0 + 180_000, tuple(lines))


@pytest.mark.parametrize("is_rendered", [True, False])
@pytest.mark.parametrize("instance", [None, "nobody", *ODD])
def test_an_answer_from_memory_is_the_answer_of_the_protocol(
    instance: str | None, *, is_rendered: bool
) -> None:
    shards = 3
    hosts = ["h1", "h2", "größer", 'h"4']
    view = DistributionView(shards)
    shown: list[Document] = []
    for shard in range(shards):
        documents = [
            rich_document(2, shard, hosts[1:], shards),
            rich_document(1, shard, hosts, shards),
        ]
        if not is_rendered:  # since nobody asks about one for long
            long_ago_ms = T0 - rendering.UNASKED_MS
            one = dataclasses.replace(documents[1], epoch=0, published_at_ms=long_ago_ms)
            view.publish(shard, [one])
        view.publish(shard, documents)
        shown.extend(documents)
    for host in hosts:
        assert body_of(view, host, instance) == encode_host_answer(
            host, shards, shown, None, instance
        )


def test_only_what_was_asked_about_is_rendered_again() -> None:
    def rendered(shown: rendering.Shown) -> set[str]:
        return {line.name for line in shown.documents[0].lines if line.ends is not None}

    def host(name: str) -> str:
        return f"of-{name}"

    def next_document(epoch: int) -> Document:
        entries = {name: Entry(host(name), "i", ((0, 9),), 1) for name in ("a", "b", "c")}
        lines = tuple(
            DestinationShares(Terms(name, 100, 60, epoch, epoch + 1), (), (entry,))
            for name, entry in entries.items()
        )
        return Document(0, epoch, T0 + epoch * rendering.UNASKED_MS // 2, 2 * T0, lines)

    documents = [next_document(epoch) for epoch in range(6)]
    shown = [rendering.change(documents[:1], rendering.NOTHING)[0]]
    for number in range(1, 6):
        if number in (1, 2):
            rendering.rows_of(shown[-1].documents, host("a"), None)
        if number == 5:
            rendering.rows_of(shown[-1].documents, host("c"), None)
        newest, before = documents[number], documents[number - 1]
        shown.append(rendering.change([newest, before], shown[-1])[0])
    assert [rendered(known) for known in shown] == [
        {"a", "b", "c"},
        {"a", "b", "c"},  # that nobody asked about two is too short a time to tell
        {"a"},
        {"a"},
        {"a"},  # asked for while both of those before were shown
        {"c"},
    ]


async def test_a_waiter_sleeps_on_when_others_shares_change() -> None:
    view = DistributionView(shards=2)
    view.publish(0, [document(1, "a")])
    waiting = {
        host: asyncio.create_task(view.wait_changed(host, view.version, 30)) for host in "abc"
    }
    await asyncio.sleep(0)
    view.publish(0, [document(2, "b")])
    done, _ = await asyncio.wait(waiting.values(), timeout=0.05)
    assert done == {waiting["a"], waiting["b"]}, "one lost its share, one has a new one"
    waiting["c"].cancel()
    await asyncio.wait({waiting["c"]}, timeout=5)


async def test_many_waiters_wake_a_few_at_a_time_and_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view_module, "WAKE_AT_ONCE", 3)
    view = DistributionView(shards=1)
    woken: list[int] = []

    async def wait(number: int) -> None:
        await view.wait_changed(f"host-{number % 5}", 0, 30)
        woken.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(20)]
    gone = asyncio.create_task(view.wait_changed("host-0", 0, 30))
    await asyncio.sleep(0)
    gone.cancel()
    view.publish(0, [document(1, *(f"host-{number}" for number in range(5)))])
    counts = []
    while len(woken) < len(waiting):
        await asyncio.sleep(0)
        counts.append(len(woken))
    assert max(later - sooner for sooner, later in zip([0, *counts], counts, strict=False)) <= 3
    assert sorted(woken) == list(range(20))
    await asyncio.wait({gone}, timeout=5)


async def test_who_comes_while_others_wake_waits_for_the_next_change() -> None:
    view = DistributionView(shards=1)
    first = asyncio.create_task(view.wait_changed("a", 0, 30))
    await asyncio.sleep(0)
    view.publish(0, [document(1, "a")])
    second = asyncio.create_task(view.wait_changed("a", 1, 30))
    assert await asyncio.wait_for(first, 5) == 1
    assert not second.done()
    view.publish(0, [document(2, "a")])
    assert await asyncio.wait_for(second, 5) == 2


def test_answers_are_right_after_any_changes() -> None:
    rng = random.Random(7)
    shards, hosts = 3, [f"h{number}" for number in range(12)]
    view = DistributionView(shards)
    shown: dict[int, list[Document]] = {}
    for epoch in range(1, 60):
        shard = rng.randrange(shards)
        some = rng.sample(hosts, rng.randrange(1, len(hosts)))
        new = rich_document(1, shard, some, shards)
        new = dataclasses.replace(new, epoch=epoch)
        shown[shard] = [new, *shown.get(shard, [])][: rng.randrange(4)]
        view.publish(shard, shown[shard])
        documents = [document for number in sorted(shown) for document in shown[number]]
        for host in hosts:
            expected = encode_host_answer(host, shards, documents, None)
            assert body_of(view, host) == expected


def test_answers_are_kept_until_something_changes_and_within_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = DistributionView(1)
    view.publish(0, [document(1, "a", "b", "c")])
    first = view.answer("a")
    assert first is not None
    assert view.answer("a") is first
    assert view.answer("a", "i") is not first
    view.publish(0, [document(2, "a", "b", "c")])
    second = view.answer("a")
    assert second is not None
    assert second.tag != first.tag
    monkeypatch.setattr(
        view_module, "KEPT_MAX_BYTES", 2 * (len(second.body) + view_module.KEPT_EXTRA_BYTES)
    )
    view.answer("b")
    view.answer("c")
    assert view.answer("a") is not second
    assert view.answer("c") is view.answer("c")
