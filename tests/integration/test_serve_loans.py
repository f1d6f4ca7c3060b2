"""Points lent within the window, on real servers: from the worker that runs out to its loan."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.served import run_command, serving
from tests.support.servers import Stack
from worker_sdk import PermitClient

NAME = f"orders-{secrets.token_hex(4)}"
WINDOW_SECONDS = 6
WAIT_SECONDS = 60.0
CAPACITY = 300


@pytest.mark.usefixtures("aws_environment")
@pytest.mark.parametrize("source", ["http", "s3"])
def test_a_worker_that_runs_out_is_lent_what_nobody_has_within_the_window(
    stack: Stack,
    postgres_dsn: str,
    s3_prefix: str,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    source: str,
) -> None:
    settings = stack.environment() | {
        "PERMIT_POSTGRES_DSN": postgres_dsn,
        "PERMIT_S3_PREFIX": s3_prefix,
        "PERMIT_KAFKA_GROUP_ID": fresh_name("group"),
        "PERMIT_ROUND_SECONDS": str(WINDOW_SECONDS),
        "PERMIT_TTL_SECONDS": str(3 * WINDOW_SECONDS),
        "PERMIT_SHARDS": "1",
    }
    assert run_command(settings, ["migrate"]).returncode == 0
    with serving(settings, tmp_path) as server:
        server.wait_ready()
        policy = {"lend_points": 900_000_000, "pacing": "window"}
        body = {"capacity": CAPACITY, "window_seconds": WINDOW_SECONDS, "policy": policy}
        assert server.ask(f"/destinations/{NAME}", "PUT", body)[0] == 201
        place = f"s3://{settings['PERMIT_S3_BUCKET']}/{s3_prefix}"
        with PermitClient(
            destinations=[NAME],
            kafka=settings["PERMIT_KAFKA_BOOTSTRAP_SERVERS"],
            distribution=server.url if source == "http" else place,
            host="hungry",
            flush_seconds=WINDOW_SECONDS,
            s3_endpoint_url=settings["PERMIT_S3_ENDPOINT_URL"],
        ) as client:
            spent = spend_until_lent(client)
    assert max(spent.values()) <= CAPACITY
    # Planned was a tenth; what is more was lent.
    assert list(spent.values())[-1] > CAPACITY // 2


def spend_until_lent(client: PermitClient) -> dict[int, int]:
    """Take whatever can be had; return permits by window, up to one that began with little."""
    destination = client.destination(NAME)
    spent: dict[int, int] = {}
    began_with_little: set[int] = set()
    ends = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < ends:
        window = int(time.time() / WINDOW_SECONDS)
        if destination.try_acquire():
            spent[window] = spent.get(window, 0) + 1
            if window in began_with_little and spent[window] > CAPACITY // 2:
                return spent
            continue
        if 0 < spent.get(window, 0) <= CAPACITY // 8 and destination.state.mode == "fresh":
            began_with_little.add(window)
        time.sleep(0.01)
    raise AssertionError(f"nothing was lent: {spent}")
