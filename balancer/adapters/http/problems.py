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
from aiohttp.typedefs import Handler, Middleware

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


def counting_problems(metrics: Metrics) -> Middleware:
    """Return the middleware that turns faults into problems and counts requests by route."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            answer = await handler(request)
        except Exception as error:
            answer = _translated(error)
        resource = request.match_info.route.resource
        route = "none" if resource is None else resource.canonical
        metrics.count(catalogue.HTTP_REQUESTS, 1, {"route": route, "status": str(answer.status)})
        return answer

    return middleware
