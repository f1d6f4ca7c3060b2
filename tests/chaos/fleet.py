"""Two balancers and three workers on real servers, fault proxies before these, and what is watched.

Decides nothing about faults: tests bring them about. Knows how to tell that all is well. The broker
is the embedded one, with ``PERMIT_TEST_KAFKA=apache`` Apache Kafka instead.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from botocore.exceptions import BotoCoreError, ClientError

from balancer.embedded import EmbeddedStack, KafkaPart, KafkaServer, S3Part
from tests.support.apache_kafka import ApacheKafka
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.real_clients import s3_client
from tests.support.served import ROOT, STOP_SECONDS, Server, environment, run_command, serving
from tests.support.servers import brokers_to_test, silent
from tests.support.small_disk import SmallDisk

NAME = "legacy"
WINDOW_SECONDS = 3
CAPACITY = 240
LEASE_SECONDS = 3
HOSTS = ("a", "b", "c")
NEARLY_ALL = CAPACITY * 8 // 10
POLL_SECONDS = 0.1
TAKEN_OVER_SECONDS = 15.0
SERVED_SECONDS = 30.0
VALID_SECONDS = 3 * WINDOW_SECONDS
NOTICED_SECONDS = 60.0


@dataclass
class Worker:
    """A worker's process and the file of what it spent."""

    host: str
    file: Path
    process: subprocess.Popen[bytes]


