"""A part of the stack is killed and comes back while a balancer and a worker run; nobody helps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from balancer.embedded import EmbeddedStack
from tests.support.served import Server, run_command, serving
from tests.support.servers import silent
from worker_sdk import PermitClient

NAME = "orders-db"
WINDOW_SECONDS = 3
WAIT_SECONDS = 60.0


@pytest.fixture(scope="module")
def own_stack() -> Iterator[EmbeddedStack]:
    """Servers that others do not use; Kafka's data survives."""
    with EmbeddedStack(report=silent, durable_kafka=True) as stack:
        settings = {"PERMIT_POSTGRES_DSN": stack.postgres.dsn}
        assert run_command(settings, ["migrate"]).returncode == 0
        yield stack


def newest_epoch(server: Server) -> int:
    status, body = server.ask(f"/destinations/{NAME}/distribution")
    return body["documents"][0]["epoch"] if status == 200 and body["documents"] else 0


def stored_total(server: Server) -> float:
    _, text = server.ask("/metrics")
    (line,) = [row for row in text.splitlines() if row.startswith("permit_ingest_stored_total")]
    return float(line.split()[1])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("part", ["s3", "postgres", "kafka"])
def test_publishing_and_reports_go_on_when_a_part_returns(
    own_stack: EmbeddedStack, tmp_path: Path, part: str
) -> None:
    settings = own_stack.environment() | {
        "PERMIT_S3_PREFIX": part,
        "PERMIT_KAFKA_SESSION_SECONDS": "3",
        "PERMIT_ROUND_SECONDS": str(WINDOW_SECONDS),
        "PERMIT_TTL_SECONDS": str(3 * WINDOW_SECONDS),
        "PERMIT_SHARDS": "1",
    }
    with serving(settings, tmp_path) as server:
        server.wait_ready()
        body = {"capacity": 300, "window_seconds": WINDOW_SECONDS}
        assert server.ask(f"/destinations/{NAME}", "PUT", body)[0] in (200, 201)
        client = PermitClient(
            destinations=[NAME],
            kafka=own_stack.kafka.bootstrap_servers,
            distribution=server.url,
            host="a",
            flush_seconds=WINDOW_SECONDS,
        )
        with client:
            client.destination(NAME).acquire(timeout=WAIT_SECONDS)
            own_stack.parts[part].kill()
            server.wait(lambda: not server.is_ready(), "known to be away")
            assert server.ask("/healthz")[0] == 200
            own_stack.parts[part].start()
            server.wait_ready()
            epoch, stored = newest_epoch(server), stored_total(server)
            server.wait(lambda: newest_epoch(server) > epoch + 1, "publishing again")
            server.wait(lambda: stored_total(server) > stored, "reading reports again")
            client.destination(NAME).acquire(timeout=WAIT_SECONDS)
        assert server.stop() == 0
