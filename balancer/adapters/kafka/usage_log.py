"""The usage log on Kafka: a consumer group read by hand, and the topic of what was refused.

Decides which offsets may be committed (only of partitions that are still this member's) and which
records count as backlog. Knows nothing of what records mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    CorruptRecordException,
    IllegalStateError,
    KafkaError,
    MessageSizeTooLargeError,
    UnsupportedCodecError,
)

from balancer.adapters.kafka.calls import Consumer, bounded, left
from balancer.adapters.kafka.config import KafkaConfig
from balancer.errors import UnavailableError
from balancer.ports import LogPosition, UsageRecord
from worker_sdk.errors import RejectReason

START_SECONDS: Final = 30
CALL_SECONDS: Final = 15
ENDS_SECONDS: Final = 5
ENDS_POLL_SECONDS: Final = 0.02
SINGLE_SECONDS: Final = 0.5
REJECT_SECONDS: Final = 3
REJECT_PAUSE_SECONDS: Final = 30
STOP_SECONDS: Final = 5
CUT_SHORT_SECONDS: Final = 0.5
"""For leaving a group that was not joined yet, where whoever is stopped waits no longer."""

FETCH_MAX_BYTES: Final = 8 * 1024 * 1024
METADATA_MS: Final = 10_000
"""So soon a topic that was made again, or given more partitions, is noticed; unasked, in 5 min."""

BEYOND_SECONDS: Final = 5
"""So long a partition may end before what was read of it, as its new leader may say at first."""

LOG_APPEND_TIME: Final = 1
DETAIL_MAX: Final = 500

_log = logging.getLogger("balancer.usage_log")


def _cannot_be_taken_apart(error: Exception) -> bool:
    """Say whether a record is at fault: torn, of an unknown codec, a header's name not UTF-8."""
    if isinstance(error, CorruptRecordException | UnsupportedCodecError):
        return True
    return not isinstance(error, KafkaError | ConsumerStoppedError | OSError | TimeoutError)


async def _ends(consumer: Consumer) -> dict[int, int]:
    """Return where the partitions ended at the first fetch, as far as they tell in time.

    Fetched ends are trusted, asked ones are not: some brokers answer those too low.
    """
    ends: dict[int, int] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDS_SECONDS):
            while True:
                places = consumer.assignment()
                found = {place.partition: consumer.highwater(place) for place in places}
                ends = {partition: end for partition, end in found.items() if end is not None}
                if len(ends) == len(places):
                    break
                await asyncio.sleep(ENDS_POLL_SECONDS)
    return ends


