"""Faults of stores that speak S3 in their own way, met by both sides over HTTP on loopback."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from balancer.adapters.s3.objects import S3Config
from balancer.adapters.s3.store import S3DocumentStore
from balancer.errors import BalancerError, ConflictError, UnavailableError
from tests.support.fake_s3 import BUCKET, FakeS3, serving
from tests.unit.test_view import T0, document
from worker_sdk import Mode, PermitClient
from worker_sdk.errors import TransportError
from worker_sdk.testing import ManualClock
from worker_sdk.transports import s3 as s3_module
from worker_sdk.transports.base import Identity
from worker_sdk.transports.memory import MemorySink
from worker_sdk.transports.s3 import S3Source
from worker_sdk.wire import distribution
from worker_sdk.wire.distribution import Document, OnExpiry

WAIT_SECONDS = 20.0
IDENTITY = Identity("a", "i", ("orders-db",))


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any keys will do; what the environment says of checksums does not count."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_supported")


@pytest.fixture
def fake() -> FakeS3:
    return FakeS3()


@pytest.fixture
def url(fake: FakeS3) -> Iterator[str]:
    with serving(fake) as address:
        yield address


@pytest.fixture
def store(url: str) -> Iterator[S3DocumentStore]:
    made = S3DocumentStore(config(url))
    yield made
    made.close()


def config(url: str, bucket: str = BUCKET) -> S3Config:
    return S3Config(bucket, "prod", url, "us-east-1")


def source(url: str, identity: Identity = IDENTITY) -> S3Source:
    return S3Source(identity, f"s3://{BUCKET}/prod", endpoint_url=url)


async def test_everything_works_on_a_store_that_refuses_checksums_nobody_asked_for(
    fake: FakeS3, url: str, store: S3DocumentStore
) -> None:
    await store.check()
    assert await store.open_layout(1) == (1, True)
    tag = await store.publish(document(1, "a"), keep=(), tag=None)
    tag = await store.publish(document(2, "a", "b"), keep=(1,), tag=tag)
    with pytest.raises(ConflictError):
        await store.publish(document(3, "a"), keep=(), tag='"another"')
    assert [entry.epoch for entry in (await store.load(0, now_ms=T0)).documents] == [3, 2, 1]
    current = await store.current(0, tag=None)
    assert current is not None
    assert [entry.epoch for entry in current.documents] == [2, 1]
    assert [share.epoch for share in source(url).read({}, 0).shares] == [1, 2]
    assert await store.check_conditional_put("x") == []
    assert await store.remove_older(0, before_ms=T0, keep=(2,)) == 2
    assert {"PUT", "GET", "DELETE"} == {asked.method for asked in fake.asked}


async def test_a_bucket_with_a_dot_stands_in_the_path_of_every_request(
    fake: FakeS3, url: str, store: S3DocumentStore
) -> None:
    await store.check()
    await store.open_layout(1)
    await store.publish(document(1, "a"), keep=(), tag=None)
    await store.remove_older(0, before_ms=T0, keep=())
    source(url).read({}, 0)
    assert {asked.path.split("/")[1] for asked in fake.asked} == {BUCKET}
    host = url.removeprefix("http://")
    assert {asked.headers["host"] for asked in fake.asked} == {host}
    assert f"/{BUCKET}/prod/layout.json" in {asked.path for asked in fake.asked}


@pytest.mark.parametrize("code", ["InvalidArgument", "NotImplemented", "InvalidRequest"])
async def test_a_store_that_wants_other_checksums_is_told_with_the_setting(
    fake: FakeS3, url: str, store: S3DocumentStore, code: str
) -> None:
    fake.refusal = (400, code)
    with pytest.raises(UnavailableError, match="request_checksum_calculation"):
        await store.publish(document(1, "a"), keep=(), tag=None)
    with pytest.raises(TransportError, match="request_checksum_calculation"):
        source(url).read({}, 0)


async def test_a_balancer_takes_forbidden_for_nothing_yet_and_later_for_a_fault(
    fake: FakeS3, store: S3DocumentStore
) -> None:
    with pytest.raises(BalancerError, match="no layout yet"):
        await store.open_layout(1, create=False)
    fake.refusal = (403, "AccessDenied")
    with pytest.raises(BalancerError, match="no layout yet"):
        await store.open_layout(1, create=False)
    # That it may not list or write is a fault from the start.
    for call in (store.check(), store.load(0, now_ms=T0), store.open_layout(1)):
        with pytest.raises(BalancerError, match=f"PERMIT_S3_BUCKET={BUCKET}") as fault:
            await call
        assert not isinstance(fault.value, UnavailableError)
    fake.refusal = None
    await store.open_layout(1)
    await store.publish(document(1, "a"), keep=(), tag=None)
    fake.refusal = (403, "AccessDenied")
    for _ in range(3):
        with pytest.raises(BalancerError, match="AccessDenied"):
            await store.current(0, tag=None)


async def test_a_document_that_readers_would_refuse_is_not_put(
    store: S3DocumentStore, fake: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "DOCUMENT_MAX_BYTES", 10)
    with pytest.raises(BalancerError, match=r"shard 0 cannot be published: .* too large"):
        await store.publish(document(1), keep=(), tag=None)
    assert not fake.objects


async def test_a_missing_bucket_is_no_empty_one(url: str) -> None:
    missing = S3DocumentStore(config(url, "no-such-bucket"))
    for call in (missing.check(), missing.open_layout(1), missing.current(0, tag=None)):
        with pytest.raises(BalancerError, match="PERMIT_S3_BUCKET=no-such-bucket") as fault:
            await call
        assert not isinstance(fault.value, UnavailableError)
    missing.close()


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.005)


class Worker:
    """A client that reads from the store, with a clock that is set."""

    def __init__(self, url: str, bucket: str = BUCKET) -> None:
        self.clock = ManualClock()
        self.sink = MemorySink(lambda _batch: None)
        self.client = PermitClient(
            destinations=["orders-db"],
            kafka=lambda: self.sink,
            distribution=lambda identity: S3Source(
                identity, f"s3://{bucket}/prod", endpoint_url=url
            ),
            host="a",
            flush_seconds=1,
            clock=self.clock,
        )

    def mode(self) -> Mode:
        return self.client.destination("orders-db").state.mode

    def more_reads(self, count: int = 2) -> None:
        before = self.client.state.reads
        eventually(lambda: self.client.state.reads >= before + count, "it reads again")

    def document(self) -> Document:
        instance = self.client.state.instance
        made = document(1, "a")
        (line,) = made.destinations
        (entry,) = line.entries
        window = self.clock.wall_ms() // 60_000
        terms = replace(line.terms, from_window=window, until_window=window + 1, guard_ms=0)
        terms = replace(terms, on_expiry=OnExpiry(0, 0))
        line = replace(line, terms=terms, entries=(replace(entry, instance=instance),))
        until_ms = (window + 3) * 60_000
        return replace(
            made,
            published_at_ms=self.clock.wall_ms(),
            valid_until_ms=until_ms,
            destinations=(line,),
        )


async def test_a_worker_starts_without_a_file_and_alarms_when_one_is_forbidden_later(
    fake: FakeS3, url: str, store: S3DocumentStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="worker_sdk")
    worker = Worker(url)
    with worker.client as client:
        handle = client.destination("orders-db")
        worker.more_reads()
        fake.refusal = (403, "AccessDenied")
        worker.more_reads()
        assert worker.mode() is Mode.STARTING
        assert not handle.try_acquire()
        assert (client.state.failures, caplog.records) == ({}, [])
        fake.refusal = None
        await store.open_layout(1)
        await store.publish(worker.document(), keep=(), tag=None)
        eventually(lambda: worker.mode() is Mode.FRESH, "the first document")
        fake.refusal = (403, "AccessDenied")
        eventually(lambda: sum(client.state.failures.values()) >= 3, "each failure counts")
        assert any("AccessDenied" in str(record.args) for record in caplog.records)
        assert handle.try_acquire()  # what is known still holds


class Monotonic:
    """Stands for the module that tells the time."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def test_forbidden_for_long_is_an_alarm_though_nothing_was_ever_read(
    fake: FakeS3, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Monotonic()
    monkeypatch.setattr(s3_module, "time", clock)
    reader = source(url)
    fake.refusal = (403, "AccessDenied")
    for passed in (0, s3_module.HIDDEN_SECONDS - 1):
        clock.now += passed
        assert reader.read({}, 0).failures == ()
    clock.now += 1
    for _ in range(2):
        with pytest.raises(TransportError, match=f"rights on s3://{BUCKET}"):
            reader.read({}, 0)
    fake.refusal = None
    assert reader.read({}, 0).failures == ()
    fake.refusal = (403, "AccessDenied")
    assert reader.read({}, 0).failures == ()  # it may be so for a while again


