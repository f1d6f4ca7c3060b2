"""Connections and their limits: how many, how long one may say nothing, how slowly it may read.

Decides when a connection is closed without being asked. Knows no route.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from balancer.adapters.http.routes import NOWHERE, Handler
from balancer.app import catalogue
from balancer.ports import Metrics

KEEP_ALIVE_SECONDS: Final = 75.0
"""Between two requests of a connection; a head that comes more slowly ends it as well."""

FIRST_SECONDS: Final = 10.0
"""So long the first request's head may take."""

SLOW_READER_MS: Final = 30_000
"""So long a client may leave what was sent to it where it is."""

BODY_MAX_BYTES: Final = 64 * 1024

_TOO_MANY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
    b"Connection: close\r\n\r\n"
)


class Connections(web.Server):
    """aiohttp's server with limits on connections.

    Args:
        handler: answers every request.
        metrics: counts those that are turned away.
        logger: for what is no HTTP.
        connections_max: so many at once; one more is told to come again.
    """

    def __init__(
        self, handler: Handler, metrics: Metrics, logger: logging.Logger, *, connections_max: int
    ) -> None:
        super().__init__(
            handler,
            request_factory=self._request,
            # A waiter whose client has gone must not wait on.
            handler_cancellation=True,
            logger=logger,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )
        self._metrics = metrics
        self._connections_max = connections_max
        self._open = 0
        self._silent: dict[web.RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Take a connection, or turn it away."""
        super().connection_made(handler, transport)
        self._open += 1
        if self._open > self._connections_max:
            self._metrics.count(
                catalogue.HTTP_REQUESTS, 1, {"route": NOWHERE.name, "status": "503"}
            )
            transport.write(_TOO_MANY)
            transport.close()
            return
        with contextlib.suppress(OSError, AttributeError):  # not every system knows it
            transport.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SLOW_READER_MS
            )
        self._silent[handler] = self._loop.call_later(FIRST_SECONDS, transport.abort)

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        """Let a connection go."""
        super().connection_lost(handler, exc)
        self._open -= 1
        self._heard(handler)

    def _heard(self, handler: web.RequestHandler) -> None:
        timer = self._silent.pop(handler, None)
        if timer is not None:
            timer.cancel()

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        self._heard(protocol)
        return web.BaseRequest(
            message, payload, protocol, writer, task, self._loop, client_max_size=BODY_MAX_BYTES
        )
