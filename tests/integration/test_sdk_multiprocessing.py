"""The SDK in children, however they come to be, on a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka.errors import TopicAlreadyExistsError

from balancer.embedded import KafkaServer
from tests.integration.test_sdk_processes import PROCESS_SECONDS, ROOT, batches, run
from tests.support.real_clients import create_topic
from worker_sdk.wire.usage import USAGE_TOPIC, MemberState

PROGRAM = """
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
from worker_sdk import PermitClient
from worker_sdk.transports.memory import MemorySource

client = PermitClient(
    destinations=["a"],
    kafka=os.environ["KAFKA"],
    distribution=lambda _: MemorySource(),
    host=os.environ["PERMIT_HOST"],
)
a = client.destination("a")

def settle():
    deadline = time.monotonic() + 20
    while not client.state.flushes_delivered:
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)

def work(permits):
    client.start()  # inherited or made anew: either way a member of its own begins here
    a.try_acquire(permits)
    settle()
    return client.state.instance

if __name__ == "__main__":
    client.start()
    settle()
    method = multiprocessing.get_context(sys.argv[1])
    refused = ""
    try:
        multiprocessing.reduction.ForkingPickler.dumps((client, a))
    except TypeError as error:
        refused = str(error)
    assert refused.startswith("a PermitClient cannot be sent to another process"), refused
    with ProcessPoolExecutor(2, mp_context=method) as pool:
        pooled = set(pool.map(work, [2, 2, 2]))
    child = method.Process(target=work, args=(10,))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert client.state.instance not in pooled
    a.try_acquire(100)
    sys.exit(client.close(timeout=10))
"""


@pytest.fixture
def broker(kafka: KafkaServer) -> KafkaServer:
    """The broker, with the topic of usage."""
    with contextlib.suppress(TopicAlreadyExistsError):
        asyncio.run(create_topic(kafka.bootstrap_servers, USAGE_TOPIC))
    return kafka


@pytest.mark.parametrize(
    "method",
    ["spawn", *(pytest.param(name, marks=pytest.mark.long) for name in ("fork", "forkserver"))],
)
def test_each_child_reports_its_own_and_says_goodbye(
    broker: KafkaServer, fresh_name: Callable[[str], str], tmp_path: Path, method: str
) -> None:
    host = fresh_name("host")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program), method],
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "KAFKA": broker.bootstrap_servers, "PERMIT_HOST": host},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = batches(broker, host)
    denied: dict[str, int] = {}
    for batch in found:
        denied[batch.instance] = denied.get(batch.instance, 0) + sum(
            entry.denied for entry in batch.tuples
        )
    by_child = sorted(denied.values())
    # The pool has one or two children, that share three pieces of work.
    assert by_child[-2:] == [10, 100]
    assert sum(by_child[:-2]) == 6
    leavers = {batch.instance for batch in found if batch.state is MemberState.LEAVING}
    assert leavers == set(denied)


def test_a_fork_that_bypasses_the_hooks_is_noticed_at_the_first_use(
    broker: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    done = run(
        """
        import ctypes
        client.start()
        until(lambda: client.state.flushes_delivered)
        before = client.state.instance
        for _ in range(5):
            pid = ctypes.PyDLL(None).fork()
            if pid == 0:
                a.try_acquire(1)
                os._exit(0 if client.state.instance != before else 9)
            try:
                wait_for(pid, 5)
            except AssertionError:
                # Python's own lock, which no hook made anew, if a thread woke at that moment.
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            else:
                break
        else:
            sys.exit("all of them stand still")
        assert client.state.instance == before
        sys.exit(client.close(timeout=10))
        """,
        broker.bootstrap_servers,
        fresh_name("host"),
    )
    assert (done.returncode, done.stderr) == (0, "")
