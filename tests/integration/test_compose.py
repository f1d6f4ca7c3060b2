"""``docker-compose.yml``, run without Docker: its programs, commands, settings and order.

With ``PERMIT_TEST_KAFKA=apache`` its Kafka is Apache Kafka with the settings of the file; else the
embedded broker stands in. SeaweedFS stands in for MinIO, whose programs no package carries.
"""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from functools import partial
from typing import Any

import pytest

from tests.support.compose_natively import NativeCompose, composed
from tests.support.servers import brokers_to_test

# As in the file, in a twelfth of the time: 6,000 a minute for workers that want 9,000.
VARIABLES = {"PERMIT_WINDOW_SECONDS": "5", "PERMIT_CAPACITY": "500"}
WORKERS = ("worker-1", "worker-2", "worker-3")
DELIVERED = re.compile(r"delivered (\d+), failed (\d+)")
WAIT_SECONDS = 90.0


def ask(compose: NativeCompose, service: str, port: int, path: str) -> Any:
    url = f"http://127.0.0.1:{compose.addresses.port(service, port)}{path}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def counted(compose: NativeCompose) -> dict[int, tuple[int, int]]:
    """Returns by window what the destination has counted: arrived, and of them refused."""
    windows = ask(compose, "destination", 8088, "/windows")["windows"]
    return {int(w): (count["arrived"], count["refused"]) for w, count in windows.items()}


def shares(compose: NativeCompose) -> dict[str, float]:
    """Returns the percentage of each host in the newest document."""
    newest = ask(compose, "balancer", 8080, "/destinations/orders-db/distribution")["documents"][0]
    return {member["host"]: member["percent"] for member in newest["members"]}


def deliveries(compose: NativeCompose, worker: str) -> tuple[int, int]:
    """Returns what a worker says it has delivered, and what failed."""
    told = DELIVERED.findall(compose.log(worker))
    return (int(told[-1][0]), int(told[-1][1])) if told else (0, 0)


def has_delivered(compose: NativeCompose, worker: str) -> bool:
    return deliveries(compose, worker)[0] > 0


@pytest.mark.timeout(420)
def test_the_compose_file_runs_natively_serves_its_workers_and_stops_in_order() -> None:
    apache = "apache" in brokers_to_test()
    with composed(VARIABLES, apache=apache) as compose:
        for worker in WORKERS:
            delivers = partial(has_delivered, compose, worker)
            compose.wait(delivers, f"{worker} delivered a unit", WAIT_SECONDS)
        compose.wait(
            lambda: shares(compose).get("worker-3", 0) > 50 > shares(compose)["worker-1"],
            "shares follow what the workers ask for",
            WAIT_SECONDS,
        )
        before = len(counted(compose))
        compose.wait(lambda: len(counted(compose)) > before + 1, "a full window", WAIT_SECONDS)
        windows = counted(compose)
        assert compose.is_alive("balancer")
        compose.stop()
        assert not compose.is_alive("balancer")
        assert sum(arrived for arrived, _ in windows.values()) > 0
        assert max(arrived for arrived, _ in windows.values()) <= 500
        assert {refused for _, refused in windows.values()} == {0}
        for worker in WORKERS:
            assert deliveries(compose, worker)[1] == 0
        assert "Traceback" not in compose.words()
        ended = {name: code for name, code in compose.exit_codes.items() if code != 0}
        # Java says by its exit code which signal ended it; the embedded broker takes none.
        assert ended in ({}, {"kafka": 128 + signal.SIGTERM}, {"kafka": -signal.SIGTERM})
        assert set(compose.exit_codes) == set(compose.services)
