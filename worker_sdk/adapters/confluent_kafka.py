"""Records of a confluent-kafka consumer, each with a permit; it stays a live group member.

Decides what happens while no permit is to be had: all partitions are paused and polling goes on
without bringing anything, so that the group does not take the consumer for dead. A record's offset
is stored after its delivery, so that one that waits is never committed as delivered. Knows nothing
of commits; they stay the consumer's or the program's.

What polling gives instead of a record (a topic that is not there yet, a right that is missing, a
broker that is away) is logged, and polling goes on, as librdkafka goes on by itself; only what it
calls fatal ends it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from worker_sdk.adapters import check_arguments
from worker_sdk.errors import ConfigurationError
from worker_sdk.handle import DestinationHandle, Permit
from worker_sdk.runtime.asking import Meanwhile

logger: Final = logging.getLogger("worker_sdk")

POLL_SECONDS: Final = 1.0

_HINTS: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: ": create the topic, or subscribe to another",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ": give the consumer the right to read the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: ": give the consumer the right to use its group.id",
    KafkaError._MAX_POLL_EXCEEDED: ": the loop's body took longer than max.poll.interval.ms",  # noqa: SLF001
}
"""What to do, by what is wrong."""

_Partition = tuple[str, int]


def permitted(
    consumer: Consumer, permits: DestinationHandle, *, poll_seconds: float = POLL_SECONDS
) -> Generator[Message, None, None]:
    """Yield the consumer's records, each once its permit is taken.

    The loop's body is the delivery: its time is reported as busy. A record counts as delivered when
    the next one is asked for; its offset is stored then, and the consumer's automatic commit covers
    it, or ``consumer.commit()``, or ``consumer.commit(message=record)`` in the body. End the loop
    with ``contextlib.closing`` if it may be left early.

    Args:
        consumer: subscribed, made with ``enable.auto.offset.store`` off, and polled by nobody else.
            Its partitions are paused and resumed here only.
        permits: the destination that the records go to.
        poll_seconds: how often to poll, and how long a permit is waited for before the partitions
            are paused; far below ``max.poll.interval.ms``.

    Yields:
        A record without an error. After a rebalance it may have been delivered before, as always
        with Kafka.

    Raises:
        ConfigurationError: if the consumer itself stores offsets as it hands records out.
        KafkaException: if polling gives an error that is fatal. Any other is warned of on the
            logger ``worker_sdk``: a topic that comes into being is read without a restart.
        ClientClosedError: if the client is closed; the record waiting stays undelivered.
    """
    check_arguments(permits, poll_seconds)
    try:
        consumer.store_offsets(offsets=[])
    except KafkaException as error:
        raise ConfigurationError(
            "a consumer that stores offsets itself would commit records that still wait for their "
            'permit; make it with {"enable.auto.offset.store": False}'
        ) from error
    while True:
        record = _polled(consumer, poll_seconds)
        if record is None:
            continue
        wait = _Wait(consumer, record)
        permit = Permit(permits, 1, None, Meanwhile(wait.look, poll_seconds))
        if not wait.take(permit):
            permits.refund()
            continue
        try:
            yield record
        finally:
            permit.__exit__(None, None, None)
        _store(consumer, record)


def _polled(consumer: Consumer, seconds: float) -> Message | None:
    message = consumer.poll(seconds)
    error = None if message is None else message.error()
    if error is None:
        return message
    if error.fatal():
        raise KafkaException(error)
    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
        logger.warning(
            "confluent-kafka: %s (%s)%s; polling goes on",
            error.str(),
            error.name(),
            _HINTS.get(error.code(), ""),
        )
    return None


def _store(consumer: Consumer, record: Message) -> None:
    try:
        consumer.store_offsets(message=record)
    except KafkaException as error:
        # Given away during the delivery: another consumer will have it once more.
        if error.args[0].code() not in {
            KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - their public names
            KafkaError._STATE,  # noqa: SLF001
        }:
            raise


class _Wait:
    """One record's wait for its permit."""

    def __init__(self, consumer: Consumer, record: Message) -> None:
        self._consumer = consumer
        self._partition = _partition_of(record)
        self._offset = _offset_of(record)
        self._has_polled = False
        self._paused: set[_Partition] = set()

    def take(self, permit: Permit) -> bool:
        """Take the permit; False, and none is held, if the record is another consumer's by now."""
        try:
            permit.__enter__()
        except BaseException:
            self._put_back()
            raise
        if self._is_ours():
            self._resume()
            return True
        self._resume()
        permit.__exit__(None, None, None)
        return False

    def look(self) -> None:
        """Poll without getting anything, to show that this consumer lives."""
        self._has_polled = True
        self._paused = self._assigned()
        self._consumer.pause([TopicPartition(*partition) for partition in self._paused])
        # What a rebalance brought before it could be paused goes back.
        other = _polled(self._consumer, 0)
        if other is not None:
            self._seek(_partition_of(other), _offset_of(other))

    def _is_ours(self) -> bool:
        if not self._has_polled:
            return True  # partitions change hands in polls only
        if self._partition not in self._assigned():
            return False
        (position,) = self._consumer.position([TopicPartition(*self._partition)])
        return position.offset == self._offset + 1  # another one if it was given away and back

    def _put_back(self) -> None:
        with contextlib.suppress(RuntimeError):  # the consumer was closed
            if self._is_ours():
                self._seek(self._partition, self._offset)
            self._resume()

    def _resume(self) -> None:
        resumed = self._paused & self._assigned()
        if resumed:
            self._consumer.resume([TopicPartition(*partition) for partition in resumed])

    def _seek(self, partition: _Partition, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition, offset))

    def _assigned(self) -> set[_Partition]:
        return {(found.topic, found.partition) for found in self._consumer.assignment()}


def _partition_of(record: Message) -> _Partition:
    topic, partition = record.topic(), record.partition()
    if topic is None or partition is None:
        raise ValueError("a record without a partition")
    return topic, partition


def _offset_of(record: Message) -> int:
    offset = record.offset()
    if offset is None:
        raise ValueError("a record without an offset")
    return offset
