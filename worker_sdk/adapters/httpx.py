"""Transports for httpx: each request that leaves takes a permit first.

Decides that a redirect and a repetition take a permit each, as the destination counts each, and
that a delivery lasts until the answer's body has been read or closed. Knows nothing of pools,
retries or of what an answer says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import cast

import httpx

from worker_sdk.adapters import check_arguments
from worker_sdk.handle import DestinationHandle, Permit


class PermitTransport(httpx.BaseTransport):
    """A transport that takes a permit before each request.

    `worker_sdk.PermitTimeout` is raised where none is to be had in time; nothing was sent then.

    Args:
        permits: the destination that the requests go to.
        transport: what sends; an ``httpx.HTTPTransport`` of default settings if not given.
        timeout: seconds to wait for a permit at most; None waits as long as it takes.
    """

    def __init__(
        self,
        permits: DestinationHandle,
        transport: httpx.BaseTransport | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        check_arguments(permits, timeout)
        self._permits = permits
        self._transport = httpx.HTTPTransport() if transport is None else transport
        self._timeout = timeout

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Take a permit, then send."""
        permit = self._permits.permit(timeout=self._timeout)
        permit.__enter__()
        try:
            response = self._transport.handle_request(request)
        except BaseException:
            permit.__exit__(None, None, None)
            raise
        if response.is_closed:  # read already, as from a cache: nobody will close it again
            permit.__exit__(None, None, None)
        else:
            response.stream = _Body(cast("httpx.SyncByteStream", response.stream), permit)
        return response

    def close(self) -> None:
        """Close what sends."""
        self._transport.close()


class AsyncPermitTransport(httpx.AsyncBaseTransport):
    """As `PermitTransport`, for ``httpx.AsyncClient``."""

    def __init__(
        self,
        permits: DestinationHandle,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        check_arguments(permits, timeout)
        self._permits = permits
        self._transport = httpx.AsyncHTTPTransport() if transport is None else transport
        self._timeout = timeout

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Take a permit, then send."""
        permit = self._permits.permit(timeout=self._timeout)
        await permit.__aenter__()
        try:
            response = await self._transport.handle_async_request(request)
        except BaseException:
            permit.__exit__(None, None, None)
            raise
        if response.is_closed:  # read already, as from a cache: nobody will close it again
            permit.__exit__(None, None, None)
        else:
            response.stream = _AsyncBody(cast("httpx.AsyncByteStream", response.stream), permit)
        return response

    async def aclose(self) -> None:
        """Close what sends."""
        await self._transport.aclose()


class _Body(httpx.SyncByteStream):
    def __init__(self, body: httpx.SyncByteStream, permit: Permit) -> None:
        self._body = body
        self._permit = permit

    def __iter__(self) -> Iterator[bytes]:
        yield from self._body

    def close(self) -> None:
        try:
            self._body.close()
        finally:
            self._permit.__exit__(None, None, None)


class _AsyncBody(httpx.AsyncByteStream):
    def __init__(self, body: httpx.AsyncByteStream, permit: Permit) -> None:
        self._body = body
        self._permit = permit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._body:
            yield part

    async def aclose(self) -> None:
        try:
            await self._body.aclose()
        finally:
            self._permit.__exit__(None, None, None)
