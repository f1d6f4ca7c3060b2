"""An aiokafka consumer that takes a permit a record, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from balancer.embedded import KafkaServer
from tests.support.real_clients import create_topic, produce
from tests.support.waiting import until
from worker_sdk import ClientClosedError, PermitClient
from worker_sdk.adapters.aiokafka import permitted
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


@asynccontextmanager
async def consuming(kafka: KafkaServer, *topics: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topics[0],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=2000,
        heartbeat_interval_ms=300,
        max_poll_interval_ms=1000,
    )
    async with asyncio.timeout(WAIT_SECONDS):
        await consumer.start()
    try:
        yield consumer
    finally:
        await asyncio.wait_for(consumer.stop(), WAIT_SECONDS)


async def test_records_come_as_permits_do_and_each_once(
    kafka: KafkaServer, topic: str, client: PermitClient, permit_clock: ManualClock
) -> None:
    got: list[bytes] = []
    partition = TopicPartition(topic, 0)

    async def deliver(consumer: AIOKafkaConsumer) -> None:
        async with aclosing(
            permitted(consumer, client.destination("db"), patience_seconds=0.05, poll_seconds=0.1)
        ) as records:
            async for record in records:
                got.append(record.value)
                await consumer.commit()
                if len(got) == 4:
                    return

    async with consuming(kafka, topic) as consumer:
        delivering = asyncio.create_task(deliver(consumer))
        await until(lambda: partition in consumer.paused(), seconds=WAIT_SECONDS)
        # Longer than max_poll_interval_ms: without polls the group would be rid of it.
        await asyncio.sleep(2)
        assert got == [b"0", b"1"]
        assert consumer.assignment() == {partition}
        assert await consumer.position(partition) == 2  # what waits is not counted as delivered
        permit_clock.advance(60)
        await asyncio.wait_for(delivering, WAIT_SECONDS)
        assert got == [b"0", b"1", b"2", b"3"]
        assert consumer.paused() == set()
        assert await consumer.committed(partition) == 4
    assert client.destination("db").state.used == 4


async def test_a_record_that_waits_is_not_lost_when_the_client_ends(
    kafka: KafkaServer, topic: str, client: PermitClient
) -> None:
    db = client.destination("db")
    assert db.try_acquire(2)
    async with consuming(kafka, topic) as consumer:
        records = permitted(consumer, db, patience_seconds=WAIT_SECONDS)
        reading = asyncio.create_task(anext(records))
        await until(lambda: db.state.waiting == 1, seconds=WAIT_SECONDS)
        await asyncio.to_thread(client.close)
        with pytest.raises(ClientClosedError):
            await asyncio.wait_for(reading, WAIT_SECONDS)
        assert await consumer.position(TopicPartition(topic, 0)) == 0


async def test_a_cancelled_wait_takes_no_permit_and_keeps_the_record(
    kafka: KafkaServer, topic: str, client: PermitClient, permit_clock: ManualClock
) -> None:
    db = client.destination("db")
    assert db.try_acquire(2)
    partition = TopicPartition(topic, 0)
    async with consuming(kafka, topic) as consumer:
        records = permitted(consumer, db, patience_seconds=0.05, poll_seconds=0.1)
        reading = asyncio.create_task(anext(records))
        await until(lambda: partition in consumer.paused(), seconds=WAIT_SECONDS)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert consumer.paused() == set()
        assert await consumer.position(partition) == 0
        permit_clock.advance(60)
        assert db.try_acquire(2)


async def test_partitions_that_the_program_paused_stay_paused(
    kafka: KafkaServer,
    topic: str,
    fresh_name: Callable[[str], str],
    client: PermitClient,
    permit_clock: ManualClock,
) -> None:
    db = client.destination("db")
    assert db.try_acquire(2)
    other = fresh_name("other")
    await create_topic(kafka.bootstrap_servers, other)
    ours, programs = TopicPartition(topic, 0), TopicPartition(other, 0)
    async with (
        consuming(kafka, topic, other) as consumer,
        aclosing(permitted(consumer, db, patience_seconds=0.05, poll_seconds=0.1)) as records,
    ):
        await until(lambda: programs in consumer.assignment(), seconds=WAIT_SECONDS)
        consumer.pause(programs)
        reading = asyncio.create_task(anext(records))
        await until(lambda: consumer.paused() == {ours, programs}, seconds=WAIT_SECONDS)
        permit_clock.advance(60)
        record = await asyncio.wait_for(reading, WAIT_SECONDS)
        assert record.value == b"0"
        assert consumer.paused() == {programs}


async def test_a_record_that_is_no_longer_the_consumers_turn_is_left_and_its_permit_too(
    kafka: KafkaServer, topic: str, client: PermitClient, permit_clock: ManualClock
) -> None:
    db = client.destination("db")
    assert db.try_acquire(2)
    partition = TopicPartition(topic, 0)
    async with (
        consuming(kafka, topic) as consumer,
        aclosing(permitted(consumer, db, patience_seconds=0.05, poll_seconds=0.1)) as records,
    ):
        reading = asyncio.create_task(anext(records))
        await until(lambda: partition in consumer.paused(), seconds=WAIT_SECONDS)
        consumer.seek(partition, 3)  # as a rebalance does: the position is another
        permit_clock.advance(60)
        record = await asyncio.wait_for(reading, WAIT_SECONDS)
        assert record.value == b"3"
        assert (db.state.used, db.state.refunded) == (4, 1)
        assert db.state.in_delivery == 1
        assert db.try_acquire()  # the first permit was given back
    assert db.state.in_delivery == 0
