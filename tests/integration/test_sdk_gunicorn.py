"""The SDK inside gunicorn's workers, on a real Kafka: each is a member of its own and says goodbye.

Which permits there are comes from a balancer in the workers' memory; what is on trial is how a
client lives in gunicorn's kinds of processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka.errors import TopicAlreadyExistsError

from balancer.embedded import KafkaServer
from tests.integration.test_sdk_processes import ROOT, batches
from tests.support.real_clients import await_condition, create_topic
from tests.support.served import free_port
from worker_sdk.runtime.processes import EXIT_SECONDS
from worker_sdk.wire.usage import USAGE_TOPIC, MemberState, UsageBatch

STOP_SECONDS = 20.0
WORKERS = 2
IN_EACH_RUN = {("gevent", True, "import")}  # sync is recycled below

APPLICATION = """
import asyncio, os, time
from worker_sdk import PermitClient
from worker_sdk.testing import InMemoryBalancer
from worker_sdk.transports.base import Reading
from worker_sdk.transports.kafka import KafkaSink

balancer = InMemoryBalancer({"db": 1000}, members=10)

class Sink(KafkaSink):
    def send(self, batch, timeout_seconds):
        super().send(batch, timeout_seconds)
        balancer.sink.send(batch, timeout_seconds)

async def some_work():
    await asyncio.sleep(0.01)
    return 1

client = PermitClient(
    destinations=["db"],
    kafka=lambda: Sink(os.environ["KAFKA"]),
    distribution=lambda identity: Source(identity),
    host=os.environ["PERMIT_HOST"],
)

class Source:
    can_wait = False
    def __init__(self, identity):
        self.identity = identity
    def read(self, held, wait_seconds):
        return Reading(balancer.shares(self.identity, time.time_ns() // 1_000_000))
    def interrupt(self):
        pass

if os.environ.get("START") == "import":
    client.start()
db = client.destination("db")

def application(environ, start_response):
    assert asyncio.run(some_work()) == 1  # an event loop of the program's own
    db.acquire(timeout=20)
    body = f"{os.getpid()} {client.state.instance} {client.state.flushes_failed}"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body.encode()]
"""

SETTINGS = """
import os

def post_worker_init(worker):
    if os.environ.get("START") != "import":
        from permit_app import client
        client.start()
"""


@dataclass(frozen=True, slots=True)
class Gunicorn:
    """A running gunicorn and what its workers answer."""

    port: int
    log: Path
    process: subprocess.Popen[bytes]

    def ask(self) -> tuple[int, str] | None:
        """Return (pid, instance) of the worker that answered; None if nobody did."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=30) as answer:
                pid, instance, failed = answer.read().decode().split()
        except (OSError, urllib.error.URLError):
            return None
        assert failed == "0"
        return int(pid), instance

    def stop(self) -> str:
        """End it as a supervisor does; return what it logged."""
        self.process.terminate()
        assert self.process.wait(STOP_SECONDS) == 0
        return self.log.read_text(errors="replace")


@contextmanager
def gunicorn(folder: Path, kafka: str, host: str, *options: str, start: str) -> Iterator[Gunicorn]:
    (folder / "permit_app.py").write_text(APPLICATION)
    (folder / "settings.py").write_text(SETTINGS)
    port = free_port()
    log = folder / "gunicorn.log"
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}:{folder}", "KAFKA": kafka, "PERMIT_HOST": host, "START": start,
    }  # fmt: skip
    command = [
        sys.executable, "-W", "error", "-m", "gunicorn", "permit_app", "-c", "settings.py",
        "-b", f"127.0.0.1:{port}", "--graceful-timeout", "5", "--log-level", "warning", *options,
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield Gunicorn(port, log, process)
    finally:
        process.kill()
        process.wait(STOP_SECONDS)


@pytest.fixture
def broker(kafka: KafkaServer) -> KafkaServer:
    """The broker, with the topic of usage."""
    with contextlib.suppress(TopicAlreadyExistsError):
        asyncio.run(create_topic(kafka.bootstrap_servers, USAGE_TOPIC))
    return kafka


def used(found: list[UsageBatch]) -> int:
    return sum(entry.used for batch in found for entry in batch.tuples)


EVERY_WAY = [
    pytest.param(
        kind,
        is_preloaded,
        start,
        id=f"{kind[0]}-{start}{'-preload' if is_preloaded else ''}",
        marks=[] if (kind[0], is_preloaded, start) in IN_EACH_RUN else pytest.mark.long,
    )
    for kind in (["sync"], ["gthread", "--threads", "4"], ["gevent"])
    for is_preloaded in (False, True)
    for start in ("hook", "import")
]


@pytest.mark.parametrize(("kind", "is_preloaded", "start"), EVERY_WAY)
def test_each_worker_is_a_member_that_reports_its_own_and_says_goodbye(
    broker: KafkaServer,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    kind: list[str],
    is_preloaded: bool,
    start: str,
) -> None:
    host = fresh_name("host")
    options = ["-w", str(WORKERS), "-k", *kind, *(["--preload"] if is_preloaded else [])]
    answers: list[tuple[int, str]] = []

    def all_have_answered() -> bool:
        answer = server.ask()
        answers.extend([] if answer is None else [answer])
        return len(set(answers)) == WORKERS

    with gunicorn(tmp_path, broker.bootstrap_servers, host, *options, start=start) as server:
        await_condition(all_have_answered, "every worker has answered", 60)
        said = server.stop()
    assert "Traceback" not in said, said
    found = batches(broker, host)
    members = {instance for _, instance in answers}
    assert len(members) == len({pid for pid, _ in answers}) == WORKERS
    leavers = {batch.instance for batch in found if batch.state is MemberState.LEAVING}
    # A client that is started in the preloading master is one more member.
    masters = 1 if is_preloaded and start == "import" else 0
    assert members <= leavers
    assert len(leavers) == len({batch.instance for batch in found}) == WORKERS + masters
    assert used(found) == len(answers)


def test_recycled_workers_lose_no_count_and_a_broker_that_is_away_does_not_hold_them_up(
    kafka: KafkaServer, broker: KafkaServer, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    host = fresh_name("host")
    options = ["-w", "1", "--preload", "--max-requests", "5"]
    answers: list[tuple[int, str]] = []

    def has_answered(count: int) -> bool:
        answer = server.ask()
        answers.extend([] if answer is None else [answer])
        return len(answers) >= count

    with gunicorn(tmp_path, broker.bootstrap_servers, host, *options, start="hook") as server:
        await_condition(lambda: has_answered(11), "two workers have had their turn", 60)
        last_pid = answers[-1][0]
        assert len({pid for pid, _ in answers}) == 3
        kafka.pause()
        try:
            await_condition(lambda: has_answered(15), "the third as well", 60)
            started = time.monotonic()
            await_condition(lambda: not _is_alive(last_pid), "it ends", 60)
            assert time.monotonic() - started < EXIT_SECONDS + 5
        finally:
            kafka.resume()
        server.stop()
    found = batches(broker, host)
    counted = {
        batch.instance: used([other for other in found if other.instance == batch.instance])
        for batch in found
        if batch.state is MemberState.LEAVING
    }
    first_two = {instance for _, instance in answers[:10]}
    assert {instance: counted[instance] for instance in first_two} == dict.fromkeys(first_two, 5)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
