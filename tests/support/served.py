"""``permit-balancer`` as a user starts it: as processes, with settings in the environment."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 60.0
READY_SECONDS = 60.0
STOP_SECONDS = 15.0


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process: these settings and nobody else's."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PERMIT_", "AWS_"))
    }
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, **settings}


def run_command(
    settings: Mapping[str, str], arguments: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "balancer", *arguments],
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Server:
    """A running ``permit-balancer serve``."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]
    settings: Mapping[str, str] = field(default_factory=dict)

    def ask(self, path: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
        """Return (status, JSON or text) of a request; status 0 where nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, _value(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _value(error)
        except OSError:
            return 0, None

    def is_ready(self) -> bool:
        """Say whether ``/readyz`` says so."""
        return self.ask("/readyz")[0] == 200

    def words(self) -> str:
        """Return what the process has logged."""
        return self.log.read_text(errors="replace")

    def wait_ready(self) -> None:
        """Wait until it is ready; fail with its log where it is not."""
        self.wait(self.is_ready, "ready")

    def wait(self, condition: Any, what: str, seconds: float = READY_SECONDS) -> None:
        """Wait until a condition holds while the process lives."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"it ended:\n{self.words()}"
            assert time.monotonic() < deadline, f"not {what} in time:\n{self.words()}"
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the process; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)


def _value(answer: Any) -> Any:
    text = answer.read()
    return json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text.decode()


@contextmanager
def serving(settings: Mapping[str, str], folder: Path, *more: str) -> Iterator[Server]:
    """Run ``permit-balancer serve``; it is killed at the end if it still runs."""
    port = free_port()
    log = folder / f"serve-{port}.log"
    own = {**settings, "PERMIT_HTTP_PORT": str(port)}
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "balancer", "serve", *more],
            env=environment(own),
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    server = Server(f"http://127.0.0.1:{port}", log, process, own)
    try:
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_SECONDS)
