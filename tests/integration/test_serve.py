"""The whole path on real servers: a worker's permits, through Kafka, PostgreSQL, S3 and HTTP."""

from __future__ import annotations

import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.real_clients import await_condition, query
from tests.support.served import Server, run_command, serving
from tests.support.servers import Stack
from worker_sdk import PermitClient
from worker_sdk.transports.kafka import KafkaSink

NAME = f"orders-{secrets.token_hex(4)}"  # workers of other tests report to the same topic
WINDOW_SECONDS = 3
WAIT_SECONDS = 60.0

Settings = dict[str, str]


@pytest.fixture
def settings(
    stack: Stack, postgres_dsn: str, s3_prefix: str, fresh_name: Callable[[str], str]
) -> Settings:
    """Settings of a balancer that shares nothing with another test's."""
    session_seconds = "6" if "pache" in stack.kafka.version() else "3"
    found = stack.environment() | {
        "PERMIT_POSTGRES_DSN": postgres_dsn,
        "PERMIT_S3_PREFIX": s3_prefix,
        "PERMIT_KAFKA_GROUP_ID": fresh_name("group"),
        "PERMIT_KAFKA_PARTITIONS": "2",
        "PERMIT_KAFKA_SESSION_SECONDS": session_seconds,
        "PERMIT_ROUND_SECONDS": str(WINDOW_SECONDS),
        "PERMIT_TTL_SECONDS": str(3 * WINDOW_SECONDS),
        "PERMIT_SHARDS": "2",
    }
    migrated = run_command(found, ["migrate"])
    assert migrated.returncode == 0, migrated.stderr
    return found


@pytest.fixture
def server(settings: Settings, tmp_path: Path) -> Iterator[Server]:
    with serving(settings, tmp_path) as running:
        running.wait_ready()
        yield running


def create_destination(server: Server, capacity: int = 300) -> None:
    body = {"capacity": capacity, "window_seconds": WINDOW_SECONDS}
    assert server.ask(f"/destinations/{NAME}", "PUT", body)[0] == 201


def client_of(server: Server, host: str, distribution: str | None = None) -> PermitClient:
    settings = server.settings
    return PermitClient(
        destinations=[NAME],
        kafka=settings["PERMIT_KAFKA_BOOTSTRAP_SERVERS"],
        distribution=distribution or server.url,
        host=host,
        flush_seconds=WINDOW_SECONDS,
        s3_endpoint_url=settings["PERMIT_S3_ENDPOINT_URL"],
    )


def percent_of(server: Server, host: str) -> float:
    status, body = server.ask(f"/distribution/{host}")
    rows = body["destinations"].get(NAME, []) if status == 200 else []
    return float(rows[0]["percent"]) if rows else 0.0


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("aws_environment")
@pytest.mark.parametrize("source", ["http", "s3"])
def test_a_worker_gets_permits_reports_and_leaves(server: Server, source: str) -> None:
    create_destination(server)
    bucket, prefix = server.settings["PERMIT_S3_BUCKET"], server.settings["PERMIT_S3_PREFIX"]
    distribution = None if source == "http" else f"s3://{bucket}/{prefix}"
    with client_of(server, "a/1", distribution) as client:
        orders = client.destination(NAME)
        orders.acquire(timeout=WAIT_SECONDS)
        server.wait(lambda: percent_of(server, "a%2F1") > 90, "a share")
        assert orders.state.epoch > 0
        status, body = server.ask(f"/destinations/{NAME}/distribution")
        assert (status, body["documents"][0]["members"][0]["host"]) == (200, "a/1")
        explain = ["explain", "--destination", NAME, "--host", "a/1", "--json"]

        def is_explained() -> bool:  # from the first regular round on
            return "because" in run_command(server.settings, explain).stdout

        server.wait(is_explained, "explained")
    server.wait(lambda: percent_of(server, "a%2F1") == 0, "free again")


@pytest.mark.timeout(180)
def test_a_balancer_that_was_killed_takes_up_where_it_was(
    settings: Settings, tmp_path: Path
) -> None:
    with serving(settings, tmp_path) as first:
        first.wait_ready()
        create_destination(first)
        with client_of(first, "a") as client:
            client.destination(NAME).acquire(timeout=WAIT_SECONDS)
            first.wait(lambda: percent_of(first, "a") > 90, "a share")
            epoch = newest_epoch(first)
            first.stop(signal.SIGKILL)
            with serving(settings, tmp_path) as second:
                second.wait_ready()
                second.wait(lambda: newest_epoch(second) > epoch, "publishing again")
                assert percent_of(second, "a") > 90
                assert second.stop() == 0


