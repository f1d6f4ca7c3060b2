"""A confluent-kafka consumer that takes a permit a record, on a real broker."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from balancer.embedded import KafkaServer
from tests.support.real_clients import await_condition, create_topic, produce
from worker_sdk import ClientClosedError, ConfigurationError, PermitClient
from worker_sdk.adapters.confluent_kafka import permitted
from worker_sdk.testing import ManualClock
from worker_sdk.testing.plugin import StartPermitClient

WAIT_SECONDS = 30.0


@pytest.fixture
def topic(kafka: KafkaServer, fresh_name: Callable[[str], str]) -> str:
    async def make() -> str:
        name = fresh_name("orders")
        await create_topic(kafka.bootstrap_servers, name)
        await produce(kafka.bootstrap_servers, name, [b"0", b"1", b"2", b"3"])
        return name

    return asyncio.run(make())


@pytest.fixture
def client(permit_client: StartPermitClient) -> PermitClient:
    return permit_client({"db": 2})


@contextmanager
def consuming(kafka: KafkaServer, topic: str, **more: object) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
            "session.timeout.ms": 1000,
            "heartbeat.interval.ms": 200,
            "max.poll.interval.ms": 1000,
            **more,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def committed(kafka: KafkaServer, topic: str) -> int:
    """Return the offset that the group has committed."""
    with consuming(kafka, topic) as consumer:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_SECONDS)
        return int(found.offset)


class Delivering(threading.Thread):
    """A worker's loop on a thread of its own."""

    def __init__(self, records: Iterator[Message], until: int) -> None:
        super().__init__(daemon=True)
        self.records = records
        self.until = until
        self.got: list[bytes | None] = []
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            for record in self.records:
                self.got.append(record.value())
                if len(self.got) == self.until:
                    return
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.join(WAIT_SECONDS)
        assert not self.is_alive()


def test_records_come_as_permits_do_and_each_once(
    kafka: KafkaServer, topic: str, client: PermitClient, permit_clock: ManualClock
) -> None:
    db = client.destination("db")
    with (
        consuming(kafka, topic) as consumer,
        closing(permitted(consumer, db, poll_seconds=0.1)) as records,
    ):
        delivering = Delivering(records, until=4)
        await_condition(lambda: db.state.waiting == 1, "the third waits", WAIT_SECONDS)
        # Longer than max.poll.interval.ms: without polls the group would be rid of it.
        delivering.join(2.2)
        assert delivering.got == [b"0", b"1"]
        permit_clock.advance(60)
        delivering.end()
        assert (delivering.got, delivering.error) == ([b"0", b"1", b"2", b"3"], None)
    assert db.state.used == 4
    # Committed by itself, but for the last one, after which no other was asked for.
    assert committed(kafka, topic) == 3


def test_a_record_that_waits_is_not_committed_when_the_client_ends(
    kafka: KafkaServer, topic: str, client: PermitClient
) -> None:
    db = client.destination("db")
    assert db.try_acquire(1)
    with consuming(kafka, topic) as consumer:
        delivering = Delivering(permitted(consumer, db, poll_seconds=0.05), until=4)
        await_condition(lambda: db.state.waiting == 1, "the second waits", WAIT_SECONDS)
        client.close()
        delivering.end()
        assert delivering.got == [b"0"]
        assert isinstance(delivering.error, ClientClosedError)
        again = consumer.poll(WAIT_SECONDS)
        assert again is not None
        assert again.value() == b"1"  # put back and to be read again, by whoever goes on
    assert committed(kafka, topic) == 1


def test_a_record_that_was_given_away_meanwhile_is_left_and_its_permit_too(
    kafka: KafkaServer, topic: str, client: PermitClient, permit_clock: ManualClock
) -> None:
    db = client.destination("db")
    assert db.try_acquire(2)
    with (
        consuming(kafka, topic) as consumer,
        closing(permitted(consumer, db, poll_seconds=0.1)) as records,
    ):
        delivering = Delivering(records, until=1)
        await_condition(lambda: db.state.waiting == 1, "the first waits", WAIT_SECONDS)
        consumer.unassign()  # as a rebalance does
        consumer.assign([TopicPartition(topic, 0, 3)])
        permit_clock.advance(60)
        delivering.end()
        assert delivering.got == [b"3"]
        assert (db.state.used, db.state.refunded, db.state.in_delivery) == (4, 1, 1)
    assert db.state.in_delivery == 0


def test_a_consumer_that_would_commit_what_waits_is_refused(
    kafka: KafkaServer, topic: str, client: PermitClient
) -> None:
    with consuming(kafka, topic, **{"enable.auto.offset.store": True}) as consumer:
        records = permitted(consumer, client.destination("db"))
        with pytest.raises(ConfigurationError, match=r'"enable.auto.offset.store": False'):
            next(records)


def test_a_topic_that_is_not_there_is_warned_of_and_read_once_it_is(
    kafka: KafkaServer,
    fresh_name: Callable[[str], str],
    client: PermitClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = fresh_name("later")
    often = {"topic.metadata.refresh.interval.ms": 200, "allow.auto.create.topics": False}
    with (
        caplog.at_level(logging.WARNING, "worker_sdk"),
        consuming(kafka, topic, **often) as consumer,
        closing(permitted(consumer, client.destination("db"), poll_seconds=0.1)) as records,
    ):
        delivering = Delivering(records, until=1)
        await_condition(lambda: bool(caplog.records), "it is warned of", WAIT_SECONDS)
        asyncio.run(create_topic(kafka.bootstrap_servers, topic))
        asyncio.run(produce(kafka.bootstrap_servers, topic, [b"0"]))
        delivering.end()
    assert (delivering.got, delivering.error) == ([b"0"], None)
    told = caplog.records[0].getMessage()
    assert topic in told
    assert "(UNKNOWN_TOPIC_OR_PART): create the topic, or subscribe to another; polling" in told


def test_an_error_that_is_fatal_ends_the_records(client: PermitClient) -> None:
    class Fenced:
        """A consumer that was replaced by another of its group.instance.id."""

        def store_offsets(self, **_: object) -> None: ...

        def poll(self, _: float) -> object:
            return self

        def error(self) -> KafkaError:
            return KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced", fatal=True)

    records = permitted(cast("Consumer", Fenced()), client.destination("db"))
    with pytest.raises(KafkaException, match="FENCED_INSTANCE_ID"):
        next(records)


@pytest.mark.long
def test_room_for_a_delivery_is_waited_for_like_a_permit(
    kafka: KafkaServer, topic: str, client: PermitClient
) -> None:
    db = client.destination("db")
    db.limit_concurrency(1)
    with consuming(kafka, topic) as consumer:
        with db.permit():
            delivering = Delivering(permitted(consumer, db, poll_seconds=0.1), until=1)
            await_condition(lambda: bool(consumer.assignment()), "assigned", WAIT_SECONDS)
            delivering.join(2.2)  # longer than max.poll.interval.ms
            assert delivering.got == []
        delivering.end()
        assert (delivering.got, delivering.error) == ([b"0"], None)
