"""A run of the demonstration from the first server to the summary.

Decides the order of things and when what has died is brought back. The balancer and the workers
run as processes with the commands and the settings that a user would give them; nothing here
knows how shares come about.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from balancer.demo import tally
from balancer.demo.demand import End, Scenario
from balancer.demo.hosts import DemoHost
from balancer.demo.processes import Process
from balancer.demo.table import Frame, HostRow
from balancer.demo.worker import WorkerPlan
from balancer.embedded import EmbeddedStack
from balancer.embedded.errors import EmbeddedError
from balancer.errors import BalancerError, UnavailableError
from worker_sdk.wire.shares import POINTS

DESTINATION: Final = "orders-db"
READY_SECONDS: Final = 60.0
STEP_SECONDS: Final = 0.25
REQUEST_SECONDS: Final = 5.0
NOTES: Final = 4
STARTS_MAX: Final = 2
"""A process that ends so often before it is ready will not become so."""
PASSED_ON: Final = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE", "HOME")


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is done; ``say`` takes a line for people, ``show`` a frame once a window."""

    window_seconds: int
    say: Callable[[str], None]
    show: Callable[[Frame], None]


class Run:
    """One run; `execute` does it all."""

    def __init__(self, scenario: Scenario, options: Options, stack: EmbeddedStack) -> None:
        self._scenario = scenario
        self._options = options
        self._stack = stack
        self._hosts = [DemoHost(plan) for plan in scenario.hosts]
        self._notes: list[str] = []
        self._observed = tally.Observed()
        self._first_window = 0
        self._split = tally.Observed()
        self._services: list[Process] = []

    async def execute(self) -> dict[str, object]:
        """Run the scenario and return its summary.

        Raises:
            BalancerError: where a part does not start.
        """
        directory = self._stack.directory / "demo"
        directory.mkdir(mode=0o711, exist_ok=True)
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                destination_url = await self._start_destination(directory)
                balancer_url = await self._start_balancer(session, directory)
                await self._create_destination(session, balancer_url)
                self._first_window = int(time.time() // self._options.window_seconds) + 1
                self._split = tally.split_evenly(self._scenario, self._first_window)
                async with self._watch_parts():
                    await self._play(session, directory, destination_url, balancer_url)
                await self._count(session, destination_url)
        finally:
            ending = asyncio.ensure_future(self._stop_all())
            try:
                await asyncio.shield(ending)
            finally:
                await ending
        return self._summary()

    def _note(self, line: str) -> None:
        self._notes = [*self._notes, line][-NOTES:]
        self._options.say(line)

    def _environment(self) -> dict[str, str]:
        own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        seconds = self._options.window_seconds
        return {
            **own,
            **self._stack.environment(),
            "PERMIT_ROUND_SECONDS": str(seconds),
            "PERMIT_TTL_SECONDS": str(3 * seconds),
            "PERMIT_SHARDS": "1",
            "PERMIT_KAFKA_SESSION_SECONDS": "3",
        }

    def _process(
        self,
        name: str,
        arguments: list[str],
        directory: Path,
        environment: dict[str, str],
        on_line: Callable[[str], None] | None = None,
    ) -> Process:
        return Process(
            name,
            [sys.executable, "-m", *arguments],
            environment=environment,
            directory=directory,
            on_line=on_line,
            on_restart=self._note,
            log_file=directory / f"{name}.log",
        )

    async def _start_destination(self, directory: Path) -> str:
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def heard(line: str) -> None:
            if not address.done():
                address.set_result(line)

        arguments = [
            "balancer.demo.destination",
            f"--capacity={self._scenario.capacity}",
            f"--window-seconds={self._options.window_seconds}",
        ]
        process = self._process("destination", arguments, directory, self._environment(), heard)
        self._services.append(process)
        await process.start()
        url = await self._bounded(address, process)
        self._options.say(
            f"destination: {self._scenario.capacity} requests per "
            f"{self._options.window_seconds} s, 429 beyond, at {url}"
        )
        return url

    @staticmethod
    async def _bounded(awaited: asyncio.Future[str], process: Process) -> str:
        deadline = time.monotonic() + READY_SECONDS
        while not awaited.done():
            if time.monotonic() > deadline or process.starts > STARTS_MAX:
                raise UnavailableError(f"the {process.name} did not start:\n{process.words()}")
            await asyncio.sleep(STEP_SECONDS)
        return awaited.result()

    async def _start_balancer(self, session: aiohttp.ClientSession, directory: Path) -> str:
        port = _free_port()
        environment = self._environment() | {"PERMIT_HTTP_PORT": str(port)}
        migrate = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "balancer",
            "migrate",
            env=environment,
            cwd=directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, words = await asyncio.wait_for(migrate.communicate(), READY_SECONDS)
        finally:
            if migrate.returncode is None:
                migrate.kill()
                await migrate.wait()
        if migrate.returncode != 0:
            raise BalancerError(f"migrate failed: {words.decode(errors='replace').strip()}")
        process = self._process("balancer", ["balancer", "serve"], directory, environment)
        self._services.append(process)
        await process.start()
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + READY_SECONDS
        while not await self._ready(session, url):
            if time.monotonic() > deadline or process.starts > STARTS_MAX:
                raise UnavailableError(f"the balancer is not ready:\n{process.words()}")
            await asyncio.sleep(STEP_SECONDS)
        self._options.say(f"balancer: permit-balancer serve at {url}")
        return url

    @staticmethod
    async def _ready(session: aiohttp.ClientSession, url: str) -> bool:
        try:
            async with session.get(f"{url}/readyz") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _create_destination(self, session: aiohttp.ClientSession, url: str) -> None:
        body = {
            "capacity": self._scenario.capacity,
            "window_seconds": self._options.window_seconds,
            "policy": {
                "newcomer_reserve_points": self._scenario.newcomer_reserve_points,
                "valid_for_seconds": 3 * self._options.window_seconds,
            },
        }
        async with session.put(f"{url}/destinations/{DESTINATION}", json=body) as answer:
            if answer.status not in (200, 201, 204):
                raise BalancerError(f"PUT /destinations/{DESTINATION}: {await answer.text()}")

    async def _play(
        self,
        session: aiohttp.ClientSession,
        directory: Path,
        destination_url: str,
        balancer_url: str,
    ) -> None:
        shown = -1
        while True:
            window = int(time.time() // self._options.window_seconds) - self._first_window
            await self._start_and_end_hosts(
                max(window, 0), directory, destination_url, balancer_url
            )
            if window > shown and window >= 1:
                shown = window
                await self._count(session, destination_url)
                await self._look_at_shares(session, balancer_url)
                self._options.show(self._frame(window - 1))
            if window >= self._scenario.windows:
                return
            await asyncio.sleep(STEP_SECONDS)

    async def _start_and_end_hosts(
        self, window: int, directory: Path, destination_url: str, balancer_url: str
    ) -> None:
        for host in self._hosts:
            plan = host.plan
            if host.process is None and not host.ended and plan.lives_in(window):
                host.process = self._worker(host, directory, destination_url, balancer_url)
                if window > 0:
                    self._note(f"{plan.host} joins")
                await host.process.start()
            over = plan.ends_at is not None and window >= plan.ends_at
            if host.process is not None and over and not host.ended:
                host.ended = True
                killed = plan.end is End.KILLED
                self._note(f"{plan.host} is killed" if killed else f"{plan.host} leaves")
                await host.process.stop(number=signal.SIGKILL if killed else signal.SIGTERM)

    def _worker(
        self, host: DemoHost, directory: Path, destination_url: str, balancer_url: str
    ) -> Process:
        environment = self._environment()
        from_s3 = f"s3://{self._stack.s3.bucket}"
        plan = WorkerPlan(
            host=host.plan.host,
            style=host.plan.style.value,
            destination=DESTINATION,
            destination_url=destination_url,
            kafka=self._stack.kafka.bootstrap_servers,
            distribution=balancer_url if host.plan.source == "http" else from_s3,
            s3_endpoint_url=self._stack.s3.endpoint_url,
            window_seconds=self._options.window_seconds,
            first_window=self._first_window,
            demand=host.plan.demand,
            keeps_backlog=self._scenario.keeps_backlog,
        )
        arguments = ["balancer.demo.worker", plan.to_json()]
        return self._process(host.plan.host, arguments, directory, environment, host.take_line)

    @asynccontextmanager
    async def _watch_parts(self) -> AsyncIterator[None]:
        """Bring back servers of the stack that die during the run."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(1.0)
                for name, part in self._stack.parts.items():
                    if part.alive():
                        continue
                    self._note(f"{name} ended; starting it again")
                    with contextlib.suppress(EmbeddedError):
                        await asyncio.to_thread(part.start)

        task = asyncio.create_task(watch(), name="watch parts")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _count(self, session: aiohttp.ClientSession, url: str) -> None:
        try:
            async with session.get(f"{url}/windows") as answer:
                counts = (await answer.json())["windows"]
        except (aiohttp.ClientError, TimeoutError):
            return
        for window, count in counts.items():
            relative = int(window) - self._first_window
            self._observed.arrived[relative] = int(count["arrived"])
            self._observed.refused[relative] = int(count["refused"])

    async def _look_at_shares(self, session: aiohttp.ClientSession, url: str) -> None:
        try:
            async with session.get(f"{url}/destinations/{DESTINATION}/distribution") as answer:
                if answer.status != 200:
                    return
                documents = (await answer.json())["documents"]
        except (aiohttp.ClientError, TimeoutError, KeyError, ValueError):
            return
        for document in documents:
            taken = sum(
                end - start for member in document["members"] for start, end in member["intervals"]
            )
            held = sum(hold[1] - hold[0] for hold in document["holds"])
            self._observed.share_sum_points = max(self._observed.share_sum_points, taken + held)

    def _frame(self, window: int) -> Frame:
        rows = []
        for host in self._hosts:
            if not host.plan.lives_in(window):
                continue
            rows.append(
                HostRow(
                    host=host.plan.host,
                    style=host.plan.style.value,
                    mode=str(host.account.get("mode", "starting")),
                    share_points=host.number("share_points"),
                    wanted=host.plan.demand[window],
                    used=host.delivered().get(self._first_window + window, 0),
                    waiting=host.number("waiting"),
                    denied=host.number("denied"),
                )
            )
        return Frame(
            scenario=self._scenario.name,
            window=window + 1,
            windows=self._scenario.windows,
            capacity=self._scenario.capacity,
            arrived=self._observed.arrived.get(window, 0),
            refused=self._observed.refused.get(window, 0),
            even_split=self._split.arrived.get(window, 0),
            rows=tuple(rows),
            notes=tuple(self._notes),
        )

    async def _stop_all(self) -> None:
        workers = [host.process for host in self._hosts if host.process is not None]
        await asyncio.gather(*(process.stop() for process in workers))
        for process in reversed(self._services):
            await process.stop()

    def _summary(self) -> dict[str, object]:
        self._observed.arrived = {
            window: count
            for window, count in self._observed.arrived.items()
            if window < self._scenario.windows
        }
        for host in self._hosts:
            self._observed.zero_windows[host.plan.host] = host.longest_zero(self._first_window)
            self._observed.first_permit_seconds.extend(host.first_permits.values())
        self._observed.share_sum_points = self._observed.share_sum_points or POINTS
        result = tally.summary(self._scenario, self._observed)
        result["even_split"] = tally.summary(self._scenario, self._split)
        return result


def _free_port() -> int:

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def stack_of_the_demo(say: Callable[[str], None]) -> Iterator[EmbeddedStack]:
    """Start the embedded stack for a run and end it afterwards."""
    with EmbeddedStack(report=say, durable_kafka=True) as stack:
        yield stack
