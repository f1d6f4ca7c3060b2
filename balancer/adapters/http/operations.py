"""Destinations for operators, health and metrics.

Decides who may change something: anybody where only this machine can ask, else whoever has the
token. What a change means is the application's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from balancer.adapters.http.bodies import read_change
from balancer.adapters.http.paths import name_in
from balancer.adapters.http.problems import problem
from balancer.app.destinations import as_json, changed
from balancer.app.explanation import (
    MEMBERS_DEFAULT,
    MEMBERS_MAX,
    Explanation,
    dated,
    explained,
    explanation_as_json,
    not_planned,
)
from balancer.app.history_report import (
    ROUNDS_DEFAULT,
    at_moment,
    in_stretch,
    moment_as_json,
    stretch_as_json,
)
from balancer.app.instants import parse_instant
from balancer.app.readiness import Readiness
from balancer.app.view import destination_answer
from balancer.core.model import Destination
from balancer.errors import BalancerError, InstantError
from balancer.ports import Clock, Repository
from worker_sdk.errors import WireError
from worker_sdk.wire.distribution import Document
from worker_sdk.wire.strict import check_name, dump_json

BODY_SECONDS: Final = 10.0
"""So long a request's body may take."""

LIMIT_CHARS: Final = 9
HOUR_MS: Final = 3_600_000
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def _json(value: object, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(status=status, body=dump_json(value), content_type="application/json")


async def _body(request: web.BaseRequest) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(text="the body did not come in time") from error


def _host(text: str | None) -> str | None:
    try:
        return None if text is None else check_name(text, "host")
    except WireError as error:
        raise web.HTTPBadRequest(text=f"host is no legal name: {error}") from error


def _limit(text: str | None, default: int = MEMBERS_DEFAULT) -> int:
    if text is None:
        return default
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= LIMIT_CHARS else 0
    if not 1 <= number <= MEMBERS_MAX:
        raise web.HTTPBadRequest(text=f"limit must be a whole number from 1 to {MEMBERS_MAX}")
    return number


def _explanation(found: Explanation, documents: Sequence[Document]) -> dict[str, object]:
    return explanation_as_json(dated(found, documents))


class Operations:
    """The handlers.

    Args:
        repository: gives the destinations; None until it is connected.
        documents: gives a destination's shard, and what is published of it.
        readiness: what is known of dependencies.
        clock: for the instant of a change.
        metrics_text: gives the metrics.
        token: needed for changes; None where they are free.
        round_seconds: length of a round.
        on_change: called after a change.
    """

    def __init__(
        self,
        *,
        repository: Callable[[], Repository],
        documents: Callable[[str], Awaitable[tuple[int, Sequence[Document]]]],
        readiness: Readiness,
        clock: Clock,
        metrics_text: Callable[[], bytes],
        token: str | None,
        round_seconds: int,
        on_change: Callable[[], None],
    ) -> None:
        self._repository = repository
        self._documents = documents
        self._readiness = readiness
        self._clock = clock
        self._metrics_text = metrics_text
        self._token = token
        self._round_seconds = round_seconds
        self._on_change = on_change

    async def list(self, _request: web.BaseRequest) -> web.StreamResponse:
        """``GET /destinations``."""
        found = await self._repository().list_destinations()
        return _json({"destinations": [as_json(destination) for destination in found]})

    async def show(self, request: web.BaseRequest) -> web.StreamResponse:
        """``GET /destinations/<name>``."""
        destination = await self._find(name_in(request, 2))
        if destination is None or destination.removed:
            return problem(HTTPStatus.NOT_FOUND, "there is no such destination")
        return _json(as_json(destination))

    async def put(self, request: web.BaseRequest) -> web.StreamResponse:
        """``PUT /destinations/<name>``: 201 where it is new, else 200; the answer is the whole."""
        self._authorize(request)
        name = name_in(request, 2)
        change = read_change(await _body(request), name)
        destination = changed(
            await self._find(name),
            name,
            capacity=change.capacity,
            window_seconds=change.window_seconds,
            policy=change.policy,
            now_ms=self._clock.now_ms(),
            round_seconds=self._round_seconds,
        )
        created = await self._repository().put_destination(destination)
        self._on_change()
        return _json(as_json(destination), HTTPStatus.CREATED if created else HTTPStatus.OK)

    async def delete(self, request: web.BaseRequest) -> web.StreamResponse:
        """``DELETE /destinations/<name>``."""
        self._authorize(request)
        name = name_in(request, 2)
        if not await self._repository().remove_destination(name, now_ms=self._clock.now_ms()):
            return problem(HTTPStatus.NOT_FOUND, "there is no such destination")
        self._on_change()
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def distribution(self, request: web.BaseRequest) -> web.StreamResponse:
        """``GET /destinations/<name>/distribution``."""
        name = name_in(request, 2)
        answer = destination_answer(name, *await self._documents(name))
        if answer is not None:
            return web.Response(
                body=answer.body, content_type="application/json", headers={"ETag": answer.tag}
            )
        if await self._find(name) is None:
            return problem(HTTPStatus.NOT_FOUND, "there is no such destination")
        return _json({"destination": name, "documents": []})

    async def explain(self, request: web.BaseRequest) -> web.StreamResponse:
        """``GET /destinations/<name>/explain``: why members have their shares."""
        name, host = name_in(request, 2), _host(request.query.get("host"))
        limit = _limit(request.query.get("limit"))
        at_ms = self._instant(request, "at")
        found = await explained(self._repository(), name, host=host, limit=limit, at_ms=at_ms)
        if found is None:
            return problem(HTTPStatus.NOT_FOUND, "there is no such destination")
        if host is not None and not found.cases:
            return problem(HTTPStatus.NOT_FOUND, not_planned(name, host, at_ms))
        documents: Sequence[Document] = ()
        if any(case.reason.reserved_points for case in found.cases):
            with contextlib.suppress(BalancerError):  # dates are told where they can be, no more
                _, documents = await self._documents(name)
        # Sentences for many members take their time.
        return _json(await asyncio.to_thread(_explanation, found, documents))

    async def history(self, request: web.BaseRequest) -> web.StreamResponse:
        """``GET /destinations/<name>/history``: what happened, in a stretch of time or at once."""
        name, host = name_in(request, 2), _host(request.query.get("host"))
        at_ms = self._instant(request, "at")
        repository = self._repository()
        if at_ms is not None:
            if "from" in request.query or "to" in request.query:
                raise web.HTTPBadRequest(text="give at, or from and to")
            limit = _limit(request.query.get("limit"))
            told = await at_moment(repository, name, at_ms, host=host, limit=limit)
            return _json(await asyncio.to_thread(moment_as_json, name, told))
        limit = _limit(request.query.get("limit"), ROUNDS_DEFAULT)
        until_ms = self._instant(request, "to") or self._clock.now_ms()
        from_ms = self._instant(request, "from") or until_ms - HOUR_MS
        if until_ms <= from_ms:
            raise web.HTTPBadRequest(text="to must be later than from")
        stretch = await in_stretch(repository, name, (from_ms, until_ms), host=host, limit=limit)
        return _json(await asyncio.to_thread(stretch_as_json, name, stretch))

    def _instant(self, request: web.BaseRequest, name: str) -> int | None:
        text = request.query.get(name)
        try:
            return None if text is None else parse_instant(text, self._clock.now_ms())
        except InstantError as error:
            raise web.HTTPBadRequest(text=f"{name}: {error}") from error

    async def health(self, _request: web.BaseRequest) -> web.StreamResponse:
        """``GET /healthz``: the process answers."""
        return _json({"status": "ok"})

    async def ready(self, _request: web.BaseRequest) -> web.StreamResponse:
        """``GET /readyz``: which dependency is not ready."""
        report: dict[str, Any] = self._readiness.report()
        ready = self._readiness.is_ready
        return _json(report, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def ready_in(self, request: web.BaseRequest) -> web.StreamResponse:
        """``GET /readyz/<dependency>``: the same of one; ``distribution``: may workers ask here."""
        try:
            fault = self._readiness.fault_of(name_in(request, 2))
        except KeyError:
            return problem(HTTPStatus.NOT_FOUND, "there is no such dependency")
        if fault is None:
            return _json({"ready": True})
        return _json({"ready": False, "detail": fault}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def metrics(self, _request: web.BaseRequest) -> web.StreamResponse:
        """``GET /metrics``."""
        return web.Response(body=self._metrics_text(), headers={"Content-Type": METRICS_TYPE})

    async def _find(self, name: str) -> Destination | None:
        for destination in await self._repository().list_destinations(include_removed=True):
            if destination.name == name:
                return destination
        return None

    def _authorize(self, request: web.BaseRequest) -> None:
        if self._token is None:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        wanted = self._token.encode()
        is_right = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), wanted)
        if scheme.lower() != "bearer" or not is_right:
            raise web.HTTPUnauthorized(
                text="changes need the header Authorization: Bearer <PERMIT_HTTP_TOKEN>"
            )
