"""The Kafka sink: against real brokers, and against producers that fail in known ways."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import string
import threading
import time
from collections.abc import Callable

import pytest

from balancer.embedded import KafkaServer
from tests.support.real_clients import await_condition, consume, create_topic
from worker_sdk.errors import ConfigurationError
from worker_sdk.transports.base import SendError
from worker_sdk.transports.kafka import KafkaSink, compressor, kafka_settings, split_batch
from worker_sdk.wire.limits import BATCH_COMPRESSED_MAX_BYTES
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple, decode_batch

SEND_SECONDS = 20.0
INSTANT_MS = 1_796_000_000_000


def batch_of(*names: str, used: int = 1) -> UsageBatch:
    tuples = tuple(
        UsageTuple(name, INSTANT_MS, INSTANT_MS + 1, 1, used, used, 0, 0, 0) for name in names
    )
    return UsageBatch("host-1", "i1", INSTANT_MS, MemberState.RUNNING, epochs={0: 3}, tuples=tuples)


def decompressed(body: bytes) -> bytes:
    import zstandard  # noqa: PLC0415 - typed as Any

    content: bytes = zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return content


async def test_a_batch_arrives_compressed_and_whole(
    kafka: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("usage")
    await create_topic(kafka.bootstrap_servers, topic)
    sink = KafkaSink(kafka.bootstrap_servers, topic=topic)
    try:
        sink.send(batch_of("db"), SEND_SECONDS)
        sink.send(batch_of("db", used=2), SEND_SECONDS)
    finally:
        sink.close(5)
    bodies = await consume(kafka.bootstrap_servers, topic, 2)
    assert [decode_batch(decompressed(body)).batch.tuples[0].used for body in bodies] == [1, 2]


async def test_settings_of_the_producer_pass_through(
    kafka: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("usage")
    await create_topic(kafka.bootstrap_servers, topic)
    settings = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "security_protocol": "PLAINTEXT",
        "client_id": "a-worker",
    }
    sink = KafkaSink(settings, topic=topic)
    try:
        sink.send(batch_of("db"), SEND_SECONDS)
    finally:
        sink.close(5)
    assert len(await consume(kafka.bootstrap_servers, topic, 1)) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"bootstrap_servers": "x:1", "bootsrap": "y"},
        {"bootstrap_servers": "x:1", "acks": 0},
        {"client_id": "no servers"},
        {"bootstrap_servers": "x:1", "security_protocol": "TLS"},
        {"bootstrap_servers": "x:1", "security_protocol": ["SSL"]},
        {"bootstrap_servers": "x:1", "security_protocol": "SASL_SSL"},
        {
            "bootstrap_servers": "x:1",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "worker",
        },
    ],
)
def test_an_unknown_or_missing_setting_is_named(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="kafka: "):
        KafkaSink(settings)


def test_tls_without_a_context_trusts_the_systems_authorities() -> None:
    given = ssl.create_default_context()
    named = {"bootstrap_servers": "x:1", "security_protocol": "SSL"}
    made = kafka_settings(named)["ssl_context"]
    assert isinstance(made, ssl.SSLContext)
    assert made.verify_mode is ssl.CERT_REQUIRED
    assert kafka_settings({**named, "ssl_context": given})["ssl_context"] is given
    assert "ssl_context" not in kafka_settings("x:1")


def test_a_batch_that_does_not_compress_is_split_and_loses_nothing() -> None:
    dice = random.Random(7)
    names = [
        "".join(dice.choices(string.ascii_letters + string.digits, k=64)) for _ in range(20_000)
    ]
    batch = batch_of(*names)
    _, compress = compressor()
    parts = split_batch(batch, compress)
    assert len(parts) > 1
    assert all(len(body) <= BATCH_COMPRESSED_MAX_BYTES for _, body in parts)
    assert [entry for part, _ in parts for entry in part.tuples] == list(batch.tuples)
    assert all(part.epochs == batch.epochs for part, _ in parts)


def test_a_batch_that_compresses_well_is_one_message_however_long() -> None:
    _, compress = compressor()
    assert len(split_batch(batch_of(*["same-name" * 7] * 20_000), compress)) == 1


class FakeProducer:
    """A producer that fails as told: at the start, at the send, or by never coming back."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.sent: list[bytes] = []
        self.stopped = False

    async def start(self) -> None:
        await self._fail_at("start")

    async def send(
        self, topic: str, value: bytes, key: bytes, *, headers: list[tuple[str, bytes]]
    ) -> asyncio.Future[object]:
        await self._fail_at("send")
        acknowledged: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if self.fault != "never-acknowledges":
            self.sent.append(value)
            acknowledged.set_result(None)
        return acknowledged

    async def stop(self) -> None:
        self.stopped = True
        if self.fault:
            await self._hang()

    async def _fail_at(self, place: str) -> None:
        if self.fault == f"{place}-raises":
            raise RuntimeError("unexpected")
        if self.fault == f"{place}-hangs":
            await self._hang()

    async def _hang(self) -> None:
        while True:  # not even cancellation ends it at once
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                await asyncio.sleep(0.3)
                raise


