"""What an impatient user's Ctrl-C leaves of a client's goodbye."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
            assert program.stdout.readline() == "closing\n"
            program.send_signal(signal.SIGINT)
            out, error = program.communicate(timeout=WAIT_SECONDS)
        finally:
            program.kill()
    assert out == "leaving 3\n"
    assert "KeyboardInterrupt" in error
    assert program.returncode != 0
