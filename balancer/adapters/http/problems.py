"""Every failure as ``application/problem+json`` (RFC 9457), and every request counted.

Decides which status a fault has. A fault of ours tells nothing of its inside.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import web

from balancer.adapters.http.routes import Handler, Routes
from balancer.app import catalogue
from balancer.errors import BalancerError, ConflictError, PolicyError, UnavailableError
from balancer.ports import Metrics

PROBLEM_TYPE: Final = "application/problem+json"

_log = logging.getLogger("balancer.http")


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an answer that says what is wrong."""
    value = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    return web.Response(
        status=status,
        body=json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"),
        headers=headers,
        content_type=PROBLEM_TYPE,
    )


def _translated(error: Exception) -> web.Response:
    if isinstance(error, web.HTTPException):
        kept = {name: value for name, value in error.headers.items() if name == "Allow"}
        return problem(error.status, error.text or error.reason, kept)
    if isinstance(error, PolicyError):
        return problem(HTTPStatus.BAD_REQUEST, str(error))
    if isinstance(error, ConflictError):
        return problem(HTTPStatus.CONFLICT, str(error))
    if isinstance(error, UnavailableError):
        _log.warning("%s", error, extra={"action": "http_unavailable"})
        detail = "a store does not answer; try again"
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "1"})
    if isinstance(error, BalancerError):
        _log.error("%s", error, extra={"action": "http_failed"})
    else:
        _log.error("a request failed", exc_info=error, extra={"action": "http_crashed"})
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "the balancer failed; its log says why")


def answering(routes: Routes, metrics: Metrics) -> Handler:
    """Return the handler of every request: it turns faults into problems and counts by route."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        route = routes.find(request.rel_url.raw_path)
        given: web.StreamResponse
        try:
            handler = route.handler(request.method)
            if "Expect" in request.headers:
                await _encourage(request)
            given = await handler(request)
        except Exception as error:
            given = _translated(error)
        labels = {"route": route.name, "status": str(given.status)}
        metrics.count(catalogue.HTTP_REQUESTS, 1, labels)
        return given

    return answer


async def _encourage(request: web.BaseRequest) -> None:
    """Tell a client that waits for it to send its body."""
    if request.headers["Expect"].lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="no Expect but 100-continue is known")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