FAULTS = ["start-raises", "start-hangs", "send-raises", "send-hangs", "never-acknowledges"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_producer_that_fails_in_any_way_is_left_behind_and_made_anew(fault: str) -> None:
    made: list[FakeProducer] = []

    def make(_: object) -> FakeProducer:
        made.append(FakeProducer(fault if not made else ""))
        return made[-1]

    sink = KafkaSink("unused:1", make_producer=make)
    batch = batch_of("a", "b")
    started = time.monotonic()
    with pytest.raises(SendError) as failed:
        sink.send(batch, 0.2)
    assert failed.value.undelivered == batch
    assert time.monotonic() - started < 5
    sink.send(batch, 5)
    assert [len(producer.sent) for producer in made] == [0, 1]
    assert made[0].stopped
    sink.close(1)
    assert made[1].stopped


def test_of_a_split_batch_only_what_did_not_arrive_is_undelivered() -> None:
    dice = random.Random(7)
    names = ["".join(dice.choices(string.ascii_letters, k=64)) for _ in range(20_000)]
    batch = batch_of(*names)

    class SecondFails(FakeProducer):
        async def send(
            self, topic: str, value: bytes, key: bytes, *, headers: list[tuple[str, bytes]]
        ) -> asyncio.Future[object]:
            if self.sent:
                raise RuntimeError("unexpected")
            return await super().send(topic, value, key, headers=headers)

    producer = SecondFails("")
    sink = KafkaSink("unused:1", make_producer=lambda _: producer)
    with pytest.raises(SendError) as failed:
        sink.send(batch, SEND_SECONDS)
    arrived = decode_batch(decompressed(producer.sent[0])).batch.tuples
    assert arrived + failed.value.undelivered.tuples == batch.tuples
    assert arrived
    assert failed.value.undelivered.tuples


def test_a_broker_that_accepts_and_never_answers_is_bounded_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = KafkaSink(f"127.0.0.1:{silent.getsockname()[1]}")
        started = time.monotonic()
        with pytest.raises(SendError):
            sink.send(batch_of("db"), 0.5)
        sink.close(0.5)
        assert time.monotonic() - started < 5


def test_a_producer_that_does_not_stop_has_its_connections_closed_whatever_time_is_left() -> None:
    closed: list[str] = []

    class Part:
        def __init__(self, name: str) -> None:
            self.name = name

        async def close(self) -> None:
            closed.append(self.name)

    producer = FakeProducer("never-acknowledges")
    producer._sender, producer.client = Part("sender"), Part("client")  # type: ignore[attr-defined]
    before = set(threading.enumerate())
    sink = KafkaSink("unused:1", make_producer=lambda _: producer)
    with pytest.raises(SendError):
        sink.send(batch_of("db"), 0)
    sink.close(0.05)
    await_condition(lambda: closed == ["sender", "client"], "both are closed")
    await_condition(lambda: set(threading.enumerate()) <= before, "the loop's thread has ended")


def test_a_broker_that_is_not_there_is_bounded_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    sink = KafkaSink(f"127.0.0.1:{port}")
    started = time.monotonic()
    with pytest.raises(SendError) as failed:
        sink.send(batch_of("db"), 2)
    sink.close(0.5)
    assert len(failed.value.undelivered.tuples) == 1
    assert time.monotonic() - started < 8


def test_a_send_that_is_interrupted_ends_soon_and_the_next_one_is_delivered() -> None:
    made: list[FakeProducer] = []

    def make(_: object) -> FakeProducer:
        made.append(FakeProducer("" if made else "never-acknowledges"))
        return made[-1]

    sink = KafkaSink("unused:1", make_producer=make)
    batch = batch_of("a", "b")
    sink.interrupt()  # before anything is sent it does nothing

    def interrupt() -> None:
        await_condition(lambda: bool(made), "the send has begun")
        sink.interrupt()

    threading.Thread(target=interrupt, daemon=True).start()
    started = time.monotonic()
    with pytest.raises(SendError, match="the client closes") as failed:
        sink.send(batch, 60)
    assert (failed.value.cause, failed.value.undelivered) == ("SendInterrupted", batch)
    assert time.monotonic() - started < 10
    sink.send(batch, 5)
    assert len(made[1].sent) == 1
    sink.close(5)
    with pytest.raises(SendError):
        sink.send(batch, 1)
