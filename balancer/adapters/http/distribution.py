"""``GET /distribution/<host>``: what a host may send, from memory.

Decides when an answer is held back until it changes, and how many may wait. Knows nothing of how
shares come about.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from multidict import CIMultiDict

from balancer.adapters.http.paths import name_in
from balancer.adapters.http.problems import problem
from balancer.app import catalogue
from balancer.app.readiness import NOT_SERVED
from balancer.app.view import Answer, DistributionView
from balancer.errors import BalancerError
from balancer.ports import Metrics
from worker_sdk.errors import WireError
from worker_sdk.wire.spoken import NOBODY, ROUND_HEADER
from worker_sdk.wire.strict import check_name

WAIT_MAX_SECONDS: Final = 60.0
KNOWN_MAX: Final = 200_000
KNOWN_AT_ONCE: Final = 2
"""Strangers may ask in thousands; rounds and reports need the database more than they do."""

KNOWN_SECONDS: Final = 5.0
"""So long a stranger's question may take, its turn included."""

NO_CACHE: Final = (hdrs.CACHE_CONTROL, "no-cache")
JSON_TYPE: Final = (hdrs.CONTENT_TYPE, "application/json")

KnownHost = Callable[[str], Awaitable[bool]]


class Distribution:
    """The route's handler.

    Args:
        view: what is served.
        known_host: says whether anybody under a host's name is on record; asked only about hosts
            without a share, and once for each that is.
        metrics: counts.
        waiters_max: so many requests may wait at once.
        round_seconds: length of a round, told with each answer.

    Attributes:
        waiters_max: as given.
    """

    def __init__(
        self,
        view: DistributionView,
        known_host: KnownHost,
        metrics: Metrics,
        *,
        waiters_max: int,
        round_seconds: int,
    ) -> None:
        self._view = view
        self._known_host = known_host
        self._metrics = metrics
        self.waiters_max = waiters_max
        self._round = (ROUND_HEADER, str(round_seconds))
        self._waiters = 0
        self._known: set[str] = set()
        self._asking = asyncio.Semaphore(KNOWN_AT_ONCE)
        self._closing = False

    def close(self) -> None:
        """Let every waiter go with what there is."""
        self._closing = True
        self._view.wake()

    async def get(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer for one host."""
        host = name_in(request, 2)
        if not self._view.follows:
            return problem(HTTPStatus.NOT_IMPLEMENTED, NOT_SERVED)
        instance, wait_seconds = None, 0.0
        if request.rel_url.raw_query_string:
            query = request.query
            instance, wait_seconds = (
                _instance(query.get("instance")),
                _wait_seconds(query.get("wait")),
            )
        if not self._view.is_complete:
            detail = "the balancer has not read the distribution yet"
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "1"})
        known_tag = request.headers.get("If-None-Match")
        version = self._view.version
        answer = self._view.answer(host, instance) or await self._empty_answer(host)
        if wait_seconds > 0 and _is_old(answer, known_tag):
            if self._waiters >= self.waiters_max:
                detail = f"{self.waiters_max} requests wait already; ask again later"
                return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "1"})
            answer = await self._changed(host, instance, known_tag, version, wait_seconds)
        return _response(answer, known_tag, self._round)

    async def _changed(
        self,
        host: str,
        instance: str | None,
        known_tag: str | None,
        version: int,
        wait_seconds: float,
    ) -> Answer | None:
        """Wait until there is another answer than the one known, or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        self._waiters += 1
        self._metrics.gauge(catalogue.HTTP_WAITING, self._waiters)
        try:
            while True:
                remaining_seconds = deadline - loop.time()
                if remaining_seconds > 0 and not self._closing:
                    version = await self._view.wait_changed(host, version, remaining_seconds)
                answer = self._view.answer(host, instance) or await self._empty_answer(host)
                if not _is_old(answer, known_tag) or remaining_seconds <= 0 or self._closing:
                    return answer
        finally:
            self._waiters -= 1
            self._metrics.gauge(catalogue.HTTP_WAITING, self._waiters)

    async def _empty_answer(self, host: str) -> Answer | None:
        """Return the answer about a host without a share, None where nobody has seen it."""
        if host not in self._known:
            try:
                async with asyncio.timeout(KNOWN_SECONDS), self._asking:
                    if not await self._known_host(host):
                        return None
            except (BalancerError, TimeoutError):
                return None  # nobody can say; for the worker it is the same as not seen
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known.add(host)
        return self._view.empty_answer(host)


def _instance(text: str | None) -> str | None:
    try:
        return None if text is None else check_name(text, "instance")
    except WireError as error:
        raise web.HTTPBadRequest(text=str(error)) from error


def _wait_seconds(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= WAIT_MAX_SECONDS:
        raise web.HTTPBadRequest(
            text=f"wait must be a number of seconds from 0 to {WAIT_MAX_SECONDS:.0f}"
        )
    return seconds


def _is_old(answer: Answer | None, known_tag: str | None) -> bool:
    return answer is None or _matches(answer.tag, known_tag)


def _matches(tag: str, header: str | None) -> bool:
    if header is None:
        return False
    listed = [item.strip().removeprefix("W/") for item in header.split(",")]
    return tag in listed or "*" in listed


def _response(answer: Answer | None, known_tag: str | None, told: tuple[str, str]) -> web.Response:
    if answer is None:
        return problem(HTTPStatus.NOT_FOUND, NOBODY)
    tag = (hdrs.ETAG, answer.tag)
    if _matches(answer.tag, known_tag):
        return web.Response(
            status=HTTPStatus.NOT_MODIFIED, headers=CIMultiDict((tag, NO_CACHE, told))
        )
    return web.Response(body=answer.body, headers=CIMultiDict((JSON_TYPE, tag, NO_CACHE, told)))
