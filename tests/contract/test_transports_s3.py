"""The S3 source: against a real store, and against stores that answer in known wrong ways."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler

import pytest

from balancer.embedded import S3Part
from tests.golden import examples
from tests.support.answering import answering
from tests.support.real_clients import s3_client
from worker_sdk.core.clockcheck import ClockCheck
from worker_sdk.errors import ConfigurationError, TransportError
from worker_sdk.runtime.clocks import SystemClock
from worker_sdk.transports import s3 as s3_module
from worker_sdk.transports.base import Identity
from worker_sdk.transports.s3 import S3Source, parse_s3_url
from worker_sdk.wire.distribution import Document, encode_document, read_own_shares
from worker_sdk.wire.pointer import (
    LAYOUT_KEY,
    PointedDocument,
    Pointer,
    document_key,
    encode_layout,
    encode_pointer,
    pointer_key,
    sha256_hex,
)

IDENTITY = Identity("worker-07", "5f0c9a52d1e84b7c", ("orders-db", "billing"))
SHARD = examples.DOCUMENT.shard


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any keys will do for a store that is no store."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def of_epoch(epoch: int) -> Document:
    return dataclasses.replace(examples.DOCUMENT, epoch=epoch)


def files(*documents: Document) -> dict[str, bytes]:
    """Return the files of these documents of one shard, newest first, by key."""
    content: dict[str, bytes] = {LAYOUT_KEY: encode_layout(examples.SHARDS)}
    pointed = []
    for document in documents:
        body = encode_document(document)
        key = document_key(SHARD, document.epoch)
        content[key] = body
        pointed.append(
            PointedDocument(
                document.epoch,
                key,
                sha256_hex(body),
                len(body),
                document.published_at_ms,
                document.valid_until_ms,
            )
        )
    content[pointer_key(SHARD)] = encode_pointer(Pointer(tuple(pointed)))
    return content


class Store:
    """A store that holds files and misbehaves as told."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.status: int | None = None
        self.code = "InternalError"
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.cut_after: int | None = None

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.split("?")[0]
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append((path, headers))
        bucket, _, key = path.lstrip("/").partition("/")
        body = self.files.get(key)
        if any("checksum" in name for name in headers):
            self.refuse(handler, 400, "InvalidArgument")
        elif bucket != "permits.prod":
            self.refuse(handler, 404, "NoSuchBucket")
        elif self.status is not None:
            self.refuse(handler, self.status, self.code)
        elif body is None:
            self.refuse(handler, 404, "NoSuchKey")
        else:
            etag = f'"{sha256_hex(body)[:32]}"'
            if headers.get("if-none-match") == etag:
                handler.send_response(304)
                handler.send_header("ETag", etag)
                handler.end_headers()
                return
            handler.send_response(200)
            handler.send_header("ETag", etag)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body[: self.cut_after])

    def refuse(self, handler: BaseHTTPRequestHandler, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/xml")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


def serving(store: Store) -> AbstractContextManager[str]:
    return answering(lambda handler, _: store.answer(handler))


@pytest.fixture
def store(credentials: None) -> Store:
    return Store()


@pytest.fixture
def source(store: Store) -> Iterator[S3Source]:
    with serving(store) as url:
        yield S3Source(IDENTITY, "s3://permits.prod", endpoint_url=url)


def epochs(source: S3Source, held: dict[int, int] | None = None) -> list[int]:
    reading = source.read(held or {}, 0)
    assert reading.failures == ()
    return [share.epoch for share in reading.shares if share.terms.destination == "orders-db"]


@pytest.mark.usefixtures("aws_environment")
def test_shares_come_from_a_real_store_and_only_what_is_not_held(
    s3: S3Part, s3_prefix: str
) -> None:
    client = s3_client(s3)

    def publish(*documents: Document) -> None:
        for key, body in files(*documents).items():
            client.put_object(Bucket=s3.bucket, Key=f"{s3_prefix}/{key}", Body=body)

    source = S3Source(IDENTITY, f"s3://{s3.bucket}/{s3_prefix}", endpoint_url=s3.endpoint_url)
    assert epochs(source) == []
    publish(examples.DOCUMENT)
    reading = source.read({}, 0)
    own = read_own_shares(encode_document(examples.DOCUMENT), IDENTITY.host, IDENTITY.instance)
    assert reading.shares == own
    assert IDENTITY.instance in (reading.instances or ())
    clock, check = SystemClock(), ClockCheck()
    for dated in reading.dates:
        check.note(dated)
    assert check.ahead_ms(clock.wall_ms(), clock.mono_ms()) == 0
    assert check.ahead_ms(clock.wall_ms() - 3_000, clock.mono_ms()) < -1_000
    assert epochs(source, {SHARD: 4711}) == []
    publish(of_epoch(4713), of_epoch(4712), examples.DOCUMENT)
    assert epochs(source, {SHARD: 4711}) == [4712, 4713]


def test_no_file_yet_is_no_failure_whether_absent_or_forbidden(
    store: Store, source: S3Source
) -> None:
    assert epochs(source) == []
    store.status, store.code = 403, "AccessDenied"
    assert epochs(source) == []
    store.status = None
    store.files = files(examples.DOCUMENT)
    assert epochs(source) == [4711]
    store.status = 403
    assert source.read({}, 0).failures == ("AccessDenied",)


def test_a_missing_bucket_is_a_failure_that_says_so(store: Store) -> None:
    with serving(store) as url:
        source = S3Source(IDENTITY, "s3://no-such-bucket/x", endpoint_url=url)
        told = "NoSuchBucket; there is no s3://no-such-bucket: check the address"
        with pytest.raises(TransportError, match=told):
            source.read({}, 0)


def test_wrong_keys_are_a_failure_that_says_what_to_check(store: Store, source: S3Source) -> None:
    store.status, store.code = 403, "SignatureDoesNotMatch"
    with pytest.raises(TransportError, match="SignatureDoesNotMatch; check the keys"):
        source.read({}, 0)


def test_requests_are_in_path_style_and_without_checksums(store: Store, source: S3Source) -> None:
    store.files = files(examples.DOCUMENT)
    assert epochs(source) == [4711]
    assert {path for path, _ in store.requests} == {
        "/permits.prod/layout.json",
        f"/permits.prod/shards/{SHARD}/current.json",
        f"/permits.prod/shards/{SHARD}/000000004711.jsonl.gz",
    }


def test_an_unchanged_pointer_costs_one_conditional_request(store: Store, source: S3Source) -> None:
    store.files = files(examples.DOCUMENT)
    epochs(source)
    store.requests.clear()
    assert epochs(source, {SHARD: 4711}) == []
    ((path, headers),) = store.requests
    assert path.endswith("current.json")
    assert "if-none-match" in headers


def test_a_document_cut_short_or_replaced_is_never_taken(store: Store, source: S3Source) -> None:
    good = files(examples.DOCUMENT)
    key = document_key(SHARD, 4711)
    for wrong in (good[key][:-1], good[key] + b"x", b"", encode_document(of_epoch(4710))):
        store.files = {**good, key: wrong}
        reading = source.read({}, 0)
        assert reading.shares == ()
        assert len(reading.failures) == 1
    store.files = good
    assert epochs(source) == [4711]


def test_no_document_is_passed_over_for_a_newer_one(store: Store, source: S3Source) -> None:
    good = files(of_epoch(4713), of_epoch(4712), examples.DOCUMENT)
    store.files = {key: body for key, body in good.items() if "4712" not in key}
    reading = source.read({}, 0)
    assert {share.epoch for share in reading.shares} == {4711}
    assert len(reading.failures) == 1
    store.files = good
    assert epochs(source, {SHARD: 4711}) == [4712, 4713]


def test_an_answer_that_stops_in_the_middle_is_a_failure(store: Store, source: S3Source) -> None:
    store.files = files(examples.DOCUMENT)
    assert epochs(source) == [4711]
    store.files = files(of_epoch(4712))
    store.cut_after = 20
    assert len(source.read({SHARD: 4711}, 0).failures) == 1
    store.cut_after = None
    assert epochs(source, {SHARD: 4711}) == [4712]


@pytest.mark.usefixtures("credentials")
def test_a_store_that_never_answers_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        source = S3Source(IDENTITY, "s3://permits", endpoint_url=f"http://127.0.0.1:{port}")
        started = time.monotonic()
        with pytest.raises(TransportError):
            source.read({}, 0)
        assert time.monotonic() - started < 10


def test_addresses_are_checked() -> None:
    assert parse_s3_url("s3://permits/prod/") == ("permits", "prod")
    assert parse_s3_url("s3://permits") == ("permits", "")
    for wrong in ("http://permits", "s3://", "permits/prod", "s3://a/b?c=d"):
        with pytest.raises(ConfigurationError, match="s3://permits/prod"):
            parse_s3_url(wrong)


@pytest.mark.usefixtures("credentials")
def test_clients_may_be_made_in_many_threads_at_once() -> None:
    made: list[S3Source] = []
    faults: list[BaseException] = []

    def make() -> None:
        try:
            made.append(S3Source(IDENTITY, "s3://permits", endpoint_url="http://127.0.0.1:9"))
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(made), faults) == (8, [])
