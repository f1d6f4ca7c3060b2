"""The two topics: created where that is allowed, and looked at for ``doctor``.

Decides what a topic must be like. Knows nothing of what is in it, but for one record that the
check writes and reads.
"""

from __future__ import annotations

from typing import Final

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from balancer.adapters.kafka.calls import Consumer, bounded
from balancer.adapters.kafka.config import KafkaConfig

WAIT_SECONDS: Final = 20
LOG_APPEND_TIME: Final = 1
TOPIC_EXISTS: Final = 36
MESSAGE_MAX_BYTES: Final = 1_000_000


async def ensure_topics(config: KafkaConfig, *, partitions: int, retention_ms: int) -> list[str]:
    """Create the topics that are missing; return what is wrong with them, in sentences.

    Raises:
        UnavailableError: where no broker answers.
    """
    settings = {
        "retention.ms": str(retention_ms),
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MESSAGE_MAX_BYTES),
    }
    admin = AIOKafkaAdminClient(**config.client_options())
    async with bounded("create topics", WAIT_SECONDS):
        try:
            await admin.start()
            existing = set(await admin.list_topics())
            missing = [
                NewTopic(name, partitions, 1, topic_configs=settings)
                for name in (config.usage_topic, config.rejected_topic)
                if name not in existing
            ]
            if not missing:
                return []
            answer = await admin.create_topics(missing)
        finally:
            await admin.close()
    return [
        f"topic {error[0]} is missing and could not be created (error {error[1]}); create it with "
        f"{partitions} partitions and message.timestamp.type=LogAppendTime"
        for error in answer.topic_errors
        if error[1] not in (0, TOPIC_EXISTS)
    ]


async def has_log_append_time(config: KafkaConfig) -> bool:
    """Write one record to the rejected topic and read it: is its time the broker's own?

    Raises:
        UnavailableError: where no broker answers.
    """
    producer = AIOKafkaProducer(**config.client_options(), enable_idempotence=False, acks="all")
    consumer = Consumer(**config.client_options(), enable_auto_commit=False, group_id=None)
    async with bounded("write and read a record", WAIT_SECONDS):
        try:
            await producer.start()
            sent = await producer.send_and_wait(
                config.rejected_topic, b"", headers=[("reason", b"doctor")]
            )
            await consumer.start()
            place = TopicPartition(config.rejected_topic, sent.partition)
            consumer.assign([place])
            consumer.seek(place, sent.offset)
            record = await consumer.getone(place)
        finally:
            await producer.stop()
            await consumer.stop()
    return bool(record.timestamp_type == LOG_APPEND_TIME)
