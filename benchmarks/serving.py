"""``python -m benchmarks.serving``: ``GET /distribution/<host>`` beside a bare aiohttp handler.

Decides the fleet and what is compared: the service's HTTP server with everybody's documents in
memory, and an aiohttp handler that looks the same bytes up in a dictionary; each in a process of
its own, asked in turns by a third over connections that stay open. In half of the rounds a round's
documents of all shards arrive meanwhile, read and indexed as a balancer does that follows another.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Final, Self

from benchmarks.served import (
    DESTINATIONS,
    DESTINATIONS_OF_A_HOST,
    DOCUMENTS,
    SHARDS,
    WAITERS,
    host_name,
)

SEED: Final = 1
HOSTS, HOSTS_QUICK = 100_000, 5_000
ROUNDS, ROUNDS_QUICK = 12, 2
ROUND_SECONDS, ROUND_SECONDS_QUICK = 2.0, 1.0
CONNECTIONS: Final = 32
WAITERS_QUICK: Final = 500
AT_ONCE: Final = 100
START_SECONDS: Final = 180.0
ARRIVAL_AFTER_SECONDS: Final = 1.0


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
            *(sys.executable, "-m", "benchmarks.served", kind, str(hosts)),
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
        await bench.turns(count // 3 or 1, "while a round's documents arrive", bench.arrive)
        await bench.waiters(WAITERS_QUICK if quick else WAITERS)
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
        """Ask one and the other in turns; print each, the medians, and each one's best turn.

        What disturbs a turn makes it slower, never faster: the best turns are disturbed the least.
        """
        ratios: list[tuple[float, float, float]] = []
        best = [0.0, 0.0]
        tails = [math.inf, math.inf]
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
            best = [max(best[0], heard.rate), max(best[1], bare.rate)]
            tails = [min(tails[0], heard.p99_ms), min(tails[1], bare.p99_ms)]
            print(
                f"{number + 1:>9} {bare.rate:>9.0f} {heard.rate:>9.0f} {rate:>9.2f} {cpu:>9.2f} "
                f"{bare.p99_ms:>9.2f} {heard.p99_ms:>9.2f} {tail:>9.2f} {told}",
                flush=True,
            )
        rate, cpu, tail = (median(column) for column in zip(*ratios, strict=True))
        print(
            f"{what}, medians: {rate:.2f} of bare, {cpu:.2f} x its CPU, p99 {tail:.2f} x; "
            f"best turns: {best[0] / best[1]:.2f} of bare, p99 {tails[0] / tails[1]:.2f} x"
        )

    async def waiters(self, count: int) -> None:
        """Let so many requests wait, then documents arrive, and tell what it cost."""
        before = float(await self.ours.tell("memory"))
        heard: list[float] = []
        waiting = []
        for first in range(0, count, AT_ONCE):
            some = range(first, min(count, first + AT_ONCE))
            waiting += await asyncio.gather(*(_wait(self.ours.port, n) for n in some))
        loop = asyncio.get_running_loop()
        for _ in range(600):
            if float(await self.ours.tell("waiting")) >= count:
                break
            await asyncio.sleep(0.1)
        memory = float(await self.ours.tell("memory")) - before
        answers = [asyncio.create_task(_answered(*waiter, heard)) for waiter in waiting]
        began = loop.time()
        told = await self.arrive()
        await asyncio.wait_for(asyncio.gather(*answers), START_SECONDS)
        heard = sorted(at - began for at in heard)
        print(
            f"{count} waiters of {count} hosts: {memory * 1000 / count:.1f} kB each; documents "
            f"arrived {told}; half were answered {heard[count // 2] - heard[0]:.2f} s and all "
            f"{heard[-1] - heard[0]:.2f} s after the first"
        )

    async def arrive(self) -> str:
        """Let documents arrive soon."""
        await asyncio.sleep(ARRIVAL_AFTER_SECONDS)
        seconds, stall_ms = (await self.ours.tell("arrive")).split()
        return f"in {seconds} s, longest stall {stall_ms} ms"


async def _wait(port: int, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask for a host, then ask again for what differs from that; return the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    path = f"/distribution/{host_name(number)}"
    writer.write(f"HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    tag = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"etag: "))[6:]
    writer.write(
        f"GET {path}?wait=60 HTTP/1.1\r\nHost: x\r\nIf-None-Match: {tag.decode()}\r\n\r\n".encode()
    )
    return reader, writer


async def _answered(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: list[float]
) -> None:
    status = await reader.readline()
    heard.append(asyncio.get_running_loop().time())
    if b" 200 " not in status:
        raise RuntimeError(f"a waiter was told {status!r}")
    writer.close()


def main(*, quick: bool = False) -> None:
    """Run the benchmark."""
    asyncio.run(measure(quick=quick))


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
