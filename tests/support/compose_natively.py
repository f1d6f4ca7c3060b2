"""Runs ``docker-compose.yml`` without Docker: the same programs, commands, environments and order.

Decides only what a machine without containers forces: a service's name and port become an address
on loopback, paths inside the image become the project's, and each process gets a folder of its own
and no variable but its service's. Nothing else of the file is changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from balancer.embedded import EmbeddedStack, KafkaServer, ServerPart
from balancer.embedded.ports import LOOPBACK, choose_ports
from tests.support.compose_file import ROOT, Service, copied_files, image_check, services
from tests.support.compose_servers import (
    ComposeKafka,
    ComposePostgres,
    ComposeS3,
    make_bucket,
    terminate,
)

SERVER_PORTS = {"kafka": (9092, 9093), "postgres": (5432,), "minio": (9000,)}
ONCE_SECONDS = 60.0
CHECK_SECONDS = 15.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.1
LOG_TAIL_LINES = 25


class Addresses:
    """Where on loopback the services listen, in place of their names and ports."""

    def __init__(self) -> None:
        self._ports: dict[tuple[str, int], int] = {}

    def give(self, service: str, ports: Mapping[int, int]) -> None:
        """Says which native port each port of a service is."""
        for port, native in ports.items():
            self._ports[service, port] = native

    def port(self, service: str, port: int) -> int:
        """Returns the native port of a service's port."""
        return self._ports[service, port]

    def natively(self, service: str, text: str) -> str:
        """Returns a word of a service's command or environment with native addresses."""
        for (other, port), native in self._ports.items():
            hosts = [other]
            if other == service:
                hosts += ["localhost", "127\\.0\\.0\\.1", "(?<=//)"]
                text = str(native) if text == str(port) else text
            pattern = rf"(?<![\w.-])(?:{'|'.join(hosts)}):{port}(?!\d)"
            text = re.sub(pattern, f"{LOOPBACK}:{native}", text)
        return LOOPBACK if text == "0.0.0.0" else text


