"""A client on a real Kafka and a real S3: hello, share, acknowledgement, goodbye."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.errors import TopicAlreadyExistsError

from balancer.embedded import KafkaServer, S3Part
from tests.integration.test_sdk_processes import batches
from tests.support.real_clients import await_condition, create_topic, s3_client
from worker_sdk import Mode, PermitClient
from worker_sdk.wire.distribution import (
    DestinationShares,
    Document,
    Entry,
    Pacing,
    Terms,
    encode_document,
)
from worker_sdk.wire.pointer import (
    LAYOUT_KEY,
    PointedDocument,
    Pointer,
    document_key,
    encode_layout,
    encode_pointer,
    pointer_key,
    sha256_hex,
)
from worker_sdk.wire.shares import POINTS
from worker_sdk.wire.usage import USAGE_TOPIC, MemberState

WINDOW_SECONDS = 5
CAPACITY = 1000


def document(epoch: int, host: str, instance: str, *, windows: int) -> Document:
    now_ms = time.time_ns() // 1_000_000
    window = now_ms // (WINDOW_SECONDS * 1000)
    terms = Terms(
        "orders-db",
        CAPACITY,
        WINDOW_SECONDS,
        window,
        window + windows,
        guard_ms=50,
        pacing=Pacing.WINDOW,
    )
    entry = Entry(host, instance, ((0, POINTS // 4),), POINTS // 10)
    valid_until_ms = (window + windows + 3) * WINDOW_SECONDS * 1000
    return Document(0, epoch, now_ms, valid_until_ms, (DestinationShares(terms, (), (entry,)),))


def publish(client: Any, bucket: str, prefix: str, published: Document) -> None:
    body = encode_document(published)
    key = document_key(published.shard, published.epoch)
    pointed = PointedDocument(
        published.epoch,
        key,
        sha256_hex(body),
        len(body),
        published.published_at_ms,
        published.valid_until_ms,
    )
    for name, content in (
        (LAYOUT_KEY, encode_layout(1)),
        (key, body),
        (pointer_key(0), encode_pointer(Pointer((pointed,)))),
    ):
        client.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=content)


@pytest.mark.usefixtures("aws_environment")
def test_a_worker_says_hello_spends_its_share_acknowledges_and_says_goodbye(
    kafka: KafkaServer, s3: S3Part, s3_prefix: str, fresh_name: Callable[[str], str]
) -> None:
    with contextlib.suppress(TopicAlreadyExistsError):
        asyncio.run(create_topic(kafka.bootstrap_servers, USAGE_TOPIC))
    host = fresh_name("host")
    store = s3_client(s3)
    client = PermitClient(
        destinations=["orders-db"],
        kafka=kafka.bootstrap_servers,
        distribution=f"s3://{s3.bucket}/{s3_prefix}",
        host=host,
        flush_seconds=WINDOW_SECONDS,
        s3_endpoint_url=s3.endpoint_url,
    )
    client.start()
    orders = client.destination("orders-db")
    assert orders.state.mode is Mode.STARTING
    assert not orders.try_acquire()
    await_condition(lambda: client.state.flushes_delivered > 0, "the hello is delivered")

    publish(store, s3.bucket, s3_prefix, document(1, host, client.state.instance, windows=100))
    orders.acquire(timeout=20)
    state = orders.state
    assert state.mode is Mode.FRESH
    assert state.share_percent == 25.0
    assert CAPACITY // 4 <= state.granted_permits <= CAPACITY // 4 + 1
    taken = 1 + sum(orders.try_acquire() for _ in range(CAPACITY))
    assert taken >= CAPACITY // 4

    sent = client.state.flushes_delivered
    await_condition(lambda: client.state.flushes_delivered > sent, "a report is delivered")
    assert client.close(timeout=10) == 0
    found = batches(kafka, host)
    assert found[0].state is MemberState.STARTING
    assert found[-1].state is MemberState.LEAVING
    assert found[-1].epochs == {0: 1}
    assert sum(entry.used for batch in found for entry in batch.tuples) == orders.state.used
    assert client.state.failures == {}


@pytest.mark.usefixtures("aws_environment")
def test_when_the_store_stops_a_worker_goes_on_and_then_lives_on_its_safe_points(
    s3: S3Part, s3_prefix: str, fresh_name: Callable[[str], str]
) -> None:
    from worker_sdk.transports.memory import MemorySink  # noqa: PLC0415 - Kafka is not the point

    host = fresh_name("host")
    client = PermitClient(
        destinations=["orders-db"],
        kafka=MemorySink,
        distribution=f"s3://{s3.bucket}/{s3_prefix}",
        host=host,
        flush_seconds=WINDOW_SECONDS,
        s3_endpoint_url=s3.endpoint_url,
    )
    with client:
        orders = client.destination("orders-db")
        store = s3_client(s3)
        publish(store, s3.bucket, s3_prefix, document(1, host, client.state.instance, windows=1))
        await_condition(lambda: orders.state.epoch == 1, "the share is read")
        s3.pause()
        try:
            await_condition(lambda: orders.state.mode is Mode.STALE, "no document covers")
            assert orders.state.granted_permits == CAPACITY // 10
            orders.acquire(timeout=20)
            await_condition(
                lambda: any(key.startswith("read:") for key in client.state.failures),
                "the failure is counted",
                seconds=40,
            )
            await_condition(lambda: orders.state.mode is Mode.EXPIRED, "its validity ends")
            assert not orders.try_acquire()
        finally:
            s3.resume()
        publish(store, s3.bucket, s3_prefix, document(2, host, client.state.instance, windows=9))
        await_condition(lambda: orders.state.epoch == 2, "the next one is read", seconds=40)
