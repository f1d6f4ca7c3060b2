"""A middleware for aiohttp's client: each request that leaves takes a permit first.

Decides that a redirect takes a permit of its own, as the destination counts it, and that a delivery
lasts until the answer's headers have come: aiohttp tells a middleware no more. Knows nothing of
retries or of what an answer says.
"""

from __future__ import annotations

from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse

from worker_sdk.adapters import check_arguments
from worker_sdk.handle import DestinationHandle


def permit_middleware(
    permits: DestinationHandle, *, timeout: float | None = None
) -> ClientMiddlewareType:
    """Return a middleware for ``ClientSession(middlewares=...)`` or for one request.

    `worker_sdk.PermitTimeout` is raised by the request where no permit is to be had in time;
    nothing was sent then. Put it last, so that middlewares that send again take a permit each time.

    Args:
        permits: the destination that the requests go to.
        timeout: seconds to wait for a permit at most; None waits as long as it takes. aiohttp's own
            total timeout counts the wait as well.

    Raises:
        TypeError: if ``permits`` is no handle.
        ValueError: if ``timeout`` is no number.
    """
    check_arguments(permits, timeout)

    async def take_then_send(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
        async with permits.permit(timeout=timeout):
            return await send(request)

    return take_then_send
