"""A store that speaks S3 over HTTP on loopback, keeps objects, and misbehaves as told.

It knows what the product asks of one: objects put conditionally, read, listed and deleted, in path
style. Whoever sends a checksum that it did not ask for is refused, as by older stores.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.answering import answering

BUCKET = "permits.prod"


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class FakeS3:
    """The objects of one bucket.

    ``refusal`` answers (status, code) to everything; with ``hides_absent`` an object that is not
    there is forbidden, as where listing is not allowed.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    refusal: tuple[int, str] | None = None
    hides_absent: bool = False
    asked: list[Asked] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        parts = urlsplit(handler.path)
        path = unquote(parts.path)
        self.asked.append(Asked(handler.command, path, headers))
        bucket, _, key = path.lstrip("/").partition("/")
        if any("checksum" in name or name == "x-amz-trailer" for name in headers):
            self._refuse(handler, 400, "InvalidArgument")
        elif self.refusal is not None:
            self._refuse(handler, *self.refusal)
        elif bucket != BUCKET:
            self._refuse(handler, 404, "NoSuchBucket")
        elif handler.command == "PUT":
            self._put(handler, key, body, headers)
        elif handler.command == "DELETE":
            self.objects.pop(key, None)
            _send(handler, 204, b"")
        elif not key:
            self._list(handler, parse_qs(parts.query))
        else:
            self._get(handler, key, headers)

    def _put(
        self, handler: BaseHTTPRequestHandler, key: str, body: bytes, headers: dict[str, str]
    ) -> None:
        known = self.objects.get(key)
        wanted = headers.get("if-match")
        is_there = headers.get("if-none-match") == "*" and known is not None
        is_another = wanted is not None and (known is None or wanted != _tag(known))
        if is_there or is_another:
            self._refuse(handler, 412, "PreconditionFailed")
        else:
            self.objects[key] = body
            _send(handler, 200, b"", _tag(body))

    def _get(self, handler: BaseHTTPRequestHandler, key: str, headers: dict[str, str]) -> None:
        body = self.objects.get(key)
        if body is None:
            absent = (403, "AccessDenied") if self.hides_absent else (404, "NoSuchKey")
            self._refuse(handler, *absent)
        elif headers.get("if-none-match") == _tag(body):
            _send(handler, 304, b"", _tag(body))
        else:
            _send(handler, 200, body, _tag(body))

    def _list(self, handler: BaseHTTPRequestHandler, query: dict[str, list[str]]) -> None:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        rows = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{_tag(body)}</ETag><Size>{len(body)}</Size></Contents>"
            for key, body in sorted(self.objects.items())
            if key.startswith(prefix) and key > after
        )
        text = f"<ListBucketResult><Name>{BUCKET}</Name>{rows}</ListBucketResult>"
        _send(handler, 200, text.encode())

    def _refuse(self, handler: BaseHTTPRequestHandler, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
        _send(handler, status, text.encode())


def _tag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _send(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, tag: str | None = None
) -> None:
    handler.send_response(status)
    if tag is not None:
        handler.send_header("ETag", tag)
    if status not in (204, 304):
        handler.send_header("Content-Type", "application/xml")
        handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if status not in (204, 304):
        handler.wfile.write(body)


def serving(store: FakeS3) -> AbstractContextManager[str]:
    """Serve the store; the context gives its address."""
    return answering(store.answer, protocol="HTTP/1.1")
