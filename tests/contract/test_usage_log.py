"""What a usage log promises, for the one in memory and the one on Kafka alike."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest

from balancer.adapters.kafka import usage_log
from balancer.adapters.kafka.config import KafkaConfig
from balancer.adapters.kafka.topics import ensure_topics
from balancer.adapters.kafka.usage_log import KafkaUsageLog
from balancer.embedded import KafkaServer
from balancer.errors import UnavailableError
from balancer.ports import UsageLog, UsageRecord
from tests.support.fakes_usage_log import FakeTopic, FakeUsageLog
from worker_sdk.errors import RejectReason

READ_SECONDS = 30
JOINING_SECONDS = 0.2


class Topic(Protocol):
    async def append(
        self, body: bytes | None, *, key: bytes = b"h", headers: dict[str, bytes] | None = None
    ) -> None: ...

    def reader(self) -> UsageLog: ...


@dataclass
class InMemory:
    topic: FakeTopic

    async def append(
        self, body: bytes | None, *, key: bytes = b"h", headers: dict[str, bytes] | None = None
    ) -> None:
        self.topic.append(body, key=key, headers=headers)

    def reader(self) -> UsageLog:
        return FakeUsageLog(self.topic)


@dataclass
class OnKafka:
    config: KafkaConfig
    producer: AIOKafkaProducer

    async def append(
        self, body: bytes | None, *, key: bytes = b"h", headers: dict[str, bytes] | None = None
    ) -> None:
        await self.producer.send_and_wait(
            self.config.usage_topic, body, key=key, headers=list((headers or {}).items())
        )

    def reader(self) -> UsageLog:
        return KafkaUsageLog(self.config)


async def read(log: UsageLog, count: int) -> list[UsageRecord]:
    found: list[UsageRecord] = []
    deadline = time.monotonic() + READ_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += await log.read(max_records=count - len(found), wait_ms=100)
    return found


def bodies(records: Sequence[UsageRecord]) -> list[bytes | None]:
    return [record.body for record in records]


class UsageLogContract:
    """Each test is asked of every log; a subclass says by its fixture which."""

    async def test_records_come_in_order_with_key_headers_and_empty_bodies(
        self, topic: Topic
    ) -> None:
        log = topic.reader()
        await log.start()
        await topic.append(b"one", key=b"k", headers={"content-encoding": b"zstd"})
        await topic.append(None)
        await topic.append(b"")
        first, second, third = await read(log, 3)
        assert (first.body, first.key, first.headers) == (
            b"one",
            b"k",
            {"content-encoding": b"zstd"},
        )
        assert second.body is None
        assert not third.body
        assert [first.offset, second.offset, third.offset] == [0, 1, 2]
        await log.stop()

    async def test_what_was_not_committed_is_read_again_by_the_next_reader(
        self, topic: Topic
    ) -> None:
        for body in (b"1", b"2", b"3"):
            await topic.append(body)
        log = topic.reader()
        await log.start()
        records = await read(log, 3)
        await log.commit(records[:1])
        await log.stop()

        again = topic.reader()
        await again.start()
        assert bodies(await read(again, 2)) == [b"2", b"3"]
        await again.stop()

    async def test_what_lay_there_at_the_start_is_backlog_and_what_comes_later_is_not(
        self, topic: Topic
    ) -> None:
        await topic.append(b"old")
        log = topic.reader()
        await log.start()
        await topic.append(b"new")
        assert [(record.body, record.backlog) for record in await read(log, 2)] == [
            (b"old", True),
            (b"new", False),
        ]
        await log.stop()

    async def test_no_more_records_are_given_than_asked_for(self, topic: Topic) -> None:
        for number in range(5):
            await topic.append(str(number).encode())
        log = topic.reader()
        await log.start()
        assert len(await log.read(max_records=2, wait_ms=5000)) <= 2
        await log.stop()

    async def test_the_lag_falls_to_nothing_once_all_is_read(self, topic: Topic) -> None:
        for _ in range(3):
            await topic.append(b"x")
        log = topic.reader()
        await log.start()
        assert (await log.position()).lag_records > 0
        await read(log, 3)
        position = await log.position()
        assert (position.partitions, position.lag_records) == ((0,), 0)
        await log.stop()

    async def test_committing_nothing_or_what_is_not_assigned_is_no_fault(
        self, topic: Topic
    ) -> None:
        log = topic.reader()
        await log.start()
        await log.commit([])
        await log.commit([UsageRecord(77, 5, b"", {}, None)])
        await log.stop()

    async def test_an_idle_log_gives_nothing(self, topic: Topic) -> None:
        log = topic.reader()
        await log.start()
        assert await log.read(max_records=10, wait_ms=50) == []
        assert (await log.position()).silent_ms < 1_000
        await log.stop()

    async def test_a_log_that_is_not_started_or_was_stopped_says_so(self, topic: Topic) -> None:
        log = topic.reader()
        with pytest.raises(UnavailableError):
            await log.read(max_records=1, wait_ms=1)
        await log.start()
        await log.stop()
        await log.stop()
        with pytest.raises(UnavailableError):
            await log.reject(UsageRecord(0, 0, b"", {}, None), RejectReason.EMPTY, "")

    async def test_many_refusals_at_once_are_kept(self, topic: Topic) -> None:
        log = topic.reader()
        await log.start()
        refused = [UsageRecord(0, offset, b"junk", {}, None, b"h") for offset in range(20)]
        async with asyncio.timeout(READ_SECONDS):
            await asyncio.gather(
                *(log.reject(record, RejectReason.BAD_JSON, "not JSON") for record in refused)
            )
        await log.stop()


class TestFakeUsageLog(UsageLogContract):
    @pytest.fixture
    async def topic(self) -> Topic:
        return InMemory(FakeTopic())


class TestKafkaUsageLog(UsageLogContract):
    @pytest.fixture
    async def topic(
        self, kafka: KafkaServer, fresh_name: Callable[[str], str]
    ) -> AsyncIterator[Topic]:
        config = KafkaConfig(
            kafka.bootstrap_servers,
            group_id=fresh_name("group"),
            usage_topic=fresh_name("usage"),
            rejected_topic=fresh_name("rejected"),
            session_timeout_ms=6_000,
        )
        assert await ensure_topics(config, partitions=1, retention_ms=3_600_000) == []
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
        await producer.start()
        yield OnKafka(config, producer)
        await producer.stop()

    async def test_a_log_whose_fetches_fail_is_stopped_as_any_other(
        self, topic: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log, failed, send = topic.reader(), asyncio.Event(), AIOKafkaClient.send

        async def fail_to_fetch(
            client: AIOKafkaClient, node: int, request: object, **options: object
        ) -> object:
            if isinstance(request, FetchRequest):
                failed.set()
                raise RequestTimedOutError
            return await send(client, node, request, **options)

        await log.start()
        with monkeypatch.context() as faults:
            faults.setattr(AIOKafkaClient, "send", fail_to_fetch)
            async with asyncio.timeout(READ_SECONDS):
                await failed.wait()
            await log.stop()
        with pytest.raises(UnavailableError, match="not started"):
            await log.read(max_records=1, wait_ms=1)

    async def test_a_log_cut_short_while_it_joins_or_is_left_leaves_nothing_open(
        self, topic: OnKafka
    ) -> None:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context["message"]))
        config = replace(topic.config, session_timeout_ms=1_000)  # a join takes half of it
        first, second = KafkaUsageLog(config), KafkaUsageLog(config)
        await first.start()
        joining = asyncio.create_task(second.start())
        await asyncio.wait({joining}, timeout=JOINING_SECONDS)  # the first has to hear of it
        leaving = asyncio.create_task(first.stop())
        await asyncio.wait({leaving}, timeout=0)
        joining.cancel()
        leaving.cancel()
        await asyncio.wait({joining, leaving}, timeout=READ_SECONDS)
        assert (joining.cancelled(), leaving.cancelled()) == (True, True)
        del first, second, joining, leaving
        gc.collect()
        assert [message for message in told if "Unclosed" in message] == []

    async def test_a_log_is_stopped_in_time_while_a_rejected_record_waits_for_its_answer(
        self, topic: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context["message"]))
        monkeypatch.setattr(usage_log, "REJECT_SECONDS", 0.2)
        monkeypatch.setattr(usage_log, "STOP_SECONDS", 0.2)
        log, send = topic.reader(), AIOKafkaClient.send

        async def never_answer(
            client: AIOKafkaClient, node: int, request: object, **options: object
        ) -> object:
            if isinstance(request, ProduceRequest):
                await asyncio.Event().wait()
            return await send(client, node, request, **options)

        await log.start()
        monkeypatch.setattr(AIOKafkaClient, "send", never_answer)
        with pytest.raises(UnavailableError):
            await log.reject(
                UsageRecord(0, 0, b"x", {}, None), RejectReason.INCONSISTENT, "it does not add up"
            )
        async with asyncio.timeout(READ_SECONDS):
            await log.stop()
        del log
        gc.collect()
        assert told == []

    async def test_what_comes_to_a_topic_that_was_made_again_is_no_backlog(
        self, topic: OnKafka, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(usage_log, "METADATA_MS", 500)
        monkeypatch.setattr(usage_log, "BEYOND_SECONDS", 0.5)
        name = topic.config.usage_topic
        for _ in range(20):
            await topic.append(b"old")
        log = topic.reader()
        await log.start()
        records = await read(log, 20)
        assert all(record.backlog for record in records)
        await log.commit(records)
        admin = AIOKafkaAdminClient(bootstrap_servers=topic.config.bootstrap_servers)
        await admin.start()
        try:
            await admin.delete_topics([name])
            await admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])
        finally:
            await admin.close()
        fresh: list[UsageRecord] = []
        async with asyncio.timeout(READ_SECONDS):
            while not fresh:  # by its offset each of them would be
                await topic.append(b"new")
                found = await log.read(max_records=100, wait_ms=500)
                await log.position()
                fresh = [record for record in found if not record.backlog]
        assert fresh[0].offset < len(records)
        await log.stop()
