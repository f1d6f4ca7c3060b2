"""Reports by Kafka, through aiokafka.

Decides how a batch becomes messages that the broker takes, and when a producer is given up. Knows
nothing of what the batch says or of what becomes of an undelivered one.

The producer of aiokafka needs an event loop, which has a thread of its own here. It may neither
return from a send nor from its stop once the broker is gone; so every wait here has an end, and a
producer that failed is left behind and made anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib
import inspect
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from worker_sdk.errors import ConfigurationError, TransportError
from worker_sdk.transports.base import Deadline, SendError
from worker_sdk.transports.kafka_log import speak_seldom
from worker_sdk.transports.loops import LoopThread
from worker_sdk.wire.compression import GZIP, ZSTD, gzip_bytes
from worker_sdk.wire.limits import BATCH_COMPRESSED_MAX_BYTES, BATCH_MAX_BYTES
from worker_sdk.wire.usage import CONTENT_TYPE, USAGE_TOPIC, UsageBatch, encode_batch

STOP_SECONDS: Final = 1.0
MESSAGE_MAX_BYTES: Final = 1_048_576
"""What the producer lets pass: above the limit of a batch, with the record's overhead."""

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OWN_KEYS: Final = frozenset({"acks", "enable_idempotence", "transactional_id", "loop"})


class Producer(Protocol):
    """What is used of `aiokafka.AIOKafkaProducer`."""

    async def start(self) -> None:
        """Connect."""

    async def send(
        self, topic: str, value: bytes, key: bytes, *, headers: list[tuple[str, bytes]]
    ) -> asyncio.Future[object]:
        """Queue a record; the future is its acknowledgement."""

    async def stop(self) -> None:
        """Disconnect."""


class SendInterrupted(TransportError):  # noqa: N818 - by this name it is counted
    """A send was ended because the client closes."""


Compress = Callable[[bytes], bytes]

# What aiokafka logs while a broker is away reaches the host's handlers, if it has any (and seldom,
# see `kafka_log`), but not the standard error of a host that has none: failures are counted and
# warned of by the client.
logging.getLogger("aiokafka").addHandler(logging.NullHandler())


def kafka_settings(kafka: str | Mapping[str, object]) -> dict[str, object]:
    """Return the producer's settings: a mapping as it is, a text as the bootstrap servers.

    TLS for which no ``ssl_context`` is given trusts the system's authorities.

    Raises:
        ConfigurationError: where aiokafka is missing, a setting is unknown or this driver's own, or
            the protocol is none or lacks the name or password that it needs.
    """
    settings: dict[str, object] = (
        {"bootstrap_servers": kafka} if isinstance(kafka, str) else dict(kafka)
    )
    try:
        aiokafka = importlib.import_module("aiokafka")
    except ImportError as error:
        raise ConfigurationError(
            "kafka: the package aiokafka is missing; install permit-balancer[worker]"
        ) from error
    known = set(inspect.signature(aiokafka.AIOKafkaProducer).parameters) - _OWN_KEYS
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ConfigurationError(
            f"kafka: unknown setting {unknown[0]!r}; an example: "
            '{"bootstrap_servers": "broker:9092", "security_protocol": "SSL"}'
        )
    if not settings.get("bootstrap_servers"):
        raise ConfigurationError("kafka: bootstrap_servers is missing; an example: broker:9092")
    _secure(settings)
    return settings


def _secure(settings: dict[str, object]) -> None:
    # The driver would refuse these at each report, long after the start.
    protocol = settings.get("security_protocol", "PLAINTEXT")
    if protocol not in _PROTOCOLS:
        raise ConfigurationError(
            f"kafka: security_protocol {protocol!r} is none of {', '.join(_PROTOCOLS)}"
        )
    if protocol in {"SSL", "SASL_SSL"} and settings.get("ssl_context") is None:
        settings["ssl_context"] = ssl.create_default_context()
    mechanism = str(settings.get("sasl_mechanism", "PLAIN"))
    if protocol in {"SASL_PLAINTEXT", "SASL_SSL"} and mechanism.startswith(("PLAIN", "SCRAM-")):
        for name in ("sasl_plain_username", "sasl_plain_password"):
            if not settings.get(name):
                raise ConfigurationError(f"kafka: {name} is missing for {protocol} by {mechanism}")


