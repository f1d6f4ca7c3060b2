"""Sinks, sources and logs of users that do what they must not: the client's threads outlive it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import pytest

from tests.support.real_clients import await_condition
from worker_sdk import DestinationHandle, PermitClient, PermitTimeout
from worker_sdk.transports.base import Reading
from worker_sdk.transports.memory import MemorySink, MemorySource
from worker_sdk.wire.usage import MemberState, UsageBatch

WAIT_SECONDS = 20.0


class UnspeakableError(Exception):
    """An error that cannot even be printed."""

    def __repr__(self) -> str:
        raise ValueError("no words")


FAULTS: dict[str, Callable[[], BaseException]] = {
    "sys.exit": lambda: SystemExit(1),
    "a timeout of gevent": type("Timeout", (BaseException,), {}),
    "no words": UnspeakableError,
}


class Hostile(MemorySink):
    """Fails at its first greeting and its first report, and whenever it is not sending."""

    def __init__(self, make_fault: Callable[[], BaseException]) -> None:
        super().__init__()
        self._make_fault = make_fault
        self._failed: set[MemberState] = set()

    def send(self, batch: UsageBatch, timeout_seconds: float) -> None:
        if batch.state not in self._failed and batch.state is not MemberState.LEAVING:
            self._failed.add(batch.state)
            raise self._make_fault()
        super().send(batch, timeout_seconds)

    def interrupt(self) -> None:
        raise ValueError("not now")

    def close(self, timeout_seconds: float) -> None:
        raise self._make_fault()


class HostileSource(MemorySource):
    def __init__(self, make_fault: Callable[[], BaseException]) -> None:
        super().__init__()
        self._make_fault = make_fault
        self.reads = 0

    def read(self, held: Mapping[int, int], wait_seconds: float) -> Reading:
        self.reads += 1
        if self.reads == 1:
            raise self._make_fault()
        if self.reads == 2:
            return cast("Reading", None)
        return super().read(held, wait_seconds)

    def interrupt(self) -> None:
        raise ValueError("not now")


class Log(logging.Handler):
    """Calls whatever it is told to with each record, and lets through what that raises."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.call: Callable[[], object] = lambda: None

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())
        self.call()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    handler = Log()
    logger = logging.getLogger("worker_sdk")
    # Others' settings of logging in this process, celery's among them, do not count here.
    monkeypatch.setattr(logger, "disabled", False)
    level = logger.level
    logger.setLevel(logging.WARNING)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_a_users_sink_source_and_log_raise_nothing_is_lost(fault: str, log: Log) -> None:
    sink, source = Hostile(FAULTS[fault]), HostileSource(FAULTS[fault])

    def fail() -> None:
        raise FAULTS[fault]()

    log.call = fail
    client = PermitClient(
        destinations=["db"],
        kafka=lambda: sink,
        distribution=lambda _: source,
        host="host",
        flush_seconds=1,
    )
    client.start()
    client.destination("db").try_acquire(3)
    await_condition(lambda: len(sink.batches) >= 2 and source.reads >= 4, "all goes on")
    failures = client.state.failures
    assert client.close(timeout=WAIT_SECONDS) == 0
    assert sink.batches[-1].state is MemberState.LEAVING
    assert sum(entry.denied for batch in sink.batches for entry in batch.tuples) == 3
    name = type(FAULTS[fault]()).__name__
    assert (failures[f"flush:{name}"], failures[f"read:{name}"]) == (2, 1)
    assert failures[f"log:{name}"] >= 2


def test_a_log_that_takes_permits_of_the_client_holds_none_of_its_threads_up(log: Log) -> None:
    source = MemorySource()
    refused: list[PermitTimeout] = []

    def take(handle: DestinationHandle) -> None:
        try:
            handle.acquire()  # for ever, were it not the reader's own thread
        except PermitTimeout as error:
            refused.append(error)

    with PermitClient(
        destinations=["db"],
        kafka=MemorySink,
        distribution=lambda _: source,
        host="host",
        flush_seconds=1,
    ) as client:
        handle = client.destination("db")
        log.call = lambda: take(handle)
        source.fault = "away"
        await_condition(
            lambda: client.state.failures.get("read:TransportError", 0) >= 2, "it looks again"
        )
    assert refused
    assert log.told
