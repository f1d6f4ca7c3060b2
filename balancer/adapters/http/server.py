"""The HTTP server: routes, limits, start and stop.

Decides where it listens and how much a request may have. The handlers are beside it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from balancer.adapters.http.distribution import Distribution
from balancer.adapters.http.operations import Operations
from balancer.adapters.http.problems import counting_problems
from balancer.app import catalogue
from balancer.errors import BalancerError
from balancer.ports import Metrics

BODY_MAX_BYTES: Final = 64 * 1024
KEEP_ALIVE_SECONDS: Final = 75.0
STOP_SECONDS: Final = 2.0
BACKLOG: Final = 1_024


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 takes any free one."""

    host: str
    port: int


class _Malformed(logging.Filter):
    """Counts what is no HTTP at all, and keeps it out of the log.

    Anybody can send it as fast as he likes, and what is told of it holds bytes of the request,
    a token perhaps.
    """

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record is to be logged."""
        if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
            self._metrics.count(catalogue.HTTP_REQUESTS, 1, {"route": "none", "status": "400"})
            return False
        return record.levelno >= logging.WARNING


class HttpServer:
    """Serves from `start` to `stop`."""

    def __init__(
        self, distribution: Distribution, operations: Operations, metrics: Metrics
    ) -> None:
        self._distribution = distribution
        app = web.Application(
            client_max_size=BODY_MAX_BYTES, middlewares=[counting_problems(metrics)]
        )
        app.add_routes(
            [
                web.get("/distribution/{host:[^/]+}", distribution.get),
                web.get("/destinations", operations.list),
                web.get("/destinations/{name:[^/]+}", operations.show),
                web.put("/destinations/{name:[^/]+}", operations.put),
                web.delete("/destinations/{name:[^/]+}", operations.delete),
                web.get("/destinations/{name:[^/]+}/distribution", operations.distribution),
                web.get("/destinations/{name:[^/]+}/explain", operations.explain),
                web.get("/destinations/{name:[^/]+}/history", operations.history),
                web.get("/healthz", operations.health),
                web.get("/readyz", operations.ready),
                web.get("/metrics", operations.metrics),
            ]
        )
        log = logging.Logger("balancer.http.protocol", logging.DEBUG)  # some of it is told so low
        log.parent = logging.getLogger("balancer.http")
        log.addFilter(_Malformed(metrics))
        self._runner = web.AppRunner(
            app,
            logger=log,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            shutdown_timeout=STOP_SECONDS,
            # A waiter whose client has gone must not wait on.
            handler_cancellation=True,
        )

    async def start(self, address: Address) -> Address:
        """Listen; return where, with the port taken.

        Raises:
            BalancerError: where the address cannot be taken.
        """
        await self._runner.setup()
        site = web.TCPSite(self._runner, address.host, address.port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise BalancerError(
                f"cannot listen on {address.host}:{address.port} ({error.strerror or error}); "
                "check PERMIT_HTTP_HOST and PERMIT_HTTP_PORT"
            ) from error
        return Address(address.host, self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Take no more requests, let those that wait go, and close."""
        self._distribution.close()
        await self._runner.cleanup()