@pytest.mark.timeout(180)
def test_of_two_replicas_and_one_partition_both_are_ready_and_either_plans(
    settings: Settings, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("usage")
    one_partition = settings | {
        "PERMIT_KAFKA_PARTITIONS": "1",
        "PERMIT_KAFKA_USAGE_TOPIC": topic,
        "PERMIT_KAFKA_REJECTED_TOPIC": fresh_name("rejected"),
    }
    with serving(one_partition, tmp_path) as first:
        first.wait_ready()
        create_destination(first)
        with serving(one_partition, tmp_path) as second:
            second.wait_ready()
            client = PermitClient(
                destinations=[NAME],
                kafka=lambda: KafkaSink(settings["PERMIT_KAFKA_BOOTSTRAP_SERVERS"], topic=topic),
                distribution=second.url,
                host="a",
                flush_seconds=WINDOW_SECONDS,
            )
            with client:
                client.destination(NAME).acquire(timeout=WAIT_SECONDS)
                first.wait(lambda: plans(first, 1) and plans(second, 1), "planning anew")
                first.stop(signal.SIGKILL)
                second.wait(lambda: plans(second, 2), "planning anew")
                epoch = newest_epoch(second)
                second.wait(lambda: newest_epoch(second) > epoch, "publishing")
                assert percent_of(second, "a") > 90


@pytest.mark.timeout(120)
def test_a_replica_that_answers_no_worker_plans_and_shows_what_another_one_published(
    settings: Settings, tmp_path: Path
) -> None:
    with serving(settings, tmp_path) as first:
        first.wait_ready()
        create_destination(first)
        silent = settings | {"PERMIT_HTTP_DISTRIBUTION": "false"}
        with serving(silent, tmp_path) as second:
            second.wait_ready()
            status, body = second.ask("/distribution/a")
            assert (status, "PERMIT_HTTP_DISTRIBUTION" in body["detail"]) == (501, True)
            first.wait(lambda: newest_epoch(first) > 0, "published")
            assert newest_epoch(second) >= newest_epoch(first) > 0
            first.stop(signal.SIGKILL)
            second.wait(lambda: plans(second, 2), "planning anew")
            epoch = newest_epoch(second)
            second.wait(lambda: newest_epoch(second) > epoch, "publishing")


def plans(server: Server, shards: int) -> bool:
    """Say whether it leads so many shards, and does not only repeat what was published."""
    text = server.ask("/metrics")[1]
    return f"permit_leading_shards {shards}.0" in text and "permit_learning_shards 0.0" in text


def newest_epoch(server: Server) -> int:
    status, body = server.ask(f"/destinations/{NAME}/distribution")
    return body["documents"][0]["epoch"] if status == 200 and body["documents"] else 0


@pytest.mark.timeout(120)
def test_it_stops_soon_though_somebody_waits_on_a_kept_connection(server: Server) -> None:
    address = server.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=20) as connection:
        connection.sendall(b"GET /distribution/nobody?wait=60 HTTP/1.1\r\nHost: x\r\n\r\n")
        server.wait(lambda: "permit_http_waiting 1.0" in server.ask("/metrics")[1], "waiting")
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 10
        assert connection.recv(100).startswith(b"HTTP/1.1 404")
    assert "Traceback" not in server.words()


@pytest.mark.timeout(120)
async def test_stopping_leaves_the_lease_free(server: Server) -> None:
    dsn = server.settings["PERMIT_POSTGRES_DSN"]
    assert await query(dsn, "SELECT count(*) FROM permit_lease WHERE holder <> ''") == 2
    assert server.stop() == 0
    assert await query(dsn, "SELECT count(*) FROM permit_lease WHERE holder <> ''") == 0


@pytest.mark.timeout(120)
def test_it_says_what_it_waits_for_and_serves_when_that_is_there(
    settings: Settings, stack: Stack, tmp_path: Path
) -> None:
    stack.postgres.stop()
    try:
        with serving(settings, tmp_path) as server:
            server.wait(lambda: "waiting for postgres" in server.words(), "told")
            assert server.ask("/healthz")[0] == 200
            status, body = server.ask("/readyz")
            assert status == 503
            assert body["dependencies"]["postgres"]["ready"] is False
            stack.postgres.start()
            server.wait_ready()
            assert server.stop() == 0
    finally:
        stack.postgres.start()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", ["postgres", "s3", "kafka"])
