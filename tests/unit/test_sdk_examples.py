"""The examples run, or say in one line what they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_example_without_servers_shows_exact_shares() -> None:
    done = run("without_servers.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "first window: 10 of 25",
        "second window: 10 of 25",
        "reported: 20",
    ]


ADAPTERS = {
    "adapters_http.py": [
        "httpx 0 served",
        "httpx 1 served",
        "httpx 2 no permit",
        "aiohttp 0 served",
        "aiohttp 1 served",
        "aiohttp 2 no permit",
    ],
    "adapters_threads.py": ["delivered: 3", "no permit: 2"],
    "adapters_celery.py": ["delivered: [0, 1, 2]", "permits used: 3"],
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapters_example_runs_without_servers(name: str) -> None:
    done = run(name)
    assert (done.returncode, done.stdout.splitlines()) == (0, ADAPTERS[name]), done.stderr


@pytest.mark.parametrize(
    "name",
    [
        "blocking_worker.py",
        "asyncio_worker.py",
        "adapters_aiokafka.py",
        "adapters_confluent_kafka.py",
        "adapters_faststream.py",
    ],
)
def test_an_example_without_settings_names_the_first_one_missing(name: str) -> None:
    done = run(name)
    assert done.returncode == 1
    assert "PERMIT_DESTINATIONS is missing; an example: orders-db,billing" in done.stderr
