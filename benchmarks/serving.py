"""``python -m benchmarks.serving``: ``GET /distribution/<host>`` beside a bare aiohttp handler.

Decides the fleet and what is compared: the service's HTTP server with everybody's documents in
memory, and an aiohttp handler that looks the same bytes up in a dictionary; each in a process of
its own, asked in turns by a third over connections that stay open. In half of the rounds a round's
documents of all shards arrive meanwhile, read and indexed as a balancer does that follows another.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Final, Self

import psutil
from aiohttp import web

from balancer.adapters.clock import SystemClock
from balancer.adapters.http.distribution import Distribution
from balancer.adapters.http.operations import Operations
from balancer.adapters.http.server import Address, HttpServer
from balancer.adapters.metrics.prometheus import PrometheusMetrics
from balancer.app.readiness import Readiness
from balancer.app.view import DistributionView
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

SEED: Final = 1
SHARDS: Final = 16
DESTINATIONS: Final = 50
DESTINATIONS_OF_A_HOST: Final = 2
DOCUMENTS: Final = 2
HOSTS, HOSTS_QUICK = 100_000, 5_000
ROUNDS, ROUNDS_QUICK = 6, 2
ROUND_SECONDS, ROUND_SECONDS_QUICK = 4.0, 2.0
CONNECTIONS: Final = 32
START_MS: Final = 1_800_000_000_000
START_SECONDS: Final = 180.0
STALL_LOOK_SECONDS: Final = 0.002
ARRIVAL_AFTER_SECONDS: Final = 1.0


# -------------------------------------------------------------------------- what is served


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


async def _nobody(_: str) -> bool:
    return False


def service(view: DistributionView) -> HttpServer:
    """Return the service's own server over a view, without its stores."""
    metrics = PrometheusMetrics()
    operations = Operations(
        repository=_absent,
        view=view,
        readiness=Readiness({}, view, metrics),
        clock=SystemClock(),
        metrics_text=metrics.text,
        token=None,
        round_seconds=60,
        on_change=lambda: None,
    )
    return HttpServer(Distribution(view, _nobody, metrics, waiters_max=1_000), operations, metrics)


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
    view = DistributionView(SHARDS)
    follower = Follower(view, files)
    for epoch in range(DOCUMENTS):
        await follower.take(epoch)
    if kind == "bare":
        names = map(host_name, range(hosts))
        port = await bare({name: view.host_answer(name) or b"" for name in names})
        del view, files, follower
    else:
        port = (await service(view).start(Address("127.0.0.1", 0))).port
    print(port, flush=True)
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
        elif line == b"cpu":
            print(f"{time.process_time():.4f}", flush=True)
        else:
            print(f"{psutil.Process().memory_info().rss / 1e6:.0f}", flush=True)
    watching.cancel()


# -------------------------------------------------------------------------- who asks


