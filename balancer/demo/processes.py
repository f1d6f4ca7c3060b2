"""The demonstration's processes: started, listened to, brought back when they die.

Decides when a process that ended on its own is started again. Knows commands and lines, not what
they mean. Every process lives in the stack's directory, so that the stack's guardian ends what is
left should the demonstration itself be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

RESTART_SECONDS: Final = 2.0
STOP_SECONDS: Final = 12.0
LINE_MAX_BYTES: Final = 1024 * 1024
LOG_LINES: Final = 40


class Process:
    """One process that should run until it is told to stop.

    Attributes:
        name: what it is, for people.
        starts: how often it was started.
        last_words: the end of what it wrote to standard error.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        on_line: Callable[[str], None] | None = None,
        on_restart: Callable[[str], None] | None = None,
        log_file: Path | None = None,
    ) -> None:
        self.name = name
        self.starts = 0
        self.last_words: deque[str] = deque(maxlen=LOG_LINES)
        self._command = tuple(command)
        self._environment = dict(environment)
        self._directory = directory
        self._on_line = on_line
        self._on_restart = on_restart
        self._log_file = log_file
        self._wanted = False
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, None while it does not run."""
        if self._process is None or self._process.returncode is not None:
            return None
        return self._process.pid

    def words(self) -> str:
        """Return the end of what it wrote to standard error, each line once."""
        return "\n".join(dict.fromkeys(self.last_words))

    def _is_wanted(self) -> bool:
        return self._wanted

    async def start(self) -> None:
        """Start the process and keep it running."""
        self._wanted = True
        await self._spawn()
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.name}")

    async def _spawn(self) -> None:
        self.starts += 1
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            cwd=self._directory,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_MAX_BYTES,
            start_new_session=True,
        )

    async def _keep(self) -> None:
        while True:
            process = self._process
            assert process is not None  # noqa: S101 - set before this task starts
            await asyncio.gather(
                self._read(process.stdout, self._on_line), self._read(process.stderr, self._note)
            )
            code = await process.wait()
            if not self._is_wanted():
                return
            if self._on_restart is not None:
                self._on_restart(f"{self.name} ended ({_describe(code)}); starting it again")
            await asyncio.sleep(RESTART_SECONDS)
            if not self._is_wanted():
                return
            await self._spawn()

    def _note(self, line: str) -> None:
        self.last_words.append(line)
        if self._log_file is not None:
            with contextlib.suppress(OSError), self._log_file.open("a", encoding="utf-8") as log:
                log.write(line + "\n")

    @staticmethod
    async def _read(
        stream: asyncio.StreamReader | None, take: Callable[[str], None] | None
    ) -> None:
        assert stream is not None  # noqa: S101 - both are pipes
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # a line over the limit: dropped
                continue
            if not line:
                return
            if take is not None:
                take(line.decode(errors="replace").rstrip("\n"))

    async def stop(self, *, number: int = signal.SIGTERM) -> None:
        """End the process with a signal, by force if it takes too long; it stays ended."""
        self._wanted = False
        process = self._process
        if process is None or self._keeper is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
        try:
            await asyncio.wait_for(asyncio.shield(self._keeper), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await self._keeper


def _describe(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
