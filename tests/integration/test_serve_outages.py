"""A part of the stack is killed and comes back, or takes no writes, while a balancer runs.

Nobody helps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from balancer.embedded import EmbeddedStack
from tests.support.real_clients import query
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


def settings_of(stack: EmbeddedStack, prefix: str) -> dict[str, str]:
    return stack.environment() | {
        "PERMIT_S3_PREFIX": prefix,
        "PERMIT_KAFKA_SESSION_SECONDS": "3",
        "PERMIT_ROUND_SECONDS": str(WINDOW_SECONDS),
        "PERMIT_TTL_SECONDS": str(3 * WINDOW_SECONDS),
        "PERMIT_SHARDS": "1",
    }


@pytest.mark.timeout(240)
@pytest.mark.parametrize("part", ["s3", "postgres", "kafka"])
def test_publishing_and_reports_go_on_when_a_part_returns(
    own_stack: EmbeddedStack, tmp_path: Path, part: str
) -> None:
    with serving(settings_of(own_stack, part), tmp_path) as server:
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


@pytest.fixture
async def let_write(own_stack: EmbeddedStack) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """Lets the database take writes, or none; who is connected connects anew, and finds it so."""
    dsn = own_stack.postgres.dsn

    async def let(read_only: str) -> None:
        await query(
            dsn,
            "SET default_transaction_read_only = off",
            f'ALTER DATABASE "{urlsplit(dsn).path[1:]}" SET default_transaction_read_only = '
            + read_only,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )

    yield let
    await let("off")


@pytest.mark.timeout(120)
async def test_a_database_that_answers_and_takes_no_writes_is_told_and_workers_are_served(
    own_stack: EmbeddedStack, tmp_path: Path, let_write: Callable[[str], Awaitable[None]]
) -> None:
    settings = settings_of(own_stack, "no-writes")
    told = "answers but refuses to write: "
    with serving(settings, tmp_path) as server:
        server.wait_ready()
        body = {"capacity": 300, "window_seconds": WINDOW_SECONDS}
        assert server.ask(f"/destinations/{NAME}", "PUT", body)[0] in (200, 201)
        server.wait(lambda: newest_epoch(server) > 0, "published")

        def detail() -> str:
            return str(server.ask("/readyz")[1]["dependencies"]["postgres"].get("detail"))

        await let_write("on")
        server.wait(lambda: told in detail(), "told")
        assert detail().endswith("in a read-only transaction")
        assert server.ask("/readyz")[0] == server.ask("/readyz/postgres")[0] == 503
        assert 'permit_dependency_up{dependency="postgres"} 0.0' in server.ask("/metrics")[1]
        assert server.ask("/readyz/distribution")[0] == server.ask("/healthz")[0] == 200
        doctor = run_command(settings, ["doctor"])
        assert (doctor.returncode, f"failed  postgres: {told}" in doctor.stdout) == (1, True)
        with serving(settings, tmp_path) as other:  # serves what is published all the same
            other.wait(lambda: other.ask("/readyz/distribution")[0] == 200, "serving")
            assert newest_epoch(other) > 0
