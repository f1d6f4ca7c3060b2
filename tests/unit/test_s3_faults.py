"""The bucket beside stores that answer badly, slowly or not at all, on loopback."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler

import pytest

from balancer.adapters.s3 import objects, store
from balancer.adapters.s3.objects import Bucket, S3Config
from balancer.adapters.s3.store import S3DocumentStore
from balancer.errors import BalancerError, ConflictError, UnavailableError
from tests.support.answering import answering
from tests.unit.test_view import document

Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(objects, "READ_SECONDS", 0.2)
    monkeypatch.setattr(objects, "ATTEMPTS", 1)


def serving(answer: Answer) -> AbstractContextManager[str]:
    return answering(lambda handler, _: answer(handler), protocol="HTTP/1.1")


def with_error(status: int, code: str) -> Answer:
    return with_body(status, f"<Error><Code>{code}</Code></Error>".encode())


def with_body(status: int, body: bytes, length: int | None = None) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("ETag", '"1"')
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)
        if length is not None:
            handler.close_connection = True

    return answer


def config(url: str, bucket: str = "permits") -> S3Config:
    return S3Config(bucket, "prod", url, "us-east-1")


def test_no_checksum_is_sent_that_a_store_may_refuse() -> None:
    refused: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        found = [name for name in handler.headers if "checksum" in name.lower()]
        refused.extend(found)
        (with_error(400, "InvalidArgument") if found else with_body(200, b""))(handler)

    with serving(answer) as url:
        assert Bucket(config(url)).put("layout.json", b"{}", tag=None) == '"1"'
    assert refused == []


def test_a_bucket_with_a_dot_stands_in_the_path() -> None:
    paths: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        paths.append(handler.path)
        with_body(200, b"x")(handler)

    with serving(answer) as url:
        Bucket(config(url, "permits.prod")).get("layout.json", 10)
    assert paths == ["/permits.prod/prod/layout.json"]


def test_forbidden_means_not_there_yet_until_something_was_read() -> None:
    answers = [
        with_error(404, "NoSuchKey"),
        with_error(403, "AccessDenied"),
        with_body(200, b"x"),
        with_error(403, "AccessDenied"),
    ]

    def next_answer(handler: BaseHTTPRequestHandler) -> None:
        answers.pop(0)(handler)

    with serving(next_answer) as url:
        bucket = Bucket(config(url))
        assert bucket.get("layout.json", 10, may_hide=True) is None
        assert bucket.get("layout.json", 10, may_hide=True) is None
        found = bucket.get("layout.json", 10, may_hide=True)
        assert found is not None
        with pytest.raises(BalancerError, match="PERMIT_S3_BUCKET"):
            bucket.get("layout.json", 10, may_hide=True)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (412, "PreconditionFailed", ConflictError),
        (409, "ConditionalRequestConflict", ConflictError),
        (404, "NoSuchKey", ConflictError),
        (500, "InternalError", UnavailableError),
        (503, "SlowDown", UnavailableError),
        (403, "SignatureDoesNotMatch", BalancerError),
        (403, "AccessDenied", BalancerError),
        (404, "NoSuchBucket", BalancerError),
    ],
)
def test_a_put_that_is_not_taken_says_which_kind_of_fault_it_was(
    status: int, code: str, kind: type[BalancerError]
) -> None:
    with serving(with_error(status, code)) as url, pytest.raises(BalancerError) as error:
        Bucket(config(url)).put("x", b"", tag='"1"')
    assert type(error.value) is kind


def test_a_body_that_breaks_off_is_no_content() -> None:
    with (
        serving(with_body(200, b"half", length=1_000)) as url,
        pytest.raises(UnavailableError),
    ):
        Bucket(config(url)).get("x", 10_000)


def test_an_object_over_its_limit_is_refused() -> None:
    with serving(with_body(200, b"x" * 11)) as url:
        bucket = Bucket(config(url))
        with pytest.raises(BalancerError, match="over 10 bytes"):
            bucket.get("x", 10)


def test_an_unchanged_object_is_not_read_again() -> None:
    asked: list[str | None] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers.get("If-None-Match"))
        with_body(304, b"")(handler)

    with serving(answer) as url:
        assert Bucket(config(url)).get("x", 10, tag='"1"') is None
    assert asked == ['"1"']


async def test_a_store_that_never_answers_costs_its_time_and_the_loop_goes_on() -> None:
    released = threading.Event()

    def hang(_handler: BaseHTTPRequestHandler) -> None:
        released.wait(20)

    with serving(hang) as url:
        slow = S3DocumentStore(config(url))
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        started = time.monotonic()
        with pytest.raises(UnavailableError):
            await slow.load(0, now_ms=0)
        assert time.monotonic() - started < 15
        ticking.cancel()
        assert ticks > 0
        released.set()
        slow.close()


async def test_a_store_that_drips_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CALL_SECONDS", 0.5)
    released = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("ETag", '"1"')
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        while not released.wait(0.05):
            handler.wfile.write(b"x")

    with serving(drip) as url:
        slow = S3DocumentStore(config(url))
        with pytest.raises(UnavailableError, match="within"):
            await slow.open_layout(4)
        released.set()
        slow.close()


async def test_a_store_that_is_not_there_is_unavailable() -> None:
    with serving(with_body(200, b"")) as url:
        pass
    away = S3DocumentStore(config(url))
    with pytest.raises(UnavailableError):
        await away.publish(document(1, "a"), keep=(), tag=None)
    away.close()


def test_buckets_are_opened_by_many_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "READ_SECONDS", 30)
    with serving(with_body(200, b"x")) as url, ThreadPoolExecutor(24) as threads:
        start = threading.Barrier(24)

        def open_and_read(_number: int) -> bool:
            start.wait(30)
            return Bucket(config(url)).get("x", 10) is not None

        assert all(threads.map(open_and_read, range(24)))


def test_a_wrong_address_is_told_with_the_setting() -> None:
    with pytest.raises(BalancerError, match="PERMIT_S3_ENDPOINT_URL"):
        Bucket(config("localhost"))
