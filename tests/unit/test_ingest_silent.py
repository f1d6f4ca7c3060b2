"""For how long a partition has said nothing, though the log's client raises nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from aiokafka import TopicPartition
from aiokafka.abc import ConsumerRebalanceListener

from balancer.adapters.kafka import usage_log
from balancer.adapters.kafka.config import KafkaConfig
from balancer.adapters.kafka.usage_log import KafkaUsageLog

PLACES = [TopicPartition("permit-usage", number) for number in range(2)]


class Consumer:
    """Has read everything; each partition tells when it last answered."""

    answered_ms: dict[TopicPartition, int]

    def __init__(self, **_: object) -> None:
        type(self).answered_ms = dict.fromkeys(PLACES, 1)

    def subscribe(self, topics: Iterable[str], listener: ConsumerRebalanceListener) -> None:
        listener.on_partitions_assigned(PLACES)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def assignment(self) -> list[TopicPartition]:
        return PLACES

    def highwater(self, _: TopicPartition) -> int:
        return 5

    async def position(self, _: TopicPartition) -> int:
        return 5

    def last_poll_timestamp(self, place: TopicPartition) -> int:
        return self.answered_ms[place]


class Producer:
    def __init__(self, **_: object) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


async def test_a_partition_is_silent_from_its_last_answer_whatever_the_others_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage_log, "Consumer", Consumer)
    monkeypatch.setattr(usage_log, "AIOKafkaProducer", Producer)
    log = KafkaUsageLog(KafkaConfig("nowhere:1"))
    await log.start()
    assert (await log.position()).silent_ms == 0
    async with asyncio.timeout(10):
        while (await log.position()).silent_ms < 50:
            Consumer.answered_ms[PLACES[0]] += 1
            await asyncio.sleep(0.01)
    assert (await log.position()).lag_records == 0
    for place in PLACES:
        Consumer.answered_ms[place] -= 1_000  # a wall clock that was set back makes no difference
    assert (await log.position()).silent_ms < 50
    await log.stop()
