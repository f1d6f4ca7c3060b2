"""Shares from the balancer's HTTP interface, with the standard library alone.

Decides how to ask and which answers count. Knows nothing of permits. Each question has a connection
of its own, so that none can be lost to one that the other side is just closing.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlsplit

from worker_sdk.errors import ConfigurationError, TransportError, WireError
from worker_sdk.transports.base import Deadline, Identity, Reading
from worker_sdk.wire.answers import decode_host_answer
from worker_sdk.wire.limits import ANSWER_MAX_BYTES

ANSWER_SECONDS: Final = 5.0
"""How long an answer may take beyond the wait that was asked for."""

WAIT_MAX_SECONDS: Final = 60.0
_CHUNK_BYTES: Final = 64 * 1024


def quoted_host(host: str) -> str:
    """Return a host as one segment of a path, whatever is in its name."""
    quoted = quote(host, safe="")
    return quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted


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
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in {"http", "https"} or not parts.hostname or port == -1:
            raise ConfigurationError(
                f"distribution: {url!r} is no HTTP address; an example: http://balancer:8080"
            )
        self._is_tls = parts.scheme == "https"
        self._host = parts.hostname
        self._port = port
        path = parts.path.rstrip("/")
        self._target = (
            f"{path}/distribution/{quoted_host(identity.host)}"
            f"?instance={quote(identity.instance, safe='')}"
        )
        self._etag: str | None = None
        self._connection: http.client.HTTPConnection | None = None

    def read(self, held: Mapping[int, int], wait_seconds: float) -> Reading:
        """Return every share of the answer if it changed; what is held already does no harm."""
        wait_seconds = min(wait_seconds, WAIT_MAX_SECONDS)
        deadline = Deadline(wait_seconds + ANSWER_SECONDS)
        target = self._target if wait_seconds <= 0 else f"{self._target}&wait={wait_seconds:g}"
        kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=deadline.remaining_seconds())
        self._connection = connection
        try:
            headers = {"Accept": "application/json", "Connection": "close"}
            if self._etag is not None:
                headers["If-None-Match"] = self._etag
            connection.request("GET", target, headers=headers)
            return self._taken(connection.getresponse(), deadline)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TransportError(f"balancer: {str(error) or type(error).__name__}") from error
        finally:
            self._connection = None
            connection.close()

    def _taken(self, answer: http.client.HTTPResponse, deadline: Deadline) -> Reading:
        if answer.status == 304:
            return Reading()
        if answer.status == 404:
            self._etag = answer.getheader("ETag")
            return Reading()
        if answer.status != 200:
            raise TransportError(f"balancer: it answers {answer.status}")
        body = _read_body(answer, deadline)
        try:
            shares = decode_host_answer(body, self._identity.instance, self._identity.host)
        except WireError as error:
            return Reading((), (error.reason.value,))
        self._etag = answer.getheader("ETag")
        return Reading(shares)

    def interrupt(self) -> None:
        """Break the connection of a question that waits."""
        connection = self._connection
        opened = None if connection is None else connection.sock
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)


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