class _Assignment(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    """Whether the group has told this member its partitions, be they none."""

    def __init__(self) -> None:
        self.is_told = False

    def on_partitions_revoked(self, revoked: object) -> None:
        self.is_told = False

    def on_partitions_assigned(self, assigned: object) -> None:
        self.is_told = True


class KafkaUsageLog:
    """`balancer.ports.UsageLog` on aiokafka."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._consumer: Consumer | None = None
        self._producer: AIOKafkaProducer | None = None
        self._backlog_ends: dict[int, int] = {}
        self._reject_again_at = 0.0
        self._answers: dict[TopicPartition, tuple[int | None, float]] = {}
        self._assignment = _Assignment()
        self._beyond: dict[TopicPartition, float] = {}

    async def start(self) -> None:
        """See the port."""
        options = self._config.client_options()
        consumer = Consumer(
            **options,
            group_id=self._config.group_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH_MAX_BYTES,
            max_partition_fetch_bytes=FETCH_MAX_BYTES // 4,
            session_timeout_ms=self._config.session_timeout_ms,
            heartbeat_interval_ms=max(500, self._config.session_timeout_ms // 4),
            metadata_max_age_ms=METADATA_MS,
        )
        producer = AIOKafkaProducer(**options, enable_idempotence=False, acks="all")
        self._consumer, self._producer = consumer, producer
        self._assignment = _Assignment()
        self._answers, self._beyond = {}, {}  # what another client saw counts no longer
        consumer.subscribe([self._config.usage_topic], listener=self._assignment)
        try:
            async with bounded("be joined", START_SECONDS):
                await consumer.start()
                await producer.start()
            self._backlog_ends = await _ends(consumer)
        except BaseException as error:  # also where it is told to stop while it joins
            is_slow = isinstance(error, UnavailableError)
            await self._leave(STOP_SECONDS if is_slow else CUT_SHORT_SECONDS)
            raise

    def _started(self) -> tuple[Consumer, AIOKafkaProducer]:
        if self._consumer is None or self._producer is None:
            raise UnavailableError("the usage log is not started")
        return self._consumer, self._producer

    async def read(self, *, max_records: int, wait_ms: int) -> Sequence[UsageRecord]:
        """See the port."""
        consumer, _ = self._started()
        async with bounded("be read", CALL_SECONDS + wait_ms / 1000):
            try:
                found = await consumer.getmany(timeout_ms=wait_ms, max_records=max_records)
            except Exception as error:
                if not _cannot_be_taken_apart(error):
                    raise
                return await self._read_around(consumer, max_records)
        self._note_ends(consumer)
        return [self._record(record) for records in found.values() for record in records]

    def _note_ends(self, consumer: Consumer) -> None:
        """Let what a partition held at start count no longer where the topic was made again.

        Offsets begin anew then, and what comes would be taken for what was found at start.
        """
        for place in consumer.assignment():
            end = consumer.highwater(place)
            known = self._backlog_ends.get(place.partition, 0)
            if end is not None and end < known:
                self._backlog_ends[place.partition] = end

    def _record(self, record: ConsumerRecord[bytes, bytes]) -> UsageRecord:
        return UsageRecord(
            partition=record.partition,
            offset=record.offset,
            body=record.value,
            headers={name.lower(): value for name, value in record.headers},
            appended_ms=record.timestamp if record.timestamp_type == LOG_APPEND_TIME else None,
            key=record.key,
            backlog=record.offset < self._backlog_ends.get(record.partition, 0),
        )

    async def _read_around(self, consumer: Consumer, most: int) -> list[UsageRecord]:
        """Read record by record up to those that cannot be taken apart, and step over them.

        What the client had unpacked before it failed is lost in it, so that every partition is
        read again from where it was.
        """
        places = sorted(consumer.assignment())
        for place in places:
            consumer.seek(place, await consumer.position(place))
        share = max(1, most // max(1, len(places)))
        found = await asyncio.gather(
            *(self._read_singly(consumer, place, share) for place in places)
        )
        return [record for records in found for record in records]

    async def _read_singly(
        self, consumer: Consumer, place: TopicPartition, most: int
    ) -> list[UsageRecord]:
        found: list[UsageRecord] = []
        while len(found) < most:
            position = await consumer.position(place)
            try:
                async with asyncio.timeout(SINGLE_SECONDS):
                    found.append(self._record(await consumer.getone(place)))
            except TimeoutError:
                break
            except Exception as error:
                if not _cannot_be_taken_apart(error):
                    raise
                found.append(
                    UsageRecord(place.partition, position, None, {}, None, unreadable=True)
                )
                consumer.seek(place, position + 1)
                break
        return found

    async def commit(self, records: Sequence[UsageRecord]) -> None:
        """See the port."""
        consumer, _ = self._started()
        assigned = consumer.assignment()
        offsets: dict[TopicPartition, int] = {}
        for record in records:
            place = TopicPartition(self._config.usage_topic, record.partition)
            if place in assigned:
                offsets[place] = max(offsets.get(place, 0), record.offset + 1)
        if not offsets:
            return
        # A rebalance took the partitions: whoever has them now reads the records again.
        async with bounded("take a commit", CALL_SECONDS):
            with contextlib.suppress(CommitFailedError, IllegalStateError):
                await consumer.commit(offsets)

    async def position(self) -> LogPosition:
        """See the port."""
        consumer, _ = self._started()
        lag = 0
        assigned = consumer.assignment()
        beyond: list[TopicPartition] = []
        async with bounded("tell the lag", CALL_SECONDS):
            for place in assigned:
                end = consumer.highwater(place)
                # Not fetched yet: nobody knows, so it counts as behind.
                waiting = 1 if end is None else end - await consumer.position(place)
                lag += max(0, waiting)
                if waiting < 0:
                    beyond.append(place)
            self._return_from(beyond, consumer)
        partitions = tuple(sorted(place.partition for place in assigned))
        silent_ms = self._silent_ms(consumer, assigned)
        return LogPosition(
            partitions, lag, is_assigned=self._assignment.is_told, silent_ms=silent_ms
        )

    def _return_from(self, beyond: Iterable[TopicPartition], consumer: Consumer) -> None:
        """Read from its start what ends before the place that was reached, and stays so.

        It was made again. Apache Kafka says so itself, and the client begins anew; other brokers
        give nothing until the new partition has outgrown the old one, and may say that an empty
        one starts where the old one ended. If the first offset is none of it, the client finds one.
        """
        now = asyncio.get_running_loop().time()
        self._beyond = {place: self._beyond.get(place, now) for place in beyond}
        for place, since in self._beyond.items():
            if now - since >= BEYOND_SECONDS:
                _log.warning(
                    "partition %d was made again, and is read from its start",
                    place.partition,
                    extra={"action": "made_again"},
                )
                consumer.seek(place, 0)

    def _silent_ms(self, consumer: Consumer, assigned: Iterable[TopicPartition]) -> int:
        """Return for how long the most silent partition has not answered a fetch without a fault.

        The client tries again for ever where the answer is a fault, and says nothing of it.
        """
        now = asyncio.get_running_loop().time()
        answers: dict[TopicPartition, tuple[int | None, float]] = {}
        for place in assigned:
            answered = consumer.last_poll_timestamp(place)
            before, since = self._answers.get(place, (answered, now))
            answers[place] = (answered, since if answered == before else now)
        self._answers = answers
        return int(1000 * (now - min((since for _, since in answers.values()), default=now)))

    async def reject(self, record: UsageRecord, reason: RejectReason, detail: str) -> None:
        """See the port."""
        _, producer = self._started()
        now = asyncio.get_running_loop().time()
        if now < self._reject_again_at:
            raise UnavailableError("Kafka could not keep a rejected record: it could not lately")
        headers = [
            *record.headers.items(),
            ("reason", reason.value.encode()),
            ("detail", detail[:DETAIL_MAX].encode(errors="replace")),
            ("source", f"{record.partition}/{record.offset}".encode()),
        ]
        try:
            async with bounded("keep a rejected record", REJECT_SECONDS):
                # Without a key the client takes no message without a body.
                await producer.send_and_wait(
                    self._config.rejected_topic, record.body or b"", key=record.key, headers=headers
                )
        except UnavailableError as error:
            # One record too large to keep says nothing of the next; a topic that is away does.
            if not isinstance(error.__cause__, MessageSizeTooLargeError):
                self._reject_again_at = now + REJECT_PAUSE_SECONDS
            raise

    async def stop(self) -> None:
        """See the port."""
        await self._leave(STOP_SECONDS)

    async def _leave(self, seconds: float) -> None:
        """Stop both clients at once, so that neither stays open where this is cut short."""
        clients = [client for client in (self._consumer, self._producer) if client is not None]
        self._consumer = self._producer = None
        await asyncio.gather(*(left(client, seconds) for client in clients))
