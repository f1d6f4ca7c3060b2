"""The HTTP source, against servers on loopback that answer well and badly."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote

import pytest

from tests.golden import examples
from tests.support.answering import answering
from worker_sdk.errors import ConfigurationError, TransportError
from worker_sdk.transports import http as http_module
from worker_sdk.transports.base import Identity, names_of
from worker_sdk.transports.http import HttpSource
from worker_sdk.wire.answers import decode_host_answer, encode_host_answer
from worker_sdk.wire.distribution import Document
from worker_sdk.wire.spoken import NOBODY, ROUND_HEADER
from worker_sdk.wire.strict import dump_json

HOST, INSTANCE = "worker-07", "5f0c9a52d1e84b7c"
IDENTITY = Identity(HOST, INSTANCE, ("orders-db",))

Answer = Callable[[BaseHTTPRequestHandler], None]

UNSEEN = dump_json({"title": "Not Found", "status": 404, "detail": NOBODY})


def body_of(document: Document = examples.DOCUMENT) -> bytes:
    body = encode_host_answer(HOST, examples.SHARDS, [document], None)
    assert body is not None
    return body


def with_body(status: int, body: bytes, etag: str = '"1"', length: int | None = None) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("ETag", etag)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def serving(answer: Answer) -> AbstractContextManager[str]:
    return answering(lambda handler, _: answer(handler))


def test_an_answer_gives_its_shares_and_an_unchanged_one_nothing() -> None:
    asked: list[str | None] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers.get("If-None-Match"))
        if asked[-1] == '"1"':
            handler.send_response(304)
            handler.end_headers()
        else:
            with_body(200, body_of())(handler)

    with serving(answer) as url:
        source = HttpSource(IDENTITY, url)
        assert source.read({}, 0).shares == decode_host_answer(body_of(), INSTANCE)
        assert source.read({}, 0).shares == ()
    assert asked == [None, '"1"']


def test_the_question_names_instance_and_wait() -> None:
    paths: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        paths.append(handler.path)
        with_body(404, UNSEEN)(handler)

    with serving(answer) as url:
        source = HttpSource(IDENTITY, f"{url}/permits/")
        assert source.read({}, 2.5).shares == ()
        source.read({}, 0)
    first, second = paths
    assert first.startswith("/permits/distribution/worker-07?")
    assert parse_qs(first.partition("?")[2]) == {"instance": [INSTANCE], "wait": ["2.5"]}
    assert "wait" not in second


def test_after_an_answer_without_any_share_all_of_the_hosts_are_asked_for_once() -> None:
    asked_instances: list[bool] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked_instances.append("instance=" in handler.path)
        if handler.headers.get("If-None-Match") == '"1"':
            handler.send_response(304)
            handler.end_headers()
        else:
            with_body(200, dump_json({"host": HOST, "shards": 8, "destinations": {}}))(handler)

    with serving(answer) as url:
        source = HttpSource(IDENTITY, url)
        found = [source.read({}, 0).instances for _ in range(4)]
    assert asked_instances == [True, False, True, True]
    # A host that is known has a set, if an empty one: its destination is what is missing.
    assert found == [None, frozenset(), None, None]


ODD_HOSTS = [
    "a/b", "a b", "..", ".", "50%", "a?b", "a#b", "a%2Fb", "[::1]:8080", "fe80::1%eth0",
    "日本-01", "x" * 255,
]  # fmt: skip


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_any_legal_host_name_is_asked_for_exactly(host: str) -> None:
    paths: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        paths.append(handler.path)
        with_body(404, UNSEEN)(handler)

    with serving(answer) as url:
        HttpSource(Identity(host, INSTANCE, ("db",)), url).read({}, 0)
    segments = paths[0].partition("?")[0].split("/")
    assert [unquote(segment) for segment in segments[1:]] == ["distribution", host]
    assert segments[2] not in {".", ".."}


def test_a_balancer_that_answers_no_worker_is_told_with_what_to_do() -> None:
    with serving(with_body(501, b"{}")) as url, pytest.raises(TransportError) as raised:
        HttpSource(IDENTITY, url).read({}, 0)
    assert "read S3 instead" in str(raised.value)


@pytest.mark.parametrize(
    "body", [b"", b"<h1>Not Found</h1>", b'{"status":404,"detail":"404: Not Found"}']
)
def test_a_404_that_says_nothing_of_the_host_is_of_a_wrong_address(body: bytes) -> None:
    with serving(with_body(404, body)) as url:
        source = HttpSource(IDENTITY, f"{url.replace('//', '//me:hunter2@')}/prod/")
        with pytest.raises(TransportError, match=r"404 at http://127.0.0.1:\d+/prod/") as raised:
            source.read({}, 0)
    assert names_of(raised.value) == "NotFound"
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10", 10), (None, None), ("0", None), ("-1", None), ("1.5", None), ("9" * 400, None)],
)
def test_the_length_of_a_round_is_taken_from_the_header_if_it_is_one(
    text: str | None, seconds: int | None
) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(304)
        if text is not None:
            handler.send_header(ROUND_HEADER, text)
        handler.end_headers()

    with serving(answer) as url:
        assert HttpSource(IDENTITY, url).read({}, 0).round_seconds == seconds


@pytest.mark.parametrize("status", [301, 400, 403, 500, 503])
def test_any_other_status_is_a_failure(status: int) -> None:
    with serving(with_body(status, b"{}")) as url, pytest.raises(TransportError, match=str(status)):
        HttpSource(IDENTITY, url).read({}, 0)


def test_wrong_answers_are_refused_and_the_next_good_one_is_taken() -> None:
    good = body_of()
    other = good.replace(b"worker-07", b"worker-08")
    bodies = [b"", b"not json", good[:-1], b"[]", other, good]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        with_body(200, bodies.pop(0))(handler)

    with serving(answer) as url:
        source = HttpSource(IDENTITY, url)
        for _ in range(5):
            reading = source.read({}, 0)
            assert reading.shares == ()
            assert len(reading.failures) == 1
        assert len(source.read({}, 0).shares) == 1


def test_an_answer_cut_short_is_a_failure() -> None:
    body = body_of()
    answer = with_body(200, body, length=len(body) + 10)
    with serving(answer) as url, pytest.raises(TransportError):
        HttpSource(IDENTITY, url).read({}, 0)


def test_an_answer_beyond_the_limit_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "ANSWER_MAX_BYTES", 1000)
    with (
        serving(with_body(200, b"x" * 5000)) as url,
        pytest.raises(TransportError, match="over 1000 bytes"),
    ):
        HttpSource(IDENTITY, url).read({}, 0)


def test_a_balancer_that_never_answers_is_bounded_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_module, "ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = HttpSource(IDENTITY, f"http://127.0.0.1:{silent.getsockname()[1]}")
        started = time.monotonic()
        with pytest.raises(TransportError):
            source.read({}, 0)
        assert time.monotonic() - started < 5


def test_an_answer_that_drips_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "ANSWER_SECONDS", 0.5)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        for _ in range(200):
            try:
                handler.wfile.write(b" ")
                handler.wfile.flush()
            except OSError:
                return
            time.sleep(0.05)

    with serving(answer) as url:
        started = time.monotonic()
        with pytest.raises(TransportError):
            HttpSource(IDENTITY, url).read({}, 0)
        assert time.monotonic() - started < 5


def test_a_head_that_drips_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "ANSWER_SECONDS", 0.5)
    given_up = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Long: ")
        while not given_up.wait(0.05):
            try:
                handler.wfile.write(b"x")
                handler.wfile.flush()
            except OSError:
                return

    with serving(answer) as url:
        started = time.monotonic()
        try:
            with pytest.raises(TransportError):
                HttpSource(IDENTITY, url).read({}, 0)
        finally:
            given_up.set()
        assert time.monotonic() - started < 5


def test_an_address_that_is_refused_shows_no_password() -> None:
    with pytest.raises(ConfigurationError) as refused:
        HttpSource(IDENTITY, "http://user:secret@balancer:99999")
    assert "secret" not in str(refused.value)


def test_a_question_that_waits_can_be_interrupted() -> None:
    asked = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.set()
        handler.rfile.read(1)  # until the other side goes

    with serving(answer) as url:
        source = HttpSource(IDENTITY, url)
        ended = threading.Event()

        def ask() -> None:
            with pytest.raises(TransportError):
                source.read({}, 50)
            ended.set()

        threading.Thread(target=ask, daemon=True).start()
        assert asked.wait(10)
        source.interrupt()
        assert ended.wait(10)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "balancer:8080", "http://x:port"])
def test_addresses_are_checked(url: str) -> None:
    with pytest.raises(ConfigurationError, match="http://balancer:8080"):
        HttpSource(IDENTITY, url)


def test_documents_in_which_the_host_has_nothing_are_read_as_nothing() -> None:
    without = tuple(
        dataclasses.replace(shares, entries=()) for shares in examples.DOCUMENT.destinations
    )
    newer = dataclasses.replace(examples.DOCUMENT, epoch=4712, destinations=without)
    body = encode_host_answer(HOST, 8, [newer, examples.DOCUMENT], None)
    assert body is not None
    with serving(with_body(200, body)) as url:
        shares = HttpSource(IDENTITY, url).read({}, 0).shares
    assert {share.epoch: bool(share.intervals) for share in shares} == {4711: True, 4712: False}
