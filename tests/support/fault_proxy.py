"""A proxy on loopback whose faults are switched while it runs.

It forwards bytes between a client and one server, so that signatures stay good, and plays a server
that answers with an error of S3, cuts its answers, stops in the middle of them, takes requests and
holds them (they arrive late), or refuses; or a link that is slow, or dead without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from enum import Enum
from typing import Self

CHUNK_BYTES = 65_536
SLOW_SECONDS = 0.1
SLOW_BYTES = 4_096
"""So much passes a slow link at once, and then nothing for `SLOW_SECONDS`, in each direction."""

START_SECONDS = 10.0


class Fault(Enum):
    """What the proxy does to a connection."""

    NONE = "passes everything on"
    ERROR = "answers 500 to every request"
    FORBID = "answers 403 to every request, as if the keys were wrong"
    SKEWED = "answers 403 to every request, as if the clock were wrong"
    STALL = "stops in the middle of every answer"
    TRUNCATE = "cuts every answer in the middle"
    HOLD = "holds every request, and passes it on when it is over"
    REFUSE = "closes every connection"
    SLOW = "passes little at a time, and late"
    DEAD = "takes everything and passes nothing on; connections of that time stay dead"


def _s3_error(status: str, code: str) -> bytes:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>"
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n\r\n{body}"
    ).encode()


_ANSWERS = {
    Fault.ERROR: _s3_error("500 Internal Server Error", "InternalError"),
    Fault.FORBID: _s3_error("403 Forbidden", "AccessDenied"),
    Fault.SKEWED: _s3_error("403 Forbidden", "RequestTimeTooSkewed"),
}


class FaultProxy:
    """Listens on ``port`` from entering to leaving; ``play`` may be called from any thread.

    The target is an address, or gives it when somebody connects.
    """

    def __init__(self, target: str | Callable[[], str]) -> None:
        self._target = target if callable(target) else lambda: target
        self._fault = Fault.NONE
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connections: set[asyncio.Task[None]] = set()
        self._ending = False
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
        self._ending = True
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        for _ in range(2):  # transports say goodbye in turns of the loop
            await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            with contextlib.suppress(OSError):
                await self._join(reader, writer, writers)
        finally:
            for end in writers:
                if self._ending:
                    end.transport.abort()
                end.close()

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        writers: list[asyncio.StreamWriter],
    ) -> None:
        if self._fault is Fault.REFUSE:
            return
        host, _, port = self._target().rpartition(":")
        back, forth = await asyncio.open_connection(host, int(port))
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

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        forth: asyncio.StreamWriter,
        writer: asyncio.StreamWriter,
    ) -> None:
        while data := await self._read(reader):
            if self._fault is Fault.HOLD:
                self.held += 1
                await self._released()
                # Who sent it may be gone by now: what it sent arrives all the same.
                forth.write(data)
                await forth.drain()
                continue
            if self._fault in _ANSWERS:
                writer.write(_ANSWERS[self._fault])
                await writer.drain()
                return
            if self._fault is Fault.REFUSE:
                return
            forth.write(data)
            await forth.drain()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        """Return what comes next, as slowly as the link is; nothing for ever on a dead one."""
        data = await reader.read(SLOW_BYTES if self._fault is Fault.SLOW else CHUNK_BYTES)
        if self._fault is Fault.SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        if self._fault is Fault.DEAD and data:
            await asyncio.Event().wait()  # until the connection's end
        return data

    async def _released(self) -> None:
        while self._fault is Fault.HOLD:
            await self._changed.wait()

    async def _answers(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await self._read(back):
            is_cut = self._fault in (Fault.TRUNCATE, Fault.STALL)
            with contextlib.suppress(OSError):
                writer.write(data[: len(data) // 2] if is_cut else data)
                await writer.drain()
            if self._fault is Fault.STALL:
                await asyncio.Event().wait()  # until the connection's end
            if is_cut:
                return
