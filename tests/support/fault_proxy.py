"""A proxy on loopback whose faults are switched while it runs.

It forwards bytes between a client and one server, so that signatures stay good, and plays a server
that answers 500, cuts its answers, takes requests and holds them (they arrive late), or refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from enum import Enum
from typing import Self

ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
CHUNK_BYTES = 65_536
START_SECONDS = 10.0


class Fault(Enum):
    """What the proxy does to a connection."""

    NONE = "passes everything on"
    ERROR = "answers 500 to every request"
    TRUNCATE = "cuts every answer in the middle"
    HOLD = "holds every request, and passes it on when it is over"
    REFUSE = "closes every connection"


class FaultProxy:
    """Listens on ``port`` from entering to leaving; ``play`` may be called from any thread."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._fault = Fault.NONE
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0
        self.held = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def play(self, fault: Fault) -> None:
        """From now on do this to every request, on connections already made as well."""
        self._loop.call_soon_threadsafe(self._set, fault)

    def _set(self, fault: Fault) -> None:
        self._fault = fault
        self._changed.set()
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._accept, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(START_SECONDS)
        self._server = server
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        with contextlib.suppress(OSError):
            if self._fault is not Fault.REFUSE:
                back, forth = await asyncio.open_connection(*self._target)
                writers.append(forth)
                pumps = [
                    asyncio.create_task(self._requests(reader, forth, writer)),
                    asyncio.create_task(self._answers(back, writer)),
                ]
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)
        for end in writers:
            end.close()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        forth: asyncio.StreamWriter,
        writer: asyncio.StreamWriter,
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if self._fault is Fault.HOLD:
                self.held += 1
                await self._released()
                # Who sent it may be gone by now: what it sent arrives all the same.
                forth.write(data)
                await forth.drain()
                continue
            if self._fault is Fault.ERROR:
                writer.write(ERROR)
                await writer.drain()
                return
            if self._fault is Fault.REFUSE:
                return
            forth.write(data)
            await forth.drain()

    async def _released(self) -> None:
        while self._fault is Fault.HOLD:
            await self._changed.wait()

    async def _answers(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await back.read(CHUNK_BYTES):
            is_cut = self._fault is Fault.TRUNCATE
            with contextlib.suppress(OSError):
                writer.write(data[: len(data) // 2] if is_cut else data)
                await writer.drain()
            if is_cut:
                return
