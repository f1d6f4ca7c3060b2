"""The limited destination: an HTTP server that counts what arrives and refuses the surplus.

Decides, by its own clock, in which window a request counts, and answers 429 beyond its capacity.
Knows nothing of permits. Run as ``python -m balancer.demo.destination``; it prints its address.

``POST /work`` is a unit of work; ``GET /windows`` tells the counts by window.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time

from aiohttp import web

WINDOWS_KEPT = 10_000


class LimitedDestination:
    """Counts requests by window and refuses those beyond the capacity."""

    def __init__(self, capacity: int, window_seconds: int) -> None:
        self.capacity = capacity
        self.window_seconds = window_seconds
        self.arrived: dict[int, int] = {}
        self.refused: dict[int, int] = {}

    def take(self, now_seconds: float) -> bool:
        """Count one request; say whether it is within the capacity of its window."""
        window = int(now_seconds // self.window_seconds)
        count = self.arrived.get(window, 0) + 1
        self.arrived[window] = count
        if len(self.arrived) > WINDOWS_KEPT:
            oldest = min(self.arrived)
            del self.arrived[oldest]
            self.refused.pop(oldest, None)
        if count <= self.capacity:
            return True
        self.refused[window] = self.refused.get(window, 0) + 1
        return False

    async def work(self, request: web.Request) -> web.Response:
        """Answer ``POST /work``: 204, or 429 when the window is full."""
        await request.read()
        return web.Response(status=204 if self.take(time.time()) else 429)

    async def windows(self, _: web.Request) -> web.Response:
        """Answer ``GET /windows`` with the counts by window."""
        return web.json_response(
            {
                "capacity": self.capacity,
                "window_seconds": self.window_seconds,
                "windows": {
                    str(window): {"arrived": count, "refused": self.refused.get(window, 0)}
                    for window, count in self.arrived.items()
                },
            }
        )

    def application(self) -> web.Application:
        """Return the server's routes."""
        application = web.Application(client_max_size=64 * 1024)
        application.router.add_post("/work", self.work)
        application.router.add_get("/windows", self.windows)
        return application


async def _serve(destination: LimitedDestination, host: str, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    runner = web.AppRunner(destination.application(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    address = runner.addresses[0]
    sys.stdout.write(f"http://{address[0]}:{address[1]}\n")
    sys.stdout.flush()
    await stopped.wait()
    await runner.cleanup()


def main(arguments: list[str] | None = None) -> int:
    """Run the destination until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--capacity", type=int, required=True, help="requests a window")
    parser.add_argument("--window-seconds", type=int, default=60)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    options = parser.parse_args(arguments)
    destination = LimitedDestination(options.capacity, options.window_seconds)
    asyncio.run(_serve(destination, options.host, options.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