class NativeCompose:
    """The services of the file as processes of this machine."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.services = services(variables)
        self.addresses = Addresses()
        self.exit_codes: dict[str, int] = {}
        self._folder = folder
        self._parts: dict[str, ServerPart] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for service in self.services.values():
            if service.ours and service.ports:
                native = choose_ports(len(service.ports))
                self.addresses.give(service.name, dict(zip(service.ports, native, strict=True)))

    # Starting

    def server_is(self, name: str, part: ServerPart) -> Callable[[str], str]:
        """Says which part is a server of the file, once its ports are chosen."""
        self._parts[name] = part
        self.addresses.give(name, dict(zip(SERVER_PORTS[name], part.ports, strict=False)))
        return lambda text: self.addresses.natively(name, text)

    def start(self) -> None:
        """Starts every service in order, each when the conditions that it states are met."""
        for service in self.services.values():
            for other, condition in service.needs.items():
                if condition == "service_healthy":
                    self.wait_healthy(other)
                else:
                    assert condition == "service_completed_successfully"
                    assert self.exit_codes[other] == 0, self.words(other)
            self._start(service)

    def _start(self, service: Service) -> None:
        if service.name == "bucket":
            environment = {
                name: self._native(service, text) for name, text in service.environment.items()
            }
            make_bucket(service.arguments, environment)
            self.exit_codes[service.name] = 0
        elif service.ours:
            self._launch(service)
            if self._runs_once(service.name):
                self.exit_codes[service.name] = self._processes.pop(service.name).wait(ONCE_SECONDS)
        elif service.name not in self._parts:
            part = self._server(service)
            part.start()
            self.server_is(service.name, part)
            if isinstance(part, ComposePostgres):
                part.create_database(service.environment)

    def _server(self, service: Service) -> ServerPart:
        if service.name == "postgres":
            return ComposePostgres(self._folder)
        assert service.name == "minio"
        assert service.arguments == ("server", "/data")
        return ComposeS3(self._folder, service.environment)

    def _runs_once(self, name: str) -> bool:
        conditions = {service.needs.get(name) for service in self.services.values()}
        return "service_completed_successfully" in conditions

    def _launch(self, service: Service) -> None:
        home = self._folder / service.name
        home.mkdir(mode=0o700)
        with self._log(service.name).open("wb") as log:
            self._processes[service.name] = subprocess.Popen(
                self._argv(service, service.arguments),
                cwd=home,  # whatever lives in the stack's directory ends with it
                env=self._environment(service, home),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _argv(self, service: Service, arguments: tuple[str, ...]) -> list[str]:
        program, *words = arguments
        files = {path: str(here) for path, here in copied_files().items()}
        programs = {
            "permit-balancer": [sys.executable, "-m", "balancer"],
            "python": [sys.executable],
        }
        if program == "pg_isready":
            part = self._parts[service.name]
            assert isinstance(part, ComposePostgres)
            programs[program] = [part.program(program)]
        words = [files.get(word, self._native(service, word)) for word in words]
        return [*programs[program], *words]

    def _native(self, service: Service, text: str) -> str:
        return self.addresses.natively(service.name, text)

    def _environment(self, service: Service, home: Path) -> dict[str, str]:
        given = {name: self._native(service, text) for name, text in service.environment.items()}
        machine = {
            name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ
        }
        return {**machine, "HOME": str(home), "PYTHONPATH": str(ROOT), **given}

    # Looking

    def wait_healthy(self, name: str) -> None:
        """Waits until a service's own health check passes, as long as the file allows."""
        service = self.services[name]
        check = service.check
        assert check is not None, name
        program = check.command[0]
        if name in self._parts and program != "pg_isready":
            assert self._parts[
                name
            ].alive()  # it has answered in its protocol: no such program here
            return
        deadline = time.monotonic() + check.patience_seconds
        while not self._passes(service, check.command):
            assert time.monotonic() < deadline, f"{name} is not healthy:\n{self.words(name)}"
            self.assert_running()
            time.sleep(POLL_SECONDS)

    def is_alive(self, name: str) -> bool:
        """Says whether the image's health check passes in a service that the file starts."""
        return self._passes(self.services[name], image_check())

    def _passes(self, service: Service, check: tuple[str, ...]) -> bool:
        environment = self._environment(service, self._folder)
        if service.name == "postgres":
            environment["PGPORT"] = str(self.addresses.port("postgres", 5432))
        command = self._argv(service, check)
        done = subprocess.run(
            command, env=environment, capture_output=True, check=False, timeout=CHECK_SECONDS
        )
        return done.returncode == 0

    def wait(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Waits until a condition holds while everything runs."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.assert_running()
            assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}\n{self.words()}"
            time.sleep(POLL_SECONDS)

    def assert_running(self) -> None:
        """Fails with the log of a process or server that ended unasked."""
        for name, process in self._processes.items():
            assert process.poll() is None, f"{name} ended:\n{self.words(name)}"
        for name, part in self._parts.items():
            assert part.alive(), f"{name} ended:\n{part.log_tail()}"

    def words(self, *names: str) -> str:
        """Returns the end of what services have written."""
        told = []
        for name in names or [name for name, service in self.services.items() if service.ours]:
            with contextlib.suppress(OSError):
                lines = self._log(name).read_text(errors="replace").splitlines()
                told += [f"--- {name}", *lines[-LOG_TAIL_LINES:]]
        return "\n".join(told)

    def log(self, name: str) -> str:
        """Returns all that a service has written."""
        return self._log(name).read_text(errors="replace")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    # Stopping

    def stop(self) -> None:
        """Stops everything by SIGTERM, those first that need others; notes the exit codes."""
        for name in reversed(self.services):
            if name in self._processes:
                process = self._processes[name]
                process.terminate()
                self.exit_codes[name] = process.wait(STOP_SECONDS)
                del self._processes[name]
            elif name in self._parts:
                self.exit_codes[name] = terminate(self._parts.pop(name))

    def kill(self) -> None:
        """Ends what still runs, whatever happened."""
        for process in self._processes.values():
            process.kill()
            process.wait(STOP_SECONDS)
        for part in self._parts.values():
            part.stop()


@contextlib.contextmanager
def composed(variables: Mapping[str, str], *, apache: bool) -> Iterator[NativeCompose]:
    """Starts all services of the file; ends what is left of them.

    Args:
        variables: those that the file takes from the shell.
        apache: Kafka is Apache Kafka, as in the file; else the embedded broker stands in.
    """
    made: list[NativeCompose] = []

    def kafka(folder: Path) -> KafkaServer:
        made.append(NativeCompose(folder, variables))
        environment = made[0].services["kafka"].environment
        return ComposeKafka(folder, environment, lambda part: made[0].server_is("kafka", part))

    stack = EmbeddedStack(
        parts=["kafka"], kafka_type=kafka if apache else None, report=lambda _: None
    )
    with stack:
        compose = made[0] if made else NativeCompose(stack.directory, variables)
        compose.server_is("kafka", stack.kafka)
        try:
            compose.start()
            yield compose
        finally:
            compose.kill()