@dataclass
class Heard:
    """What one round of asking gave."""

    took_ms: list[float] = field(default_factory=list)
    statuses: set[bytes] = field(default_factory=set)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.took_ms) / self.seconds

    @property
    def p99_ms(self) -> float:
        """The time within which 99 of a hundred were answered."""
        return sorted(self.took_ms)[len(self.took_ms) * 99 // 100]


class Asker(asyncio.Protocol):
    """One connection that asks for host after host, each as soon as it has the last answer."""

    def __init__(self, heard: Heard, hosts: int, seed: int) -> None:
        self._heard, self._hosts = heard, hosts
        self._rng = random.Random(seed)
        self._missing = 0
        self._buffer = b""
        self._asked = 0.0
        self.stopped = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        name = host_name(self._rng.randrange(self._hosts))
        self._asked = time.perf_counter()
        self._transport.write(
            b"GET /distribution/%s HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
            % name.encode()
        )

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer; ask for the next when it is whole."""
        if self._missing:
            self._missing -= len(data)
        else:
            self._buffer += data
            head, parted, rest = self._buffer.partition(b"\r\n\r\n")
            if not parted:
                return
            at = head.index(b"Content-Length: ") + 16
            end = head.find(b"\r\n", at)
            self._missing = int(head[at : end if end > 0 else len(head)]) - len(rest)
            self._heard.statuses.add(head[9:12])
            self._buffer = b""
        if self._missing == 0:
            self._heard.took_ms.append((time.perf_counter() - self._asked) * 1000)
            if self.stopped:
                self._transport.close()
            else:
                self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """Be done."""
        if not self.done.done():
            self.done.set_result(None)


async def ask(port: int, hosts: int, seconds: float) -> Heard:
    """Ask for random hosts over several connections for some seconds."""
    heard = Heard()
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    made = [
        await loop.create_connection(partial(Asker, heard, hosts, SEED + n), "127.0.0.1", port)
        for n in range(CONNECTIONS)
    ]
    await asyncio.sleep(seconds)
    heard.seconds = time.perf_counter() - began
    for _, asker in made:
        asker.stopped = True
    await asyncio.wait_for(asyncio.gather(*(asker.done for _, asker in made)), 30)
    if heard.statuses != {b"200"}:
        raise RuntimeError(f"answers were {heard.statuses}")
    return heard


@dataclass
class Child:
    """A serving process."""

    process: asyncio.subprocess.Process
    port: int

    @classmethod
    @asynccontextmanager
    async def started(cls, kind: str, hosts: int) -> AsyncIterator[Self]:
        """Run one until it is left."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.serving", "--serve", kind, str(hosts)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            child = cls(process, 0)
            child.port = int(await child.line())
            yield child
        finally:
            process.kill()
            await process.wait()

    async def line(self) -> str:
        """Return what it says next."""
        assert self.process.stdout is not None
        said = await asyncio.wait_for(self.process.stdout.readline(), START_SECONDS)
        return said.decode().strip()

    async def tell(self, word: str) -> str:
        """Say a word; return the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        return await self.line()


async def measure(*, quick: bool) -> None:
    """Run and print the table."""
    hosts = HOSTS_QUICK if quick else HOSTS
    seconds = ROUND_SECONDS_QUICK if quick else ROUND_SECONDS
    async with AsyncExitStack() as life:
        ours = await life.enter_async_context(Child.started("ours", hosts))
        other = await life.enter_async_context(Child.started("bare", hosts))
        print(
            f"{hosts} hosts in {DESTINATIONS_OF_A_HOST} of {DESTINATIONS} destinations, {SHARDS} "
            f"shards, {DOCUMENTS} documents each; {CONNECTIONS} connections, {seconds:g} s a turn"
        )
        for port in (ours.port, other.port):
            await ask(port, hosts, seconds / 2)
        titles = ("turn", "bare/s", "ours/s", "of bare", "CPU", "bare p99", "ours p99", "x")
        print(*(f"{title:>9}" for title in titles))
        bench = Bench(ours, other, hosts, seconds)
        count = ROUNDS_QUICK if quick else ROUNDS
        await bench.turns(count, "at rest")
        await bench.turns(count, "while a round's documents arrive", bench.arrive)
        print(f"RSS {await ours.tell('memory')} MB (bare: {await other.tell('memory')} MB)")


@dataclass
class Bench:
    """Both processes, and how each is asked."""

    ours: Child
    other: Child
    hosts: int
    seconds: float

    async def turn(self, child: Child) -> tuple[Heard, float]:
        """Ask one for a while; return what was heard, and microseconds of computing an answer."""
        began = float(await child.tell("cpu"))
        heard = await ask(child.port, self.hosts, self.seconds)
        return heard, (float(await child.tell("cpu")) - began) / len(heard.took_ms) * 1e6

    async def turns(
        self, count: int, what: str, beside: Callable[[], Coroutine[None, None, str]] | None = None
    ) -> None:
        """Ask one and the other in turns; print each, and the medians."""
        ratios: list[tuple[float, float, float]] = []
        for number in range(count):
            bare, bare_us = await self.turn(self.other)
            told = ""
            if beside is None:
                heard, ours_us = await self.turn(self.ours)
            else:
                began = float(await self.ours.tell("cpu"))
                going: asyncio.Task[str] = asyncio.create_task(beside())
                heard = await ask(self.ours.port, self.hosts, self.seconds)
                told = await going
                ours_us = (float(await self.ours.tell("cpu")) - began) / len(heard.took_ms) * 1e6
            ratios.append((heard.rate / bare.rate, ours_us / bare_us, heard.p99_ms / bare.p99_ms))
            rate, cpu, tail = ratios[-1]
            print(
                f"{number + 1:>9} {bare.rate:>9.0f} {heard.rate:>9.0f} {rate:>9.2f} {cpu:>9.2f} "
                f"{bare.p99_ms:>9.2f} {heard.p99_ms:>9.2f} {tail:>9.2f} {told}",
                flush=True,
            )
        rate, cpu, tail = (median(column) for column in zip(*ratios, strict=True))
        print(f"median, {what}: {rate:.2f} of bare, {cpu:.2f} x its CPU, p99 {tail:.2f} x")

    async def arrive(self) -> str:
        """Let documents arrive soon."""
        await asyncio.sleep(ARRIVAL_AFTER_SECONDS)
        seconds, stall_ms = (await self.ours.tell("arrive")).split()
        return f"in {seconds} s, longest stall {stall_ms} ms"


def main(*, quick: bool = False) -> None:
    """Run the benchmark."""
    asyncio.run(measure(quick=quick))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(sys.argv[2], int(sys.argv[3])))
    else:
        main(quick="--quick" in sys.argv)