async def test_where_absent_files_are_forbidden_both_sides_start_and_go_on(
    fake: FakeS3, url: str, store: S3DocumentStore
) -> None:
    fake.hides_absent = True
    reader = source(url)
    assert reader.read({}, 0).failures == ()
    assert await store.open_layout(1) == (1, True)
    assert reader.read({}, 0).failures == ()  # the layout is there, the pointer is not
    assert (await store.load(0, now_ms=T0)).documents == ()
    other = S3DocumentStore(config(url))
    assert await other.open_layout(1) == (1, False)
    current = await other.current(0, tag=None)
    assert current is not None
    assert current.documents == ()
    await store.publish(document(1, "a"), keep=(), tag=None)
    assert [share.epoch for share in reader.read({}, 0).shares] == [1]
    current = await other.current(0, tag=None)
    assert current is not None
    assert len(current.documents) == 1
    other.close()


def test_a_worker_whose_bucket_is_missing_says_so_from_the_start(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="worker_sdk")
    worker = Worker(url, "no-such-bucket")
    with worker.client as client:
        eventually(lambda: sum(client.state.failures.values()) >= 1, "it is counted")
        eventually(lambda: bool(caplog.records), "it is told")
        assert worker.mode() is Mode.STARTING
    assert "NoSuchBucket" in caplog.text
