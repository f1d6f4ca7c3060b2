"""The HTTP server: routes, limits, start and stop.

Decides where it listens and how much a request may have. The handlers are beside it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from balancer.adapters.http.connections import Connections
from balancer.adapters.http.distribution import Distribution
from balancer.adapters.http.operations import Operations
from balancer.adapters.http.problems import answering
from balancer.adapters.http.routes import NOWHERE, Routes
from balancer.app import catalogue
from balancer.errors import BalancerError
from balancer.ports import Metrics

STOP_SECONDS: Final = 2.0
SPARE_CONNECTIONS: Final = 256
"""So many connections beside those that wait; a waiter never keeps a probe out."""

BACKLOG: Final = 1_024


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 takes any free one, a shared one has room for other processes."""

    host: str
    port: int
    shared: bool = False


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
            self._metrics.count(
                catalogue.HTTP_REQUESTS, 1, {"route": NOWHERE.name, "status": "400"}
            )
            return False
        return record.levelno >= logging.WARNING


class HttpServer:
    """Serves from `start` to `stop`."""

    def __init__(
        self, distribution: Distribution, operations: Operations, metrics: Metrics
    ) -> None:
        self._distribution = distribution
        self._metrics = metrics
        self._answer = answering(_routes(distribution, operations), metrics)
        self._runner: web.ServerRunner | None = None

    async def start(self, address: Address) -> Address:
        """Listen; return where, with the port taken.

        Raises:
            BalancerError: where the address cannot be taken.
        """
        log = logging.Logger("balancer.http.protocol", logging.DEBUG)  # some of it is told so low
        log.parent = logging.getLogger("balancer.http")
        log.addFilter(_Malformed(self._metrics))
        connections = Connections(
            self._answer,
            self._metrics,
            log,
            connections_max=self._distribution.waiters_max + SPARE_CONNECTIONS,
        )
        runner = web.ServerRunner(connections, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        site = web.TCPSite(
            runner,
            address.host,
            address.port,
            backlog=BACKLOG,
            reuse_port=True if address.shared else None,
        )
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise BalancerError(
                f"cannot listen on {address.host}:{address.port} ({error.strerror or error}); "
                "check PERMIT_HTTP_HOST and PERMIT_HTTP_PORT"
            ) from error
        self._runner = runner
        return Address(address.host, runner.addresses[0][1])

    async def stop(self) -> None:
        """Take no more requests, let those that wait go, and close."""
        self._distribution.close()
        if self._runner is not None:
            await self._runner.cleanup()


def _routes(distribution: Distribution, operations: Operations) -> Routes:
    return Routes(
        {
            "/distribution/{host}": {"GET": distribution.get},
            "/destinations": {"GET": operations.list},
            "/destinations/{name}": {
                "GET": operations.show,
                "PUT": operations.put,
                "DELETE": operations.delete,
            },
            "/destinations/{name}/distribution": {"GET": operations.distribution},
            "/destinations/{name}/explain": {"GET": operations.explain},
            "/destinations/{name}/history": {"GET": operations.history},
            "/healthz": {"GET": operations.health},
            "/readyz": {"GET": operations.ready},
            "/readyz/{dependency}": {"GET": operations.ready_in},
            "/metrics": {"GET": operations.metrics},
        }
    )
