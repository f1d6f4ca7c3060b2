"""One server of the embedded stack as a process: start, readiness, faults on purpose, end.

Decides when a part counts as started (its own protocol answers and its process lives), how long
that may take, and when a failed start is tried again on other ports (the first start only: later
ones keep the address, so that clients find the part again). What is run and asked is the
subclass's affair. One thread at a time commands a part.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from balancer.embedded import guardian
from balancer.embedded.errors import EmbeddedError
from balancer.embedded.ports import LOOPBACK, choose_ports, is_free

FIRST_START_TRIES = 4
PROBE_SECONDS = 2.0
POLL_SECONDS = 0.02
STOP_SECONDS = 10.0
LOG_TAIL_BYTES = 4_000

_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "JAVA_HOME", "SSL_CERT_FILE")


class ServerPart(ABC):
    """A server in a folder of its own on loopback ports of its own.

    Attributes:
        name: What the part is for: ``kafka``, ``postgres`` or ``s3``.
        home: The part's folder; a process that lives in it belongs to the part.
        log_file: Where the server writes.
    """

    name: ClassVar[str]
    port_count: ClassVar[int] = 1
    start_seconds: ClassVar[float] = 30.0
    stop_signal: ClassVar[int] = signal.SIGINT

    def __init__(self, directory: Path) -> None:
        """Takes the stack's directory (absolute, no symbolic links); touches nothing yet."""
        self.home = directory / self.name
        self.log_file = directory / f"{self.name}.log"
        self.ports: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    # What a subclass says about its server

    @abstractmethod
    def version(self) -> str:
        """Returns the program's name and version, e.g. ``PostgreSQL 18.6``."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Returns the program and its arguments; ports are chosen and ``home`` exists."""

    @abstractmethod
    def _answers(self) -> bool:
        """Asks the server in its own protocol whether it serves; an OSError counts as no."""

    def _prepare(self) -> None:  # noqa: B027 - many servers need nothing
        """Writes what the server needs into ``home``; called before each try to start it."""

    def _settings(self) -> dict[str, str]:
        """Returns environment variables for the server."""
        return {}

    def _user(self) -> pwd.struct_passwd | None:
        """Returns the user to run as, None for the present one."""
        return None

    # What everybody may do with a part

    @property
    def port(self) -> int:
        """The port that clients use.

        Raises:
            EmbeddedError: The part was never started.
        """
        if not self.ports:
            raise EmbeddedError(f"the embedded {self.name} has no address before its first start")
        return self.ports[0]

    @property
    def address(self) -> str:
        """``host:port`` of what clients use."""
        return f"{LOOPBACK}:{self.port}"

    def describe(self) -> str:
        """Returns one line: what the part is and where. No secrets."""
        return f"{self.name}: {self.version()} at {self.address}"

    def alive(self) -> bool:
        """Says whether the server's process runs (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the server and waits until it answers; nothing happens if it runs.

        Raises:
            EmbeddedError: It did not come up in time, or ended; with the end of its log.
        """
        if self.alive():
            return
        guardian.kill_inside(str(self.home))  # what a server that died may have left running
        fresh = not self.ports
        for tries_left in reversed(range(FIRST_START_TRIES if fresh else 1)):
            if fresh:
                self.ports = choose_ports(self.port_count)
            self._launch()
            if self._wait_until_answering():
                return
            self._end_process()
            lost_a_port = not all(is_free(port) for port in self.ports)
            failure = self._failure(lost_a_port=lost_a_port)
            if fresh:
                self.ports = []
            if not (lost_a_port and tries_left):
                raise failure

    def stop(self) -> None:
        """Ends the server in order, by force if it takes more than ten seconds."""
        if self._process is not None and self.alive():
            self._process.send_signal(self.stop_signal)
            self.resume()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self._end_process()

    def restart(self) -> None:
        """Stops and starts the server: same address, same data as far as it keeps any."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kills the server (SIGKILL), as a crash would; ``start()`` brings it back."""
        self._end_process()

    def pause(self) -> None:
        """Stops the server's processes in their tracks (SIGSTOP): connections hang."""
        guardian.signal_inside(str(self.home), signal.SIGSTOP)
        guardian.wait_until_stopped(str(self.home), guardian.STOP_SECONDS)

    def resume(self) -> None:
        """Lets a paused server go on."""
        guardian.signal_inside(str(self.home), signal.SIGCONT)

    def log_tail(self) -> str:
        """Returns the end of what the server wrote."""
        try:
            with self.log_file.open("rb") as log:
                log.seek(max(0, self.log_file.stat().st_size - LOG_TAIL_BYTES))
                return log.read().decode(errors="replace").strip()
        except OSError:
            return ""

    # The process

    def _launch(self) -> None:
        user = self._user()
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "tmp").mkdir(exist_ok=True)
        if user is not None:
            for folder in (self.home, self.home / "tmp"):
                os.chown(folder, user.pw_uid, user.pw_gid)
        self._prepare()
        with self.log_file.open("ab") as log:
            self._process = self._spawn(self._command(), log.fileno())

    def _spawn(self, command: list[str], output: int) -> subprocess.Popen[bytes]:
        user = self._user()
        try:
            return subprocess.Popen(
                command,
                cwd=self.home,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C at a terminal is for the owner to handle
                user=None if user is None else user.pw_uid,
                group=None if user is None else user.pw_gid,
                extra_groups=None if user is None else [],
            )
        except OSError as fault:
            raise EmbeddedError(f"cannot run {command[0]} for the {self.name}: {fault}") from fault

    def _environment(self) -> dict[str, str]:
        passed_on = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
        own = {"HOME": str(self.home), "TMPDIR": str(self.home / "tmp"), "LC_ALL": "C", "TZ": "UTC"}
        return {**passed_on, **own, **self._settings()}

    def _wait_until_answering(self) -> bool:
        deadline = time.monotonic() + self.start_seconds
        while self.alive() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self._answers():
                    return self.alive()  # else somebody else's server answered on the port
            time.sleep(POLL_SECONDS)
        return False

    def _end_process(self) -> None:
        ended = guardian.kill_inside(str(self.home))
        guardian.remove_debris(self.home)
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None
        if not ended:
            raise EmbeddedError(f"processes of the embedded {self.name} cannot be ended")

    def _failure(self, *, lost_a_port: bool) -> EmbeddedError:
        reason = "a port of it is taken" if lost_a_port else "it ended or did not answer in time"
        where = ", ".join(str(port) for port in self.ports)
        return EmbeddedError(
            f"the embedded {self.name} did not start on {LOOPBACK} port {where} within "
            f"{self.start_seconds:.0f} s: {reason}. End of its log:\n{self.log_tail()}"
        )
