"""Calls that block, on threads that nobody waits for at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from balancer.adapters.s3.threads import Threads

WAIT_SECONDS = 20.0
ROOT = Path(__file__).resolve().parents[2]


async def test_a_call_gives_its_result_or_its_error() -> None:
    threads = Threads(2)

    def fail() -> None:
        raise KeyError("x")

    assert await threads.call(lambda: 5, WAIT_SECONDS) == 5
    with pytest.raises(KeyError):
        await threads.call(fail, WAIT_SECONDS)


async def test_a_call_that_hangs_is_given_up_and_keeps_its_turn_until_it_ends() -> None:
    threads, free = Threads(1), threading.Event()
    with pytest.raises(TimeoutError):
        await threads.call(lambda: free.wait(WAIT_SECONDS), 0.05)
    with pytest.raises(TimeoutError):
        await threads.call(lambda: 5, 0.05)
    free.set()
    assert await threads.call(lambda: 5, WAIT_SECONDS) == 5


async def test_no_more_calls_run_at_once_than_allowed() -> None:
    threads, free, lock = Threads(3), threading.Event(), threading.Lock()
    running = most = 0

    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        free.wait(WAIT_SECONDS)
        with lock:
            running -= 1

    calls = [asyncio.create_task(threads.call(count, WAIT_SECONDS)) for _ in range(9)]
    await asyncio.sleep(0)
    free.set()
    await asyncio.gather(*calls)
    assert most <= 3


def test_a_call_that_hangs_does_not_hold_up_the_exit() -> None:
    program = (
        "import asyncio, time\n"
        "from balancer.adapters.s3.threads import Threads\n"
        "async def main():\n"
        "    try:\n"
        "        await Threads(1).call(lambda: time.sleep(600), 0.05)\n"
        "    except TimeoutError:\n"
        "        print('given up')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "given up\n", "")
