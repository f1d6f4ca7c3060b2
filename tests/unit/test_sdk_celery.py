"""The celery adapter, in real celery workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from celery import Celery, Task
from celery.canvas import Signature
from celery.contrib.testing.worker import start_worker
from kombu.exceptions import OperationalError

from tests.support.real_clients import await_condition
from worker_sdk import ConfigurationError, PermitClient, PermitTimeout
from worker_sdk.adapters.celery import permit_task
from worker_sdk.testing import InMemoryBalancer, ManualClock, wait_until_ready

WAIT_SECONDS = 20.0
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def working(app: Celery) -> Iterator[None]:
    with start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=WAIT_SECONDS):
        yield


@pytest.fixture
def app() -> Celery:
    app = Celery("orders", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.broker_transport_options = {"polling_interval": 0.05}
    return app


@pytest.fixture
def client(permit_clock: ManualClock) -> Iterator[PermitClient]:
    client = InMemoryBalancer({"db": 2}).client(clock=permit_clock)
    yield client
    client.close()


def test_a_task_without_a_permit_goes_back_and_runs_with_the_next_window(
    app: Celery, client: PermitClient, permit_clock: ManualClock
) -> None:
    done: list[tuple[int, int]] = []
    put_back: list[object] = []
    base = permit_task(client, "db", wait_seconds=0.05)

    class Watched(base):  # type: ignore[misc, valid-type]  # celery has no types
        abstract = True

        def on_retry(self, *_: object) -> None:
            put_back.append(self.request.id)
            permit_clock.advance(60)

    @app.task(base=Watched, bind=True, max_retries=0, shared=False)  # type: ignore[untyped-decorator]
    def deliver(task: Task, number: int) -> None:
        done.append((number, task.request.retries))

    with working(app):
        wait_until_ready(client)
        to_next_ms = 60_000 - permit_clock.now_ms % 60_000
        permit_clock.advance(to_next_ms / 1000 - 0.5)
        for number in range(3):
            deliver.delay(number)
        await_condition(lambda: len(done) == 3, "all have run")
    assert done == [(0, 0), (1, 0), (2, 0)]  # not even one retry was used up
    assert len(put_back) == 1


@pytest.mark.parametrize("acks_late", [False, True])
def test_a_task_that_cannot_be_put_back_fails_visibly_or_stays_in_its_queue(
    app: Celery,
    client: PermitClient,
    permit_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    acks_late: bool,
) -> None:
    done: list[int] = []
    failed: list[object] = []

    class Watched(permit_task(client, "db", wait_seconds=0.05)):  # type: ignore[misc]
        abstract = True

        def on_failure(self, error: object, *_: object) -> None:
            failed.append(error)

    @app.task(base=Watched, acks_late=acks_late, shared=False)  # type: ignore[untyped-decorator]
    def deliver(number: int) -> None:
        done.append(number)

    def be_away(*_: object, **__: object) -> None:
        permit_clock.advance(60)
        raise OperationalError("the broker is away")

    monkeypatch.setattr(Signature, "apply_async", be_away)
    with working(app):
        wait_until_ready(client)
        for number in range(3):
            deliver.delay(number)
        await_condition(lambda: len(done) + len(failed) == 3, "each has an outcome")
    assert [type(error) for error in failed] == ([] if acks_late else [PermitTimeout])
    assert sorted(done) == ([0, 1, 2] if acks_late else [0, 1])


def test_a_task_that_is_called_takes_a_permit_or_says_that_there_is_none(
    app: Celery, client: PermitClient
) -> None:
    @app.task(base=permit_task(client, "db", wait_seconds=0.05), shared=False)  # type: ignore[untyped-decorator]
    def deliver(number: int) -> int:
        return number + 1

    client.start()
    wait_until_ready(client)
    assert [deliver(1), deliver(2)] == [2, 3]
    with pytest.raises(PermitTimeout):
        deliver(3)
    with pytest.raises(PermitTimeout):
        deliver.apply(args=(3,), throw=True)
    assert client.destination("db").state.used == 2


def test_a_destination_that_the_client_does_not_know_is_refused_at_once(
    client: PermitClient,
) -> None:
    with pytest.raises(ConfigurationError, match="'other'"):
        permit_task(client, "other")


PREFORK = """
import os
from celery import Celery
from worker_sdk.adapters.celery import permit_task
from worker_sdk.testing import InMemoryBalancer
from worker_sdk.transports.memory import MemorySink

folder = os.environ["FOLDER"]
app = Celery("orders", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": folder, "data_folder_out": folder, "control_folder": folder + "/control",
    "polling_interval": 0.05,
}

def note(line):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(line + "\\n")

class Balancer(InMemoryBalancer):
    def _take(self, batch):
        super()._take(batch)
        note(f"{batch.state} {batch.instance} {os.getpid()}")

client = Balancer({"db": 1000}).client()

@app.task(base=permit_task(client, "db", wait_seconds=20))
def deliver(number):
    note(f"delivered {client.state.instance} {os.getpid()}")
"""


def notes_of_a_worker(folder: Path, *options: str) -> tuple[dict[str, set[tuple[str, str]]], int]:
    """Have a real worker run six tasks; return what was noted, and the worker's pid."""
    notes, queue = folder / "notes", folder / "queue"
    queue.mkdir()
    (folder / "prefork_orders.py").write_text(PREFORK)
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}:{folder}", "FOLDER": str(queue), "NOTES": str(notes),
    }  # fmt: skip
    ask = "import prefork_orders as o; [o.deliver.delay(n) for n in range(6)]"
    subprocess.run([sys.executable, "-c", ask], env=environment, check=True, timeout=60, cwd=folder)
    command = [sys.executable, "-m", "celery", "-A", "prefork_orders", "worker"]
    worker = subprocess.Popen(
        [
            *command,
            "--concurrency=2",
            "--loglevel=error",
            "--without-gossip",
            "--without-mingle",
            *options,
        ],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_condition(
            lambda: notes.exists() and notes.read_text().count("delivered") == 6, "all ran", 60
        )
        worker.terminate()
        worker.wait(WAIT_SECONDS)
    finally:
        worker.kill()
        worker.wait(WAIT_SECONDS)
    lines = [tuple(line.split()) for line in notes.read_text().splitlines()]
    noted: dict[str, set[tuple[str, str]]] = {}
    for what, instance, pid in lines:
        noted.setdefault(what, set()).add((instance, pid))
    return noted, worker.pid


def test_each_process_of_a_worker_is_a_member_and_says_goodbye(tmp_path: Path) -> None:
    # Each is replaced by another after two tasks.
    members, worker_pid = notes_of_a_worker(tmp_path, "--pool=prefork", "--max-tasks-per-child=2")
    assert len(members["delivered"]) >= 3
    assert members["delivered"] <= members["starting"] == members["leaving"]
    assert len({pid for _, pid in members["starting"]}) == len(members["starting"])
    assert str(worker_pid) not in {pid for _, pid in members["starting"]}


@pytest.mark.long
def test_a_worker_of_greenlets_is_one_member(tmp_path: Path) -> None:
    members, worker_pid = notes_of_a_worker(tmp_path, "--pool=gevent")
    assert members["delivered"] == members["starting"] == members["leaving"]
    assert [int(pid) for _, pid in members["delivered"]] == [worker_pid]