def compressor() -> tuple[str, Compress]:
    """Return the best encoding there is: zstd, or gzip where zstandard is not installed."""
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        return GZIP, gzip_bytes
    return ZSTD, zstandard.ZstdCompressor(level=3).compress


class KafkaSink:
    """A report sink on a Kafka topic.

    Args:
        kafka: bootstrap servers, or settings of the producer.
        topic: where the batches go.
        make_producer: for tests; makes a producer from settings.

    Raises:
        ConfigurationError: as `kafka_settings`.
    """

    def __init__(
        self,
        kafka: str | Mapping[str, object],
        *,
        topic: str = USAGE_TOPIC,
        make_producer: Callable[[dict[str, object]], Producer] | None = None,
    ) -> None:
        settings = {
            "acks": "all",
            "max_request_size": MESSAGE_MAX_BYTES,
            "request_timeout_ms": 10_000,
            # While a broker is away a guest need not ask for it ten times a second.
            "retry_backoff_ms": 500,
            **(kafka_settings(kafka) if make_producer is None else {"bootstrap_servers": kafka}),
        }
        encoding, self._compress = compressor()
        self._messages = _Messages(topic, encoding, settings, make_producer or _make_producer)
        self._loop = LoopThread("permit-kafka")

    def send(self, batch: UsageBatch, timeout_seconds: float) -> None:
        """Deliver the batch in as many messages as its size asks for."""
        deadline = Deadline(timeout_seconds)
        parts = split_batch(batch, self._compress)
        self._messages.delivered = 0
        sending = self._messages.send(
            batch.host.encode("utf-8"), [body for _, body in parts], deadline
        )
        try:
            self._loop.run(sending, timeout_seconds + 2 * STOP_SECONDS)
        except Exception as error:
            late = [part for part, _ in parts[self._messages.delivered :]]
            rest = tuple(entry for part in late for entry in part.tuples)
            undelivered = dataclasses.replace(batch, tuples=rest)
            cause = type(error).__name__
            # aiokafka's errors say their name themselves.
            detail = str(error).removeprefix(f"{cause}: ")
            raise SendError(undelivered, cause, detail) from error

    def interrupt(self) -> None:
        """End a send under way soon; what it has not delivered is undelivered."""
        self._loop.call(self._messages.interrupt)

    def close(self, timeout_seconds: float) -> None:
        """Stop the producer, or leave it behind if it does not stop in time."""
        deadline = Deadline(timeout_seconds)
        with contextlib.suppress(Exception):
            self._loop.run(self._messages.abandon(timeout_seconds / 2), timeout_seconds / 2)
        self._loop.stop(deadline.remaining_seconds())


