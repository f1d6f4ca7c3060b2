"""Shares from the balancer's HTTP interface, with the standard library alone.

Decides how to ask and which answers count. Knows nothing of permits. Each question has a connection
of its own, so that none can be lost to one that the other side is just closing.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from worker_sdk.errors import ConfigurationError, TransportError, WireError
from worker_sdk.transports.base import Deadline, Identity, Reading
from worker_sdk.transports.dates import Dates, mono_ms
from worker_sdk.wire.answers import decode_host_answer
from worker_sdk.wire.fellows import instances_in_answer
from worker_sdk.wire.limits import ANSWER_MAX_BYTES, WINDOW_SECONDS_MAX
from worker_sdk.wire.spoken import NOBODY, ROUND_HEADER

if TYPE_CHECKING:
    from typing_extensions import Buffer

ANSWER_SECONDS: Final = 5.0
"""How long an answer may take beyond the wait that was asked for."""

WAIT_MAX_SECONDS: Final = 60.0
READS_ALONE: Final = 4
"""After so many answers about the member alone, or one without any share, all of its host's are
asked for."""

SECONDS_DIGITS: Final = 9
_CHUNK_BYTES: Final = 64 * 1024


def quoted_host(host: str) -> str:
    """Return a host as one segment of a path, whatever is in its name."""
    quoted = quote(host, safe="")
    return quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted


class NotFound(TransportError):  # noqa: N818 - by this name it is counted
    """What answers is no balancer, or is asked under a wrong path."""


class HttpSource:
    """A share source on a balancer.

    Args:
        identity: whose shares.
        url: ``http://balancer:8080`` or ``https://...``, a path before the route included.

    Raises:
        ConfigurationError: where it is no such address.
    """

    can_wait = True

    def __init__(self, identity: Identity, url: str) -> None:
        self._identity = identity
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise _no_address(url) from error
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise _no_address(url)
        self._is_tls = parts.scheme == "https"
        self._host = parts.hostname
        self._port = port
        path = parts.path.rstrip("/")
        self._address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"
        self._target_of_host = f"{path}/distribution/{quoted_host(identity.host)}"
        self._target = f"{self._target_of_host}?instance={quote(identity.instance, safe='')}"
        self._answers = 0
        self._dates = Dates()
        self._etag: str | None = None
        self._connection: http.client.HTTPConnection | None = None

    def read(self, held: Mapping[int, int], wait_seconds: float) -> Reading:
        """Return every share of the answer if it changed; what is held already does no harm."""
        wait_seconds = min(wait_seconds, WAIT_MAX_SECONDS)
        deadline = Deadline(wait_seconds + ANSWER_SECONDS)
        target = self._target if wait_seconds <= 0 else f"{self._target}&wait={wait_seconds:g}"
        if is_of_host := self._answers >= READS_ALONE:
            target = self._target_of_host
        kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=deadline.remaining_seconds())
        connection.response_class = _answers_until(deadline)
        self._connection = connection
        try:
            headers = {"Accept": "application/json", "Connection": "close"}
            if self._etag is not None and not is_of_host:
                headers["If-None-Match"] = self._etag
            asked_mono_ms = mono_ms()
            connection.request("GET", target, headers=headers)
            with connection.getresponse() as answer:  # it holds the socket open, read or not
                self._dates.note(asked_mono_ms, answer.getheader("Date"), answer.getheader("Age"))
                reading = self._taken(answer, deadline, is_of_host=is_of_host)
                round_seconds = _seconds(answer.getheader(ROUND_HEADER))
            return replace(reading, dates=self._dates.take(), round_seconds=round_seconds)
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = str(error) or type(error).__name__
            raise TransportError(f"balancer at {self._address}: {why}") from error
        finally:
            self._connection = None
            connection.close()

    def _taken(
        self, answer: http.client.HTTPResponse, deadline: Deadline, *, is_of_host: bool
    ) -> Reading:
        self._answers = 0 if is_of_host else self._answers + 1
        if answer.status == 304:
            return Reading()
        if answer.status == 404:
            if NOBODY.encode() not in _read_body(answer, deadline):
                raise NotFound(
                    f"balancer: 404 at {self._address}/distribution/...: is that a balancer's "
                    "address, without anything behind it? An example: http://balancer:8080"
                )
            if not is_of_host:
                self._etag = answer.getheader("ETag")
            return Reading()
        if answer.status == 501:
            raise NotFound(
                f"balancer at {self._address}: it answers no worker, as PERMIT_HTTP_DISTRIBUTION "
                "is false there; read S3 instead, for example distribution='s3://permits/prod'"
            )
        if answer.status != 200:
            raise TransportError(f"balancer at {self._address}: it answers {answer.status}")
        body = _read_body(answer, deadline)
        try:
            shares = decode_host_answer(body, self._identity.instance, self._identity.host)
            if is_of_host:
                return Reading(shares, instances=instances_in_answer(body))
        except WireError as error:
            return Reading((), (error.reason.value,))
        self._etag = answer.getheader("ETag")
        if not shares:
            self._answers = READS_ALONE  # known, and without a share: what the host has says why
        return Reading(shares)

    def interrupt(self) -> None:
        """Break the connection of a question that waits."""
        connection = self._connection
        opened = None if connection is None else connection.sock
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)


def _seconds(text: str | None) -> int | None:
    """Return a round's length; None where none is told, as by a balancer of an older version."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= SECONDS_DIGITS):
        return None
    seconds = int(text)
    return seconds if 1 <= seconds <= WINDOW_SECONDS_MAX else None


def _no_address(url: str) -> ConfigurationError:
    shown = url.rpartition("@")[2]  # a password may stand before it
    return ConfigurationError(
        f"distribution: {shown!r} is no HTTP address; an example: http://balancer:8080"
    )


class _BoundedReader(io.RawIOBase):
    """A connection's bytes until a deadline: head and body that drip cannot outlast it."""

    def __init__(self, opened: socket.socket, raw: io.RawIOBase, deadline: Deadline) -> None:
        self._opened = opened
        self._raw = raw
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, into: Buffer) -> int | None:
        self._deadline.check("reading an answer")
        self._opened.settimeout(max(0.001, self._deadline.remaining_seconds()))
        return self._raw.readinto(into)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _answers_until(deadline: Deadline) -> type[http.client.HTTPResponse]:
    class BoundedResponse(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
            super().__init__(sock, *arguments, **named)
            self.fp = io.BufferedReader(_BoundedReader(sock, self.fp.detach(), deadline))

    return BoundedResponse


def _read_body(answer: http.client.HTTPResponse, deadline: Deadline) -> bytes:
    chunks: list[bytes] = []
    size_bytes = 0
    # read1 returns what is there: a drip of bytes cannot outlast the deadline.
    while chunk := answer.read1(_CHUNK_BYTES):
        size_bytes += len(chunk)
        if size_bytes > ANSWER_MAX_BYTES:
            raise TransportError(f"an answer is over {ANSWER_MAX_BYTES} bytes")
        chunks.append(chunk)
        deadline.check("reading an answer")
    if answer.length:
        raise TransportError("an answer was cut short")
    return b"".join(chunks)
