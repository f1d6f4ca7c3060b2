"""A balancer told to stop while a part of the stack is paused: it takes and never answers."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from balancer.embedded import EmbeddedStack
from tests.support.served import Server, run_command, serving
from tests.support.servers import silent

STOP_MOST_SECONDS = 10.0


@pytest.fixture(scope="module")
def own_stack() -> Iterator[EmbeddedStack]:
    """Servers that others do not use: those are paused."""
    with EmbeddedStack(report=silent) as stack:
        assert run_command(stack.environment(), ["migrate"]).returncode == 0
        yield stack


def is_published(server: Server) -> bool:
    status, body = server.ask("/destinations/orders/distribution")
    return status == 200 and body["documents"] != []


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "part",
    [
        "postgres",  # which most of what goes on waits for
        pytest.param("kafka", marks=pytest.mark.long),
        pytest.param("s3", marks=pytest.mark.long),
    ],
)
def test_it_stops_in_time_and_is_not_ready_first(
    own_stack: EmbeddedStack, tmp_path: Path, part: str
) -> None:
    settings = own_stack.environment() | {
        "PERMIT_S3_PREFIX": part,
        "PERMIT_ROUND_SECONDS": "3",
        "PERMIT_TTL_SECONDS": "9",
        "PERMIT_SHARDS": "4",
    }
    paused = own_stack.parts[part]
    with serving(settings, tmp_path) as server:
        server.wait_ready()
        made = {"capacity": 9, "window_seconds": 3}
        assert server.ask("/destinations/orders", "PUT", made)[0] in (200, 201)
        server.wait(lambda: is_published(server), "published")
        paused.pause()
        try:
            time.sleep(1)  # so that something waits for it
            started = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            status, body = server.ask("/readyz/distribution")
            while status == 200 and time.monotonic() - started < STOP_MOST_SECONDS:
                status, body = server.ask("/readyz/distribution")
            assert (status, body) == (
                503,
                {"ready": False, "detail": "this process is being stopped"},
            )
            assert is_published(server)  # and serves meanwhile
            assert server.process.wait(STOP_MOST_SECONDS) == 0
            assert time.monotonic() - started < STOP_MOST_SECONDS
        finally:
            paused.resume()
    assert "Traceback" not in server.words()
