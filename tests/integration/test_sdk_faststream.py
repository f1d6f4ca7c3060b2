"""A FastStream broker whose handlers take a permit a message, on a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import TopicPartition
from faststream import AckPolicy
from faststream.kafka import KafkaBroker

from balancer.embedded import KafkaServer
from tests.support.real_clients import create_topic, produce
from tests.support.waiting import until
from worker_sdk import PermitClient
from worker_sdk.adapters.faststream import permit_middleware
from worker_sdk.testing import ManualClock
from worker_sdk.testing.plugin import StartPermitClient

WAIT_SECONDS = 30.0


@pytest.fixture
async def topic(kafka: KafkaServer, fresh_name: Callable[[str], str]) -> str:
    name = fresh_name("orders")
    await create_topic(kafka.bootstrap_servers, name)
    await produce(kafka.bootstrap_servers, name, [b"0", b"1", b"2", b"3"])
    return name


@pytest.fixture
def client(permit_client: StartPermitClient) -> PermitClient:
    return permit_client({"db": 2})


class Worker:
    """A broker with one handler that notes what it gets."""

    def __init__(
        self, kafka: KafkaServer, topic: str, client: PermitClient, max_workers: int = 1
    ) -> None:
        self.got: list[int] = []
        self.db = client.destination("db")
        self.broker = KafkaBroker(
            kafka.bootstrap_servers,
            middlewares=[permit_middleware(self.db, poll_seconds=0.1)],
            logger=None,
            graceful_timeout=1,
        )
        self._subscriber = self.broker.subscriber(
            topic,
            group_id=topic,
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.NACK_ON_ERROR if max_workers == 1 else AckPolicy.ACK_FIRST,
            max_workers=max_workers,
            session_timeout_ms=2000,
            heartbeat_interval_ms=300,
            max_poll_interval_ms=1000,
        )

        @self._subscriber
        async def deliver(body: int) -> None:
            self.got.append(body)

        self.partition = TopicPartition(topic, 0)

    def is_paused(self) -> bool:
        consumer = self._subscriber.consumer
        return consumer is not None and self.partition in consumer.paused()

    def is_member(self) -> bool:
        consumer = self._subscriber.consumer
        return consumer is not None and self.partition in consumer.assignment()

    def seek(self, offset: int) -> None:
        consumer = self._subscriber.consumer
        assert consumer is not None
        consumer.seek(self.partition, offset)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.timeout(WAIT_SECONDS):
            await self.broker.start()
        try:
            yield
        finally:
            await asyncio.wait_for(self.broker.stop(), WAIT_SECONDS)


@pytest.mark.parametrize("max_workers", [1, pytest.param(3, marks=pytest.mark.long)])
async def test_messages_are_handled_as_permits_come_and_the_group_keeps_the_consumer(
    kafka: KafkaServer,
    topic: str,
    client: PermitClient,
    permit_clock: ManualClock,
    max_workers: int,
) -> None:
    worker = Worker(kafka, topic, client, max_workers)
    async with worker.running():
        await until(worker.is_paused, seconds=WAIT_SECONDS)
        # Longer than max_poll_interval_ms: without polls the group would be rid of it.
        await asyncio.sleep(2.2)
        assert sorted(worker.got) == [0, 1]
        assert worker.is_member()
        permit_clock.advance(60)
        await until(lambda: len(worker.got) == 4, seconds=WAIT_SECONDS)
        assert sorted(worker.got) == [0, 1, 2, 3]
        await until(lambda: not worker.is_paused(), seconds=WAIT_SECONDS)
    assert (worker.db.state.used, worker.db.state.in_delivery) == (4, 0)


@pytest.mark.long
async def test_a_message_that_still_waits_at_the_end_comes_again(
    kafka: KafkaServer, topic: str, client: PermitClient, permit_clock: ManualClock
) -> None:
    first = Worker(kafka, topic, client)
    async with first.running():
        await until(first.is_paused, seconds=WAIT_SECONDS)
    assert first.got == [0, 1]
    assert first.db.state.waiting == 0
    permit_clock.advance(60)
    second = Worker(kafka, topic, client)
    async with second.running():
        await until(lambda: len(second.got) == 2, seconds=WAIT_SECONDS)
    assert second.got == [2, 3]


@pytest.mark.long
async def test_a_message_that_was_given_away_meanwhile_is_skipped_and_its_permit_too(
    kafka: KafkaServer, topic: str, client: PermitClient, permit_clock: ManualClock
) -> None:
    worker = Worker(kafka, topic, client)
    assert worker.db.try_acquire(2)
    async with worker.running():
        await until(worker.is_paused, seconds=WAIT_SECONDS)
        worker.seek(0)  # as a rebalance does that gives it away and back
        permit_clock.advance(60)
        await until(lambda: len(worker.got) == 2, seconds=WAIT_SECONDS)
        assert worker.got == [0, 1]
        assert worker.db.state.refunded == 1