@dataclass
class Fleet:
    """All of it, running.

    ``balancers`` read S3 through a proxy each, workers through a third: ``proxies``. ``links`` are
    those before every part by its name; Kafka's and PostgreSQL's are everybody's. The clock of each
    balancer goes wrong by the seconds in its file of ``clocks``. ``disks`` hold a part's data, by
    its name, S3's also the embedded broker's; there are none where none may be mounted.
    """

    stack: EmbeddedStack
    balancers: list[Server]
    proxies: list[FaultProxy]
    links: dict[str, list[FaultProxy]]
    clocks: list[Path]
    disks: dict[str, SmallDisk]
    folder: Path
    workers: dict[str, Worker] = field(default_factory=dict)
    is_well: bool = False

    # ------------------------------------------------------------ what is brought about

    def play(self, fault: Fault, part: str = "s3") -> None:
        """Do this to everybody's connections to a part."""
        for proxy in self.links[part]:
            proxy.play(fault)

    def step_clock(self, balancer: Server, seconds: float) -> None:
        """Let a balancer's clock be wrong by so much."""
        self.clocks[self.balancers.index(balancer)].write_text(str(seconds))

    def make_room(self, part: str) -> None:
        """Give a part's disk room again, and wait until it writes there.

        It is started if it has died of it. SeaweedFS is started anew, as whoever runs it has to:
        its index keeps the first failed write as the answer to each later one, and volumes stay
        closed for minutes. What the balancer needs after that is what is of interest.
        """
        self.disks[part].make_room()
        server = self.stack.parts[part]
        if part == "s3":
            server.kill()
        server.start()
        if part == "s3":
            self.wait(self._s3_writes, "written to by S3", NOTICED_SECONDS)

    def _s3_writes(self) -> bool:
        with contextlib.suppress(ClientError, BotoCoreError):
            s3_client(self.stack.s3).put_object(Bucket=self.stack.s3.bucket, Key="room", Body=b"1")
            return True
        return False

    def start_worker(self, host: str) -> None:
        """Start a worker; its file goes on where there is one."""
        own = self.stack.environment() | {
            "CHAOS_DESTINATION": NAME,
            "CHAOS_DISTRIBUTION": f"s3://{self.stack.s3.bucket}/chaos",
            "PERMIT_ROUND_SECONDS": str(WINDOW_SECONDS),
            "PERMIT_S3_ENDPOINT_URL": f"http://{self.proxies[-1].address}",
            "PERMIT_KAFKA_BOOTSTRAP_SERVERS": self.links["kafka"][0].address,
        }
        file = self.folder / f"worker-{host}.txt"
        with (self.folder / f"worker-{host}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.worker", host, str(file)],
                env=environment(own),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self.workers[host] = Worker(host, file, process)

    def end(self) -> None:
        """Undo every fault and end every worker."""
        for part in self.links:
            self.play(Fault.NONE, part)
        for disk in self.disks.values():
            disk.make_room()
        for balancer in self.balancers:
            if balancer.process.poll() is None:
                balancer.process.send_signal(signal.SIGCONT)
        for worker in self.workers.values():
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGCONT)
                worker.process.kill()
            worker.process.wait(STOP_SECONDS)

    # ------------------------------------------------------------ what is watched

    def roles(self) -> tuple[Server, Server]:
        """Return who leads, and the other one; nobody may be paused."""
        one, other = self.balancers
        self.wait(lambda: leads(one) != leads(other), "one leader", 30)
        return (one, other) if leads(one) else (other, one)

    def wait(self, condition: Callable[[], bool], what: str, seconds: float) -> float:
        """Wait until a condition holds; return how long it took, in seconds."""
        started = time.monotonic()
        while not condition():
            waited = time.monotonic() - started
            assert waited < seconds, f"not {what} within {seconds} s:\n{self.told()}"
            time.sleep(POLL_SECONDS)
        return time.monotonic() - started

    def told(self) -> str:
        """Return the end of what each process said, and of what was spent."""
        logs = [*self.folder.glob("serve-*.log"), *self.folder.glob("worker-*.log")]
        ends = (f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs)
        return "\n".join([*ends, f"spent by window: {sorted(self.spent().items())[-20:]}"])

    def spent(self, hosts: tuple[str, ...] = HOSTS) -> Counter[int]:
        """Return permits spent by window, of these workers together."""
        found: Counter[int] = Counter()
        for host in hosts:
            file = self.folder / f"worker-{host}.txt"
            lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
            found.update(int(line) // (WINDOW_SECONDS * 1000) for line in lines)
        return found

    def check_never_over(self) -> None:
        """Check every window since the start: all workers together stayed within the capacity."""
        over = {window: sum_ for window, sum_ in self.spent().items() if sum_ > CAPACITY}
        assert over == {}, f"over {CAPACITY}:\n{self.told()}"

    def await_service(self, seconds: float, hosts: tuple[str, ...] = HOSTS) -> float:
        """Wait until a window that begins from now on is served nearly whole, by all of these."""
        first = present_window() + 1

        def is_served() -> bool:
            return any(
                self.spent()[window] >= NEARLY_ALL
                and all(self.spent((host,))[window] > 0 for host in hosts)
                for window in range(first, present_window())
            )

        took = self.wait(is_served, f"served nearly whole by {', '.join(hosts)}", seconds)
        self.is_well = hosts == HOSTS
        return took


def leads(server: Server) -> bool:
    """Say whether it leads the only shard."""
    return "permit_leading_shards 1.0" in (server.ask("/metrics")[1] or "")


def measured(server: Server, name: str) -> float:
    """Return what a balancer's metric without labels shows; 0 where it shows none."""
    text = str(server.ask("/metrics")[1] or "")
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def present_window() -> int:
    """Return the index of the window that runs now."""
    return int(time.time()) // WINDOW_SECONDS


def published(server: Server, words: str | None = None) -> list[int]:
    """Return the epochs that a balancer says it published, in its order."""
    told = server.words() if words is None else words
    return [int(epoch) for epoch in re.findall(r"\[published\].*? epoch (\d+),", told)]


class ProxiedApacheKafka(ApacheKafka):
    """Apache Kafka; everybody is sent to a proxy before it."""

    def __init__(self, directory: Path, proxy: FaultProxy) -> None:
        super().__init__(directory)
        self._proxy = proxy

    def _prepare(self) -> None:
        super()._prepare()
        settings = self._settings_file.read_text()
        own, advertised = (
            f"advertised.listeners=PLAINTEXT://{address}\n"
            for address in (self.address, self._proxy.address)
        )
        self._settings_file.write_text(settings.replace(own, advertised))


class ProxiedKafka(KafkaPart):
    """The embedded broker; everybody is sent to a proxy before it."""

    def __init__(self, directory: Path, storage: S3Part, proxy: FaultProxy) -> None:
        super().__init__(directory, storage)
        self._proxy = proxy

    def _command(self) -> list[str]:
        own = f"--advertised-listener-url=tcp://{self.address}"
        advertised = f"--advertised-listener-url=tcp://{self._proxy.address}"
        return [advertised if part == own else part for part in super()._command()]


@contextmanager
def running_fleet(folder: Path) -> Iterator[Fleet]:
    """Run a fleet until it is left; it is ready and serves."""
    with ExitStack() as life:
        to_kafka = life.enter_context(FaultProxy(lambda: stack.kafka.address))
        disks: dict[str, SmallDisk] = {}

        is_apache = "apache" in brokers_to_test()

        def make_kafka(directory: Path) -> KafkaServer:
            # Called when the directory is there and nothing runs in it yet.
            beneath.callback(shutil.rmtree, directory, ignore_errors=True)
            homes = {"postgres": "postgres", "s3": "s3/data"}
            if is_apache:
                homes["kafka"] = "kafka/data"
            for part, home in homes.items():
                disk = SmallDisk(directory / home)
                if disk.mount():
                    disks[part] = disk
                    beneath.callback(disk.unmount)
            if is_apache:
                return ProxiedApacheKafka(directory, to_kafka)
            return ProxiedKafka(directory, stack.s3, to_kafka)

        beneath = life.enter_context(ExitStack())  # left when the stack has ended
        stack = EmbeddedStack(report=silent, durable_kafka=True, kafka_type=make_kafka)
        life.enter_context(stack)
        proxies = [
            life.enter_context(FaultProxy(stack.s3.address)) for _ in ("one", "other", "workers")
        ]
        dsn = urlsplit(stack.postgres.dsn)
        to_postgres = life.enter_context(FaultProxy(stack.postgres.address))
        user, _, _ = dsn.netloc.rpartition("@")
        settings = stack.environment() | {
            "PERMIT_S3_PREFIX": "chaos",
            "PERMIT_KAFKA_BOOTSTRAP_SERVERS": to_kafka.address,
            "PERMIT_POSTGRES_DSN": urlunsplit(dsn._replace(netloc=f"{user}@{to_postgres.address}")),
            "PERMIT_KAFKA_SESSION_SECONDS": "3",
            "PERMIT_KAFKA_PARTITIONS": "4",
            "PERMIT_ROUND_SECONDS": str(WINDOW_SECONDS),
            "PERMIT_TTL_SECONDS": str(3 * WINDOW_SECONDS),
            "PERMIT_LEASE_SECONDS": str(LEASE_SECONDS),
            "PERMIT_SHARDS": "1",
        }
        assert run_command(settings, ["migrate"]).returncode == 0
        balancers, clocks = [], []
        for number, proxy in enumerate(proxies[:2]):
            clocks.append(folder / f"clock-{number}")
            own = settings | {
                "PERMIT_S3_ENDPOINT_URL": f"http://{proxy.address}",
                "PYTHONPATH": f"{ROOT / 'tests/chaos/stepped'}:{ROOT}",
                "CHAOS_CLOCK": str(clocks[-1]),
            }
            balancers.append(life.enter_context(serving(own, folder)))
            balancers[-1].wait_ready()
        body = {"capacity": CAPACITY, "window_seconds": WINDOW_SECONDS}
        assert balancers[0].ask(f"/destinations/{NAME}", "PUT", body)[0] == 201
        links = {"s3": proxies, "kafka": [to_kafka], "postgres": [to_postgres]}
        fleet = Fleet(stack, balancers, proxies, links, clocks, disks, folder)
        life.callback(fleet.end)
        for host in HOSTS:
            fleet.start_worker(host)
        fleet.await_service(60)
        yield fleet
