"""Records of an aiokafka consumer, each with a permit; the consumer stays a live group member.

Decides what happens while no permit is to be had: the record is put back, all partitions are
paused, and polling goes on without bringing anything, so that the group does not take the consumer
for dead. Nothing is lost by it: while a record waits long, the consumer's position says that it was
not delivered. Knows nothing of commits; they stay the program's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from worker_sdk.adapters import check_arguments
from worker_sdk.handle import DestinationHandle, Permit

PATIENCE_SECONDS: Final = 1.0
POLL_SECONDS: Final = 1.0


async def permitted(
    consumer: AIOKafkaConsumer,
    permits: DestinationHandle,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> AsyncGenerator[ConsumerRecord, None]:
    """Yield the consumer's records, each once its permit is taken.

    The loop's body is the delivery: its time is reported as busy. Commit as after ``async for
    record in consumer``: ``await consumer.commit()`` in the body covers that record and those
    before. End the loop with ``contextlib.aclosing`` if it may be left early.

    Args:
        consumer: started, and read by nobody else.
        permits: the destination that the records go to.
        patience_seconds: a permit is waited for so long before the partitions are paused. What was
            fetched ahead is fetched anew after a pause, so it should not be too short.
        poll_seconds: how often to poll while paused; far below ``max_poll_interval_ms``.

    Yields:
        A record. After a rebalance it may have been delivered before, as always with Kafka.

    Raises:
        ClientClosedError: if the client is closed; the record waiting stays undelivered.
    """
    check_arguments(permits, patience_seconds)
    check_arguments(permits, poll_seconds)
    while True:
        found = await consumer.getmany(timeout_ms=round(poll_seconds * 1000), max_records=1)
        for partition, records in found.items():
            for record in records:
                wait = _Wait(consumer, partition, record.offset, permits)
                permit = await wait.take(patience_seconds, poll_seconds)
                if permit is None:
                    continue
                try:
                    yield record
                finally:
                    permit.__exit__(None, None, None)


class _Wait:
    """One record's wait for its permit."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        partition: TopicPartition,
        offset: int,
        permits: DestinationHandle,
    ) -> None:
        self._consumer = consumer
        self._partition = partition
        self._offset = offset
        self._permits = permits
        self._permit = permits.permit()
        self._paused: set[TopicPartition] = set()

    async def take(self, patience_seconds: float, poll_seconds: float) -> Permit | None:
        """Return the permit; None if the record is another consumer's by now."""
        taking = asyncio.ensure_future(self._permit.__aenter__())
        try:
            await asyncio.wait({taking}, timeout=patience_seconds)
            is_ours = taking.done() or await self._take_paused(taking, poll_seconds)
            permit = await taking
        except BaseException:
            self._put_back()
            await self._let_go(taking)
            raise
        if not is_ours:
            await self._let_go(taking)
            return None
        return permit

    async def _take_paused(self, taking: asyncio.Future[Permit], poll_seconds: float) -> bool:
        self._put_back()
        try:
            while not taking.done():
                self._pause()
                # Brings nothing, but says that this consumer lives. What a rebalance brought
                # before it could be paused goes back.
                found = await self._consumer.getmany(timeout_ms=0, max_records=1)
                for partition, records in found.items():
                    self._consumer.seek(partition, records[0].offset)
                await asyncio.wait({taking}, timeout=poll_seconds)
            return await self._step_over(poll_seconds)
        finally:
            self._consumer.resume(*(self._paused & self._consumer.assignment()))

    def _pause(self) -> None:
        # Partitions that the program has paused itself stay its own matter.
        running = self._consumer.assignment() - self._consumer.paused()
        self._consumer.pause(*running)
        self._paused |= running

    def _put_back(self) -> None:
        if self._partition in self._consumer.assignment():
            self._consumer.seek(self._partition, self._offset)

    async def _step_over(self, seconds: float) -> bool:
        if self._partition not in self._consumer.assignment():
            return False
        try:
            async with asyncio.timeout(seconds):
                position = await self._consumer.position(self._partition)
        except TimeoutError:  # given away and back: its position is not known yet
            return False
        if position != self._offset or self._partition not in self._consumer.assignment():
            return False
        self._consumer.seek(self._partition, self._offset + 1)
        return True

    async def _let_go(self, taking: asyncio.Future[Permit]) -> None:
        taking.cancel()
        await asyncio.wait({taking})
        if not taking.cancelled() and taking.exception() is None:
            self._permit.__exit__(None, None, None)
            self._permits.refund()
