"""A FastStream middleware: each message's handler takes a permit first.

Decides what happens while no permit is to be had: the handler waits, without an end. A consumer of
Kafka (FastStream's on aiokafka) is paused meanwhile and polled without bringing anything, so that
the group does not take it for dead. A message that another consumer has been given by then is
skipped, unless it was acknowledged before its handling. Knows nothing of acknowledgements; they
stay FastStream's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from faststream import BaseMiddleware, ContextRepo, StreamMessage
from faststream.exceptions import SkipMessage

from worker_sdk.adapters import check_arguments
from worker_sdk.handle import DestinationHandle, Permit

POLL_SECONDS: Final = 1.0


class _MakeMiddleware(Protocol):
    """What FastStream makes a middleware with, for each message."""

    def __call__(self, msg: Any, /, *, context: ContextRepo) -> BaseMiddleware[Any, Any]:
        """Return the middleware of one message."""


def permit_middleware(
    permits: DestinationHandle, *, poll_seconds: float = POLL_SECONDS
) -> _MakeMiddleware:
    """Return a middleware for ``KafkaBroker(middlewares=[...])``, another broker, or a router.

    A call of a handler is a delivery and takes one permit, also with ``batch=True``. Give the
    subscriber an ``ack_policy`` such as ``AckPolicy.NACK_ON_ERROR``: by FastStream's default a
    message counts as done when it arrives, so that one that waits is lost if the process ends.
    Stop the broker before the client.

    Args:
        permits: the destination that the handlers send to.
        poll_seconds: how often to poll, and how long a permit is waited for before the partitions
            are paused; far below ``max_poll_interval_ms``.
    """
    check_arguments(permits, poll_seconds)

    def make(msg: Any, /, *, context: ContextRepo) -> BaseMiddleware[Any, Any]:
        return _PermitMiddleware(msg, context=context, permits=permits, poll_seconds=poll_seconds)

    return make


class _PermitMiddleware(BaseMiddleware[Any, Any]):
    def __init__(
        self,
        msg: Any,
        /,
        *,
        context: ContextRepo,
        permits: DestinationHandle,
        poll_seconds: float,
    ) -> None:
        super().__init__(msg, context=context)
        self._permits = permits
        self._poll_seconds = poll_seconds

    async def consume_scope(
        self, call_next: Callable[[Any], Awaitable[Any]], msg: StreamMessage[Any]
    ) -> Any:
        """Take a permit, then go on."""
        permit = self._permits.permit()
        consumer = getattr(msg, "consumer", None)
        if isinstance(consumer, AIOKafkaConsumer):
            await self._take_polling(permit, consumer, msg)
        else:
            await permit.__aenter__()
        try:
            return await call_next(msg)
        finally:
            permit.__exit__(None, None, None)

    async def _take_polling(
        self, permit: Permit, consumer: AIOKafkaConsumer, msg: StreamMessage[Any]
    ) -> None:
        taking = asyncio.ensure_future(permit.__aenter__())
        try:
            await asyncio.wait({taking}, timeout=self._poll_seconds)
            is_ours = taking.done() or await self._poll_until(taking, consumer, msg)
            await taking
        except BaseException:
            await self._let_go(permit, taking)
            raise
        if not is_ours:
            await self._let_go(permit, taking)
            raise SkipMessage

    async def _poll_until(
        self, taking: asyncio.Future[Permit], consumer: AIOKafkaConsumer, msg: StreamMessage[Any]
    ) -> bool:
        """Stay in the group until the permit is there; say whether the message still counts."""
        pause = _pauses.setdefault(consumer, _Pause(consumer))
        pause.waiting += 1
        try:
            while not taking.done():
                await pause.poll()
                await asyncio.wait({taking}, timeout=self._poll_seconds)
            # What is acknowledged already, nobody else will be given.
            return msg.committed is not None or await self._is_ours(consumer, msg.raw_message)
        finally:
            pause.waiting -= 1
            if not pause.waiting:
                del _pauses[consumer]
                pause.end()

    async def _is_ours(self, consumer: AIOKafkaConsumer, raw: Any) -> bool:
        for record in raw if isinstance(raw, tuple) else (raw,):
            partition = TopicPartition(record.topic, record.partition)
            if partition not in consumer.assignment():
                return False
            try:
                async with asyncio.timeout(self._poll_seconds):
                    position = await consumer.position(partition)
            except TimeoutError:  # given away and back: its position is not known yet
                return False
            if position <= record.offset:  # given away and back: it comes once more
                return False
        return True

    async def _let_go(self, permit: Permit, taking: asyncio.Future[Permit]) -> None:
        taking.cancel()
        await asyncio.wait({taking})
        if not taking.cancelled() and taking.exception() is None:
            permit.__exit__(None, None, None)
            self._permits.refund()


class _Pause:
    """A consumer's pause; several messages may wait for its end (``max_workers``)."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._paused: set[TopicPartition] = set()
        self.waiting = 0

    async def poll(self) -> None:
        """Poll without getting anything. Partitions that the program has paused stay its own."""
        running = self._consumer.assignment() - self._consumer.paused()
        self._consumer.pause(*running)
        self._paused |= running
        # What a rebalance brought before it could be paused goes back.
        found = await self._consumer.getmany(timeout_ms=0, max_records=1)
        for partition, records in found.items():
            self._consumer.seek(partition, records[0].offset)

    def end(self) -> None:
        """Let the records come again."""
        self._consumer.resume(*(self._paused & self._consumer.assignment()))


_pauses: Final[dict[AIOKafkaConsumer, _Pause]] = {}