class _Messages:
    """What runs on the loop: message after message, by one producer until it fails.

    Attributes:
        delivered: how many messages of the present send were acknowledged.
    """

    def __init__(
        self,
        topic: str,
        encoding: str,
        settings: dict[str, object],
        make_producer: Callable[[dict[str, object]], Producer],
    ) -> None:
        self.delivered = 0
        self._topic = topic
        self._headers = [
            ("content-type", CONTENT_TYPE.encode()),
            ("content-encoding", encoding.encode()),
        ]
        self._settings = settings
        self._make_producer = make_producer
        self._producer: Producer | None = None
        self._sending: asyncio.Task[Any] | None = None
        self._leftovers: set[asyncio.Task[Any]] = set()

    async def send(self, key: bytes, bodies: Sequence[bytes], deadline: Deadline) -> None:
        """Deliver the messages, in order.

        Raises:
            SendInterrupted: where it was interrupted.
            Exception: of the producer, whatever it is.
        """
        self._sending = asyncio.current_task()
        speak_seldom()
        try:
            for body in bodies:
                await self._send_one(key, body, deadline)
                self.delivered += 1
        except (Exception, asyncio.CancelledError) as error:
            self._sending = None  # what follows is short, and not to be interrupted
            await self.abandon(min(STOP_SECONDS, deadline.remaining_seconds()))
            if isinstance(error, asyncio.CancelledError):
                raise SendInterrupted("the client closes") from error
            raise
        self._sending = None

    def interrupt(self) -> None:
        """Cancel the send under way, if there is one."""
        if self._sending is not None:
            self._sending.cancel()

    async def _send_one(self, key: bytes, body: bytes, deadline: Deadline) -> None:
        if self._producer is None:
            self._producer = self._make_producer(self._settings)
            await self._bounded(self._producer.start(), deadline)
        acknowledged = await self._bounded(
            self._producer.send(self._topic, body, key, headers=self._headers), deadline
        )
        await self._bounded(acknowledged, deadline)

    async def _bounded(self, awaitable: Any, deadline: Deadline) -> Any:
        # Not wait_for: it waits for the end of what it cancelled, and that may never come.
        task = asyncio.ensure_future(awaitable)
        try:
            done, _ = await asyncio.wait({task}, timeout=deadline.remaining_seconds())
        except asyncio.CancelledError:
            self._leave_behind(task)
            raise
        if not done:
            self._leave_behind(task)
            raise TimeoutError(
                f"no answer in time; do the brokers answer, and is there a topic {self._topic!r}?"
            )
        return task.result()

    def _leave_behind(self, task: asyncio.Future[Any]) -> None:
        task.cancel()
        task.add_done_callback(_look_away)

    async def abandon(self, seconds: float) -> None:
        """Stop the producer, or leave it behind if it does not stop in time."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        stopping = asyncio.ensure_future(_stop(producer))
        self._leftovers.add(stopping)
        stopping.add_done_callback(self._leftovers.discard)
        stopping.add_done_callback(_look_away)
        await asyncio.wait({stopping}, timeout=seconds)


async def _stop(producer: Producer) -> None:
    stopping = asyncio.ensure_future(producer.stop())
    stopping.add_done_callback(_look_away)
    try:
        await asyncio.wait({stopping}, timeout=STOP_SECONDS)
    finally:  # also where the loop ends meanwhile
        if not stopping.done():
            stopping.cancel()
            await _close_parts(producer)


async def _close_parts(producer: Producer) -> None:
    # It hangs in flushing; end its sender and its connections without that.
    for part in (getattr(producer, "_sender", None), getattr(producer, "client", None)):
        if part is not None:
            closing = asyncio.ensure_future(part.close())
            closing.add_done_callback(_look_away)
            await asyncio.wait({closing}, timeout=STOP_SECONDS)


def _look_away(task: asyncio.Future[Any]) -> None:
    # An error that nobody fetches would be reported to the host's log at collection.
    if not task.cancelled():
        task.exception()


def split_batch(batch: UsageBatch, compress: Compress) -> list[tuple[UsageBatch, bytes]]:
    """Return the batch as parts with their compressed bodies, each within the wire's limits.

    The parts hold the same tuples in the same order. A single tuple is never split: the limits of
    names keep it far below.
    """
    body = encode_batch(batch)
    compressed = compress(body)
    fits = len(compressed) <= BATCH_COMPRESSED_MAX_BYTES and len(body) <= BATCH_MAX_BYTES
    if fits or len(batch.tuples) <= 1:
        return [(batch, compressed)]
    half = len(batch.tuples) // 2
    parts: list[tuple[UsageBatch, bytes]] = []
    for tuples in (batch.tuples[:half], batch.tuples[half:]):
        names = {entry.destination for entry in tuples}
        spent = {name: account for name, account in batch.spent.items() if name in names}
        parts += split_batch(dataclasses.replace(batch, tuples=tuples, spent=spent), compress)
    return parts


def _make_producer(settings: dict[str, object]) -> Producer:
    aiokafka = importlib.import_module("aiokafka")
    producer: Producer = aiokafka.AIOKafkaProducer(**settings)
    return producer
