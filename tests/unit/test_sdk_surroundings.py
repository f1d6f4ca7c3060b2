"""The SDK where threads are greenlets, and where there are none."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.real_clients import await_condition
from worker_sdk import ClientClosedError, ConfigurationError
from worker_sdk.testing import InMemoryBalancer, wait_until_ready

ROOT = Path(__file__).resolve().parents[2]


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_greenlets_event_loop_is_not_the_clients_and_both_go_on() -> None:
    done = run(
        """
from gevent import monkey; monkey.patch_all()
import asyncio, gevent, time
from worker_sdk.testing import InMemoryBalancer, wait_until_ready

balancer = InMemoryBalancer({"db": 1_000_000})
client = balancer.client(flush_seconds=1)
client.start()
wait_until_ready(client)
db = client.destination("db")

async def work():
    loop = asyncio.get_running_loop()
    while len(balancer.batches) < 3:  # hello and two reports, by the client's own loop
        await db.acquire_async(timeout=5)
        await asyncio.sleep(0.001)
        assert asyncio.get_running_loop() is loop

gevent.spawn(asyncio.run, work()).get(timeout=20)
try:
    asyncio.get_running_loop()
except RuntimeError as nobody:
    assert str(nobody) == "no running event loop"
assert client.close(timeout=5) == 0
assert sum(entry.used for batch in balancer.batches for entry in batch.tuples) > 2
"""
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_of_a_client_made_before_threads_became_greenlets_one_life_begins() -> None:
    done = run(
        """
from worker_sdk.testing import InMemoryBalancer
balancer = InMemoryBalancer({"db": 1000})
client = balancer.client()
db = client.destination("db")
from gevent import monkey; monkey.patch_all()
import gevent

def ask():
    client.start()
    db.acquire(timeout=20)

gevent.joinall([gevent.spawn(ask) for _ in range(20)], timeout=20, raise_error=True)
assert client.close(timeout=5) == 0
assert len({batch.instance for batch in balancer.batches}) == 1
assert balancer.batches[-1].tuples[0].used == 20
"""
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_drivers_loop_loaded_before_threads_became_greenlets_is_stopped_at_once() -> None:
    done = run(
        """
import asyncio, time
from worker_sdk.transports.loops import LoopThread
from gevent import monkey; monkey.patch_all()

async def work():
    await asyncio.sleep(0.001)
    return "done"

loop = LoopThread("loop")
assert loop.run(work(), 20) == "done"
began = time.monotonic()
loop.stop(30)
assert time.monotonic() - began < 20
"""
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("version", "options", "is_refused"),
    [
        ((2, 0, 26, 0, b""), {"master": True}, True),
        ((2, 0, 26, 0, b""), {"enable-threads": True}, False),
        ((2, 0, 26, 0, b""), {b"threads": b"4"}, False),
        ((2, 0, 27, 0, b""), {"master": True}, False),
    ],
)
def test_an_uwsgi_that_runs_no_threads_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
    version: tuple[object, ...],
    options: dict[object, object],
    is_refused: bool,
) -> None:
    uwsgi = ModuleType("uwsgi")
    uwsgi.version_info = version  # type: ignore[attr-defined]  # as uWSGI makes its own
    uwsgi.opt = options  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi)
    client = InMemoryBalancer({"db": 1}).client()
    if is_refused:
        with pytest.raises(ConfigurationError, match="start it with --enable-threads"):
            client.start()
    else:
        client.start()
        client.close()


@pytest.mark.parametrize("refused", ["permit-pacer", "permit-reader", "permit-reporter"])
def test_a_process_that_has_no_threads_left_is_told_so_and_nothing_stays_behind(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    start = threading.Thread.start

    def start_unless_refused(thread: threading.Thread) -> None:
        if thread.name == refused:
            raise RuntimeError("can't start new thread")
        start(thread)

    client = InMemoryBalancer({"db": 1}).client()
    before = set(threading.enumerate())
    monkeypatch.setattr(threading.Thread, "start", start_unless_refused)

    def start_amid_the_handling_of_an_error() -> None:
        try:
            int("what is being handled is not what went wrong")
        except ValueError:
            client.start()

    with pytest.raises(ClientClosedError, match="threads cannot be started: can't start new"):
        start_amid_the_handling_of_an_error()
    await_condition(lambda: set(threading.enumerate()) <= before, "no thread is left")
    with pytest.raises(ClientClosedError, match="not started"):
        client.destination("db").try_acquire()
    monkeypatch.undo()
    client.start()
    wait_until_ready(client)
    assert client.close() == 0
