"""What aiokafka repeats on the client's thread is held back; what the host's own says is not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer

from worker_sdk.transports import kafka_log
from worker_sdk.transports.base import SendError
from worker_sdk.transports.kafka import KafkaSink
from worker_sdk.transports.kafka_log import speak_seldom
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple

BATCH = UsageBatch(
    "web-1", "i1", 1, MemberState.STARTING, tuples=(UsageTuple("db", 1, 1, 0, 0, 0, 0, 0, 0),)
)


@pytest.fixture(autouse=True)
def _of_a_host_that_listens(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """As by default, whatever commands that ran in this process have set."""
    with caplog.at_level(logging.WARNING, "aiokafka"):
        yield


def on_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=20)
    assert not thread.is_alive()


def quietly(work: Callable[[], object]) -> Callable[[], object]:
    def run() -> None:
        speak_seldom()
        work()

    return run


def knock_in_vain() -> None:
    """Ask a broker that is not there, three times."""

    async def ask() -> None:
        for _ in range(3):
            producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
            with contextlib.suppress(Exception):
                await producer.start()
            await producer.stop()

    asyncio.run(ask())


def test_a_broker_that_is_away_is_said_once_on_our_thread_and_always_on_the_hosts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    on_a_thread(quietly(knock_in_vain))
    ours = [record.msg for record in caplog.records if record.name.startswith("aiokafka")]
    assert len(ours) == len(set(ours)) > 0
    caplog.clear()
    on_a_thread(knock_in_vain)
    assert len([record for record in caplog.records if record.name.startswith("aiokafka")]) >= 3


def test_a_message_comes_again_after_a_minute_and_kinds_of_them_are_limited(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("aiokafka")
    now_mono = 1000.0
    monkeypatch.setattr("worker_sdk.transports.kafka_log.time.monotonic", lambda: now_mono)

    def speak() -> None:
        nonlocal now_mono
        for port in range(5):
            log.warning("no broker at %s", port)
        now_mono += 60
        log.warning("no broker at %s", 5)
        for number in range(200):
            log.warning("of kind " + str(number))  # noqa: G003 - each is a kind of its own

    on_a_thread(quietly(speak))
    told = [record.getMessage() for record in caplog.records]
    assert told[:2] == ["no broker at 0", "no broker at 5"]
    assert len(told) == 1 + kafka_log.MESSAGES_MAX


def test_who_asks_for_everything_hears_everything_and_no_level_is_changed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("aiokafka.producer.sender")
    before = (log.level, log.propagate, log.disabled, list(log.handlers))

    def repeat() -> None:
        for _ in range(5):
            log.warning("again")

    with caplog.at_level(logging.DEBUG, "aiokafka"):
        on_a_thread(quietly(repeat))
    assert len(caplog.records) == 5
    on_a_thread(quietly(repeat))
    assert len(caplog.records) == 6
    assert (log.level, log.propagate, log.disabled, list(log.handlers)) == before


def test_a_report_that_is_not_delivered_says_why_and_aiokafka_says_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = KafkaSink("127.0.0.1:1")
    for _ in range(3):
        with pytest.raises(SendError) as failed:
            sink.send(BATCH, 5)
    sink.close(1)
    told = "1 tuple was not delivered: KafkaConnectionError: Unable to bootstrap from"
    assert str(failed.value).startswith(told)
    assert "127.0.0.1" in str(failed.value)
    assert failed.value.cause == "KafkaConnectionError"
    said = [record.msg for record in caplog.records if record.name.startswith("aiokafka")]
    assert len(said) == len(set(said))


def test_a_broker_that_gives_no_answer_is_told_with_what_to_look_at() -> None:
    class Silent:
        """A producer that waits for the topic for ever."""

        async def start(self) -> None: ...

        async def send(self, *_: object, **__: object) -> asyncio.Future[object]:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")

        async def stop(self) -> None: ...

    sink = KafkaSink("unused:1", topic="usage", make_producer=lambda _: Silent())
    with pytest.raises(SendError, match=r"TimeoutError: no answer in time; .* a topic 'usage'\?"):
        sink.send(BATCH, 0.05)
    sink.close(1)
