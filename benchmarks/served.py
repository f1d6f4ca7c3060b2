"""``python -m benchmarks.served ours|bare HOSTS``: a process that `benchmarks.serving` asks.

Decides the fleet in memory. It tells its port, and then answers words on its standard input.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Sequence
from typing import Final

import psutil
from aiohttp import web

from balancer.adapters.clock import SystemClock
from balancer.adapters.http.distribution import Distribution
from balancer.adapters.http.operations import Operations
from balancer.adapters.http.server import Address, HttpServer
from balancer.adapters.metrics.prometheus import PrometheusMetrics
from balancer.app.readiness import Readiness
from balancer.app.view import DistributionView
from balancer.commands.open_files import room_for_waiters
from balancer.commands.process import prepare_process
from balancer.errors import UnavailableError
from balancer.ports import Repository
from worker_sdk.wire.distribution import (
    DestinationShares,
    Document,
    Entry,
    Terms,
    decode_document,
    encode_document,
)
from worker_sdk.wire.pointer import shard_of
from worker_sdk.wire.shares import POINTS

SHARDS: Final = 16
DESTINATIONS: Final = 50
DESTINATIONS_OF_A_HOST: Final = 2
DOCUMENTS: Final = 2
WAITERS: Final = 10_000
START_MS: Final = 1_800_000_000_000
STALL_LOOK_SECONDS: Final = 0.002


def host_name(number: int) -> str:
    """Return a host's name."""
    return f"host-{number:06d}.example"


def documents(hosts: int, epoch: int) -> list[bytes]:
    """Return the file of each shard: every host is a member of some destinations."""
    members: dict[int, list[str]] = {}
    for number in range(hosts):
        for index in range(DESTINATIONS_OF_A_HOST):
            place = (number + index * 7) % DESTINATIONS
            members.setdefault(place, []).append(host_name(number))
    lines: dict[int, list[DestinationShares]] = {shard: [] for shard in range(SHARDS)}
    for place, names in members.items():
        destination = f"destination-{place:02d}"
        part = POINTS // len(names)
        entries = tuple(
            Entry(name, f"{number:032x}", ((number * part, (number + 1) * part - epoch),), part)
            for number, name in enumerate(names)
        )
        terms = Terms(destination, 100_000, 60, 30_000_000 + epoch, 30_000_001 + epoch)
        lines[shard_of(destination, SHARDS)].append(DestinationShares(terms, (), entries))
    dates = (START_MS + epoch * 60_000, START_MS + epoch * 60_000 + 180_000)
    return [
        encode_document(
            Document(
                shard, epoch, *dates, tuple(sorted(own, key=lambda line: line.terms.destination))
            )
        )
        for shard, own in lines.items()
    ]


class Follower:
    """Reads what arrives into a view, as a balancer does that follows others: a file once."""

    def __init__(self, view: DistributionView, files: Sequence[Sequence[bytes]]) -> None:
        self._view, self._files = view, files
        self._shown: list[tuple[Document, ...]] = [()] * SHARDS

    async def take(self, epoch: int) -> None:
        """Show this epoch of every shard, and the one before."""
        for shard in range(SHARDS):
            document = await asyncio.to_thread(decode_document, self._files[epoch][shard])
            self._shown[shard] = (document, *self._shown[shard])[:DOCUMENTS]
            await self._view.show(shard, self._shown[shard])


def _absent() -> Repository:
    raise UnavailableError("there is none here")


async def _unread(_: str) -> tuple[int, tuple[Document, ...]]:
    raise UnavailableError("there is none here")


async def _nobody(_: str) -> bool:
    return False


def service(view: DistributionView, metrics: PrometheusMetrics) -> HttpServer:
    """Return the service's own server over a view, without its stores."""
    operations = Operations(
        repository=_absent,
        documents=_unread,
        readiness=Readiness({}, view, metrics),
        clock=SystemClock(),
        metrics_text=metrics.text,
        token=None,
        round_seconds=60,
        on_change=lambda: None,
    )
    return HttpServer(
        Distribution(view, _nobody, metrics, waiters_max=WAITERS, round_seconds=60),
        operations,
        metrics,
    )


async def bare(answers: dict[str, bytes]) -> int:
    """Start a handler that does nothing but look up bytes; return its port."""

    async def answer(request: web.Request) -> web.Response:
        body = answers[request.match_info["host"]]
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.add_routes([web.get("/distribution/{host}", answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port: int = runner.addresses[0][1]
    return port


class Stalls:
    """The longest time in which the loop did nothing else."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def watch(self) -> None:
        """Look again and again, for ever."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(STALL_LOOK_SECONDS)
            late_ms = (time.perf_counter() - began - STALL_LOOK_SECONDS) * 1000
            self.longest_ms = max(self.longest_ms, late_ms)


async def serve(kind: str, hosts: int) -> None:
    """Serve in this process until standard input ends; a line there lets documents arrive."""
    prepare_process()
    files = [documents(hosts, epoch) for epoch in range(1, DOCUMENTS + 2)]
    view, metrics = DistributionView(SHARDS), PrometheusMetrics()
    follower = Follower(view, files)
    for epoch in range(DOCUMENTS):
        await follower.take(epoch)
    if kind == "bare":
        names = map(host_name, range(hosts))
        answers = {name: view.answer(name) for name in names}
        port = await bare({name: known.body for name, known in answers.items() if known})
        del view, files, follower, answers
    else:
        port = (await service(view, metrics).start(Address("127.0.0.1", 0))).port
    print(port, flush=True)
    room_for_waiters(2 * WAITERS)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    stalls, swaps = Stalls(), 0
    watching = asyncio.create_task(stalls.watch())
    while line := (await lines.readline()).strip():
        if line == b"arrive":
            stalls.longest_ms, swaps = 0.0, swaps + 1
            began = time.perf_counter()
            await follower.take((DOCUMENTS + swaps - 1) % len(files))
            took = time.perf_counter() - began
            await asyncio.sleep(0.2)
            print(f"{took:.3f} {stalls.longest_ms:.1f}", flush=True)
        elif line == b"waiting":
            found = re.search(rb"permit_http_waiting ([0-9.]+)", metrics.text())
            print(found[1].decode() if found else "0", flush=True)
        elif line == b"cpu":
            print(f"{time.process_time():.4f}", flush=True)
        else:
            print(f"{psutil.Process().memory_info().rss / 1e6:.0f}", flush=True)
    watching.cancel()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