def test_stopping_does_not_wait_for_a_part_that_accepts_and_never_answers(
    settings: Settings, tmp_path: Path, part: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        hanging = {
            "postgres": {"PERMIT_POSTGRES_DSN": f"postgresql://permit:secret-word@{address}/x"},
            "s3": {"PERMIT_S3_ENDPOINT_URL": f"http://{address}"},
            "kafka": {"PERMIT_KAFKA_BOOTSTRAP_SERVERS": address},
        }
        with serving(settings | hanging[part], tmp_path) as server:
            silent.settimeout(WAIT_SECONDS)
            connection, _ = silent.accept()
            with connection:
                started = time.monotonic()
                assert server.stop() == 0
                assert time.monotonic() - started < 10
        assert "secret-word" not in server.words()


@pytest.mark.timeout(60)
def test_stopping_while_it_waits_works_too(settings: Settings, tmp_path: Path) -> None:
    absent = settings | {"PERMIT_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    with serving(absent, tmp_path) as server:
        server.wait(lambda: "waiting for kafka" in server.words(), "told")
        assert server.stop() == 0


@pytest.mark.timeout(60)
async def test_what_runs_goes_on_where_the_schema_is_the_next_versions_already(
    server: Server,
) -> None:
    def checks() -> float:
        counted = 'dependency_seconds_count{call="check",dependency="postgres"}'
        (line,) = (line for line in str(server.ask("/metrics")[1]).splitlines() if counted in line)
        return float(line.split()[-1])

    dsn = server.settings["PERMIT_POSTGRES_DSN"]
    await query(dsn, "UPDATE permit_schema_version SET version_num = '9999'")
    before = checks()
    server.wait(lambda: checks() >= before + 2, "asked again")
    assert server.ask("/readyz")[0] == 200


@pytest.mark.timeout(60)
async def test_another_schema_stops_the_start_with_what_to_run(
    settings: Settings, tmp_path: Path
) -> None:
    dsn = settings["PERMIT_POSTGRES_DSN"]
    for version, told in (("0000", "permit-balancer migrate"), ("9999", "install the newer")):
        await query(dsn, f"UPDATE permit_schema_version SET version_num = '{version}'")
        with serving(settings, tmp_path) as server:
            assert server.process.wait(30) == 1
            assert told in server.words()
            assert "Traceback" not in server.words()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("setting", "value"),
    [("PERMIT_S3_BUCKET", "no-such-bucket"), ("AWS_SECRET_ACCESS_KEY", "wrong")],
)
def test_a_bucket_that_is_missing_or_refuses_stops_the_start_with_one_line(
    settings: Settings, tmp_path: Path, setting: str, value: str
) -> None:
    with serving(settings | {setting: value}, tmp_path) as server:
        assert server.process.wait(30) == 1
        (line,) = [text for text in server.words().splitlines() if text.startswith("permit-")]
        assert "PERMIT_S3_BUCKET=" in line
        assert "AWS_*" in line
        assert "Traceback" not in server.words()


@pytest.mark.timeout(120)
def test_a_change_on_the_command_line_reaches_the_workers(server: Server) -> None:
    create_destination(server)
    with client_of(server, "a") as client:
        client.destination(NAME).acquire(timeout=WAIT_SECONDS)
        changed = run_command(server.settings, ["destinations", "set", NAME, "--capacity", "60"])
        assert changed.returncode == 0, changed.stderr

        def capacity() -> int:
            rows = server.ask("/distribution/a")[1]["destinations"][NAME]
            return int(rows[0]["capacity"])

        server.wait(lambda: capacity() == 60, "changed")
        orders = client.destination(NAME)
        await_condition(lambda: 0 < orders.state.granted_permits <= 60, "known to the worker")


@pytest.mark.timeout(120)
def test_embedded_it_brings_everything_along_and_shows_how_to_use_it(tmp_path: Path) -> None:
    settings = {"PERMIT_ROUND_SECONDS": "3", "PERMIT_TTL_SECONDS": "9", "PERMIT_SHARDS": "1"}
    with serving(settings, tmp_path, "--embedded") as server:
        server.wait_ready()
        words = server.words()
        for part in ("kafka: ", "postgres: ", "s3: ", "serves at ", "curl -X PUT "):
            assert part in words
        named = re.search(r"^  \. (\S+settings\.sh)$", words, re.MULTILINE)
        assert named is not None
        shown = subprocess.run(
            ["sh", "-c", f". {named[1]}; exec {sys.executable} -m balancer destinations list"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert "no destination yet" in shown.stdout
        assert Path(named[1]).stat().st_mode & 0o777 == 0o600
        create_destination(server)
        assert server.stop(signal.SIGINT) == 0
        assert "Traceback" not in server.words()
