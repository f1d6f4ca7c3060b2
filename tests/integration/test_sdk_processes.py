"""The SDK inside processes that fork, exit and are told to end, on a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import TopicAlreadyExistsError

from balancer.embedded import KafkaServer
from tests.support.real_clients import create_topic
from worker_sdk.wire.usage import USAGE_TOPIC, MemberState, UsageBatch, decode_batch

ROOT = Path(__file__).resolve().parents[2]
PROCESS_SECONDS = 60.0

PREAMBLE = """
import os, signal, sys, threading, time
from worker_sdk import PermitClient
from worker_sdk.transports.memory import MemorySource

kafka, host = sys.argv[1], sys.argv[2]
client = PermitClient(
    destinations=["a", "b", "c"], kafka=kafka, distribution=lambda _: MemorySource(), host=host,
)
a = client.destination("a")

def until(holds, seconds=20):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)

def wait_for(pid, seconds=20):
    until(lambda: os.waitpid(pid, os.WNOHANG) == (pid, 0), seconds)
"""


@pytest.fixture
def broker(kafka: KafkaServer) -> KafkaServer:
    """The broker, with the topic of usage."""
    with contextlib.suppress(TopicAlreadyExistsError):
        asyncio.run(create_topic(kafka.bootstrap_servers, USAGE_TOPIC))
    return kafka


def run(program: str, kafka: str, host: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PREAMBLE + textwrap.dedent(program), kafka, host],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )


async def _all_bodies(bootstrap_servers: str) -> list[bytes]:
    async with asyncio.timeout(PROCESS_SECONDS):
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
        await consumer.start()
        try:
            partition = TopicPartition(USAGE_TOPIC, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            bodies: list[bytes] = []
            while True:
                got = await consumer.getmany(timeout_ms=1000)
                if not got:
                    return bodies
                bodies += [record.value for records in got.values() for record in records]
        finally:
            await consumer.stop()


def batches(kafka: KafkaServer, host: str) -> list[UsageBatch]:
    found = []
    for body in asyncio.run(_all_bodies(kafka.bootstrap_servers)):
        content = zstandard.ZstdDecompressor().decompressobj().decompress(body)
        batch = decode_batch(content).batch
        if batch.host == host:
            found.append(batch)
    return found


def denied(found: list[UsageBatch]) -> int:
    return sum(entry.denied for batch in found for entry in batch.tuples)


def test_a_count_taken_just_before_close_arrives_once(
    broker: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    host = fresh_name("host")
    done = run(
        "client.start(); time.sleep(0.2); a.try_acquire(5); sys.exit(client.close(timeout=10))",
        broker.bootstrap_servers,
        host,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = batches(broker, host)
    assert denied(found) == 5
    states = [batch.state for batch in found]
    assert (states[0], states[-1]) == (MemberState.STARTING, MemberState.LEAVING)
    # A report in turn may come between: turns are fixed to the clock.
    assert set(states[1:-1]) <= {MemberState.RUNNING}


@pytest.mark.parametrize("own_hook_is_first", [True, False])
def test_a_program_that_falls_off_its_end_still_reports(
    broker: KafkaServer, fresh_name: Callable[[str], str], own_hook_is_first: bool
) -> None:
    host = fresh_name("host")
    lines = ["import atexit; atexit.register(print, 'bye')", "client.start()"]
    ask = ["until(lambda: client.state.flushes_delivered)", "a.try_acquire(3)"]
    program = "\n".join((lines if own_hook_is_first else lines[::-1]) + ask)
    done = run(program, broker.bootstrap_servers, host)
    assert (done.returncode, done.stdout, done.stderr) == (0, "bye\n", "")
    assert denied(batches(broker, host)) == 3


def test_sigterm_stays_the_hosts_own_and_its_handler_may_exit(
    broker: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    host = fresh_name("host")
    done = run(
        """
        client.start()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        until(lambda: client.state.flushes_delivered)
        a.try_acquire(2)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
        """,
        broker.bootstrap_servers,
        host,
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert denied(batches(broker, host)) == 2


def test_a_handler_may_close_whatever_call_it_interrupts(
    broker: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    host = fresh_name("host")
    done = run(
        """
        asked = 0

        def leave(*_):
            client.close(timeout=10)
            print(asked)
            sys.exit(7)

        client.start()
        signal.signal(signal.SIGTERM, leave)
        until(lambda: client.state.flushes_delivered)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        while True:
            a.try_acquire()
            asked += 1
        """,
        broker.bootstrap_servers,
        host,
    )
    assert (done.returncode, done.stderr) == (7, "")
    found = batches(broker, host)
    assert found[-1].state is MemberState.LEAVING
    # The call that was interrupted may have been counted, or not yet.
    assert denied(found) - int(done.stdout) in (0, 1)


def test_children_of_multiprocessing_say_goodbye(
    broker: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    host = fresh_name("host")
    done = run(
        """
        import multiprocessing

        def work():
            a.try_acquire(1)
            until(lambda: client.state.flushes_delivered)

        client.start()
        until(lambda: client.state.flushes_delivered)
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join(20)
        assert child.exitcode == 0, child.exitcode
        sys.exit(client.close(timeout=10))
        """,
        broker.bootstrap_servers,
        host,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = batches(broker, host)
    assert denied(found) == 1
    leavers = {batch.instance for batch in found if batch.state is MemberState.LEAVING}
    assert leavers == {batch.instance for batch in found}
    assert len(leavers) == 2


def test_a_delivery_under_way_at_a_fork_stays_the_parents(
    broker: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    done = run(
        """
        from worker_sdk.testing import InMemoryBalancer, ManualClock

        entered, leave = threading.Event(), threading.Event()

        class BusyClock(ManualClock):
            def wall_ms(self):
                if threading.current_thread().name == "busy":
                    entered.set()  # amid a call, with whatever it holds
                    leave.wait(20)
                return super().wall_ms()

        with InMemoryBalancer({"a": 9}).client(clock=BusyClock()) as client:
            a = client.destination("a")
            until(lambda: a.state.epoch)
            with a.permit():
                busy = threading.Thread(target=a.try_acquire, name="busy", daemon=True)
                busy.start()
                assert entered.wait(20)
                pid = os.fork()
                if pid:
                    leave.set()
            if pid == 0:
                os._exit(5)
            until(lambda: os.waitpid(pid, os.WNOHANG)[1] == 5 << 8)
            busy.join(20)  # before the client closes
        """,
        broker.bootstrap_servers,
        fresh_name("host"),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_children_report_their_own_and_the_parent_keeps_its_own(
    broker: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    host = fresh_name("host")
    done = run(
        """
        client.start()
        until(lambda: client.state.flushes_delivered)
        a.try_acquire(7)
        children = []
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                a.try_acquire(1)
                until(lambda: client.state.flushes_delivered)
                sys.exit(client.close(timeout=10))
            children.append(pid)
        for pid in children:
            wait_for(pid)
        a.try_acquire(4)
        assert client.state.flushes_failed == 0
        sys.exit(client.close(timeout=10))
        """,
        broker.bootstrap_servers,
        host,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = batches(broker, host)
    by_instance: dict[str, int] = {}
    for batch in found:
        by_instance[batch.instance] = by_instance.get(batch.instance, 0) + denied([batch])
    assert sorted(by_instance.values()) == [1, 1, 1, 11]


def test_children_forked_while_another_thread_takes_permits_never_hang(
    fresh_name: Callable[[str], str],
) -> None:
    done = run(
        """
        from worker_sdk.transports.memory import MemorySink
        client = PermitClient(
            destinations=["a"], kafka=MemorySink, distribution=lambda _: MemorySource(), host=host,
        )
        a = client.destination("a")
        client.start()
        stop = threading.Event()
        def spin():
            while not stop.is_set():
                a.try_acquire()
        spinning = threading.Thread(target=spin, daemon=True)
        spinning.start()
        for _ in range(50):
            pid = os.fork()
            if pid == 0:
                a.try_acquire()
                os._exit(0 if a.state.denied == 1 else 9)
            wait_for(pid, 10)
        stop.set()
        spinning.join(20)
        client.close(timeout=5)
        """,
        "unused:1",
        fresh_name("host"),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_that_ends_while_no_broker_is_there_is_quick_and_quiet(
    fresh_name: Callable[[str], str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = run(
        """
        client.start()
        a.try_acquire()
        until(lambda: client.state.flushes_failed > 1)
        """,
        f"127.0.0.1:{port}",
        fresh_name("host"),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_close_and_exit_are_bounded_when_the_broker_is_gone(
    kafka: KafkaServer, broker: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    host = fresh_name("host")
    program = PREAMBLE + textwrap.dedent(
        """
        client.start()
        until(lambda: client.state.flushes_delivered)
        for name in ("a", "b", "c"):
            client.destination(name).try_acquire()
        print("ready", flush=True)
        sys.stdin.readline()
        started = time.monotonic()
        undelivered = client.close(timeout=2)
        print(undelivered, time.monotonic() - started < 3, flush=True)
        sys.exit(5)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, broker.bootstrap_servers, host],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stderr is not None
        try:
            assert worker.stdout.readline() == "ready\n"
            kafka.pause()
            worker.stdin.write("go\n")
            worker.stdin.flush()
            assert worker.stdout.readline() == "3 True\n"
            started = time.monotonic()
            assert worker.wait(PROCESS_SECONDS) == 5
            assert time.monotonic() - started < PROCESS_SECONDS / 2
            assert worker.stderr.read() == ""
        finally:
            kafka.resume()
            worker.kill()
