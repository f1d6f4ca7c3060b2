"""httpx and aiohttp clients whose every request takes a permit; runs without any server of yours.

Run it: python examples/adapters_http.py (needs the extras httpx and aiohttp)

A real worker has ``PermitClient.from_env()`` in place of the balancer in memory.
"""

from __future__ import annotations

import asyncio

import aiohttp
import httpx
from aiohttp import web
from aiohttp.test_utils import TestServer

from worker_sdk import DestinationHandle, PermitTimeout
from worker_sdk.adapters.aiohttp import permit_middleware
from worker_sdk.adapters.httpx import PermitTransport
from worker_sdk.testing import InMemoryBalancer, ManualClock, wait_until_ready


def with_httpx(partner: DestinationHandle, url: str) -> None:
    """Ask three times; the share has two permits."""
    transport = PermitTransport(partner, timeout=0.1)
    # Only what goes to the partner needs its permits.
    with httpx.Client(mounts={url: transport}) as http:
        for number in range(3):
            try:
                print("httpx", number, http.get(url).text)
            except PermitTimeout:
                print("httpx", number, "no permit")


async def with_aiohttp(partner: DestinationHandle, url: str) -> None:
    """Do the same."""
    middleware = permit_middleware(partner, timeout=0.1)
    async with aiohttp.ClientSession(middlewares=[middleware]) as http:
        for number in range(3):
            try:
                async with http.get(url) as response:
                    print("aiohttp", number, await response.text())
            except PermitTimeout:
                print("aiohttp", number, "no permit")


async def answer(_: web.Request) -> web.Response:
    """Stand for the partner's API."""
    return web.Response(text="served")


async def main() -> None:
    """Use the permits of one window with each client."""
    partner_api = web.Application()
    partner_api.router.add_get("/", answer)
    clock = ManualClock()
    balancer = InMemoryBalancer({"partner": 2})
    async with TestServer(partner_api) as server, balancer.client(clock=clock) as client:
        await asyncio.to_thread(wait_until_ready, client)
        partner, url = client.destination("partner"), str(server.make_url("/"))
        await asyncio.to_thread(with_httpx, partner, url)
        clock.advance(60)
        await with_aiohttp(partner, url)


if __name__ == "__main__":
    asyncio.run(main())
