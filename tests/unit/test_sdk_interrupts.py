"""What exceptions that come anywhere leave of a client: Ctrl-C, time limits that are signals."""

from __future__ import annotations

import gc
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from worker_sdk import DestinationHandle, PermitClient, PermitTimeout
from worker_sdk.testing import InMemoryBalancer, wait_until_ready
from worker_sdk.wire.usage import MemberState

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 30.0

PREAMBLE = """
import asyncio, sys, time
from worker_sdk import PermitClient
from worker_sdk.transports.memory import MemorySink, MemorySource

def say(line):
    sys.stdout.write(line + "\\n")  # in one go: two threads speak
    sys.stdout.flush()

class Slow(MemorySink):
    def send(self, batch, timeout_seconds):
        if batch.state == "leaving":
            say("closing")
            time.sleep(0.5)
        super().send(batch, timeout_seconds)
        say(f"{batch.state} {sum(entry.denied for entry in batch.tuples)}")

client = PermitClient(
    destinations=["db"], kafka=Slow, distribution=lambda _: MemorySource(), host="host",
)
"""

PROGRAMS = {
    "threads": """
with client:
    client.destination("db").try_acquire(3)
    say("ready")
    time.sleep(30)
""",
    "asyncio": """
async def main():
    async with client:
        client.destination("db").try_acquire(3)
        say("ready")
        await asyncio.sleep(30)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_second_ctrl_c_amid_the_close_does_not_cost_the_goodbye(kind: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + PROGRAMS[kind]],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        try:
            lines = {program.stdout.readline().strip() for _ in range(2)}
            assert lines == {"ready", "starting 0"}
            program.send_signal(signal.SIGINT)
            line, told = program.stdout.readline(), 0
            while line.startswith("running "):  # turns are fixed to the clock: one may be now
                told += int(line.split()[1])
                line = program.stdout.readline()
            assert line == "closing\n"
            program.send_signal(signal.SIGINT)
            out, error = program.communicate(timeout=WAIT_SECONDS)
        finally:
            program.kill()
    assert out == f"leaving {3 - told}\n"
    assert "KeyboardInterrupt" in error
    assert program.returncode != 0


LIMITS = 100


class TimeLimitError(BaseException):
    """What the handler of a signal raises, wherever the program is."""


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise TimeLimitError


@pytest.fixture
def limits() -> Iterator[random.Random]:
    before = signal.signal(signal.SIGALRM, _raise)
    yield random.Random(20_26)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupted(call: Callable[[], object], random_: random.Random, most_seconds: float) -> bool:
    """Call again and again until a limit comes; say whether one did."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random_.uniform(1e-6, most_seconds))
            for _ in range(20):  # one that comes in a finaliser is swallowed
                call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeLimitError:
        return True
    return False


def deliver(handle: DestinationHandle) -> None:
    with handle.permit(timeout=WAIT_SECONDS):
        pass


in_finalisers = pytest.mark.filterwarnings(
    # The limit may come amid a finaliser, or between the opening of a file and its `with`.
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::ResourceWarning",
)


@in_finalisers
@pytest.mark.parametrize("capacity", [10_000_000, 300], ids=["at once", "waiting"])
def test_a_time_limit_that_comes_anywhere_leaves_no_room_taken_and_nobody_waiting(
    limits: random.Random, capacity: int
) -> None:
    with InMemoryBalancer({"db": capacity}, window_seconds=1).client() as client:
        wait_until_ready(client)
        handle = client.destination("db")
        handle.limit_concurrency(1)
        until_mono = time.monotonic() + WAIT_SECONDS
        times = 0
        while times < LIMITS and time.monotonic() < until_mono:
            times += interrupted(lambda: deliver(handle), limits, 0.0002)
        gc.collect()
        assert times == LIMITS
        with handle.permit(timeout=WAIT_SECONDS):  # there is room
            assert (handle.state.in_delivery, handle.state.waiting) == (1, 0)
            with pytest.raises(PermitTimeout):
                handle.permit(timeout=0).__enter__()  # and no more than that
        assert handle.state.in_delivery == 0


@in_finalisers
def test_a_start_and_a_close_that_are_interrupted_anywhere_leave_nothing_behind(
    limits: random.Random,
) -> None:
    before = set(threading.enumerate())
    balancer = InMemoryBalancer({"db": 1})
    until_mono = time.monotonic() + WAIT_SECONDS
    times = 0
    while times < LIMITS // 4 and time.monotonic() < until_mono:
        client = balancer.client()

        def live(client: PermitClient = client) -> None:
            client.start()
            client.close()

        times += interrupted(live, limits, 0.002)
        client.close(timeout=WAIT_SECONDS)
    assert times == LIMITS // 4

    def left() -> set[str]:
        # One that is interrupted amid `Thread.start` is listed for ever, and never begins.
        return {thread.name for thread in set(threading.enumerate()) - before if thread.ident}

    until_mono = time.monotonic() + WAIT_SECONDS
    while left() and time.monotonic() < until_mono:
        time.sleep(0.02)
    assert left() == set()
    told = [
        {batch.instance for batch in balancer.batches if batch.state is state}
        for state in (MemberState.STARTING, MemberState.LEAVING)
    ]
    assert told[0] <= told[1], "everyone who said hello said goodbye"


def test_ctrl_c_amid_a_start_is_ctrl_c_though_a_lock_of_pythons_fails_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wait(_event: threading.Event, _timeout: float | None = None) -> bool:
        try:
            raise KeyboardInterrupt
        finally:
            threading.Lock().release()  # a RuntimeError, as of a condition that was interrupted

    client = InMemoryBalancer({"db": 1}).client()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", wait)
        with pytest.raises(KeyboardInterrupt):
            client.start()
    with client:
        wait_until_ready(client)
