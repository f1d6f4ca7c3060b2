"""How `serve` ends before it has begun: told to stop while it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60

TOLD_WHILE_LOADING = """
import os, signal
from balancer import settings
from balancer.commands import main
settings.load_settings = lambda _: os.kill(os.getpid(), signal.NUMBER) or signal.pause()
raise SystemExit(main(["serve"]))
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_told_to_stop_before_it_serves_it_ends_in_order_and_says_nothing(number: str) -> None:
    ended = run(TOLD_WHILE_LOADING.replace("NUMBER", number))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
