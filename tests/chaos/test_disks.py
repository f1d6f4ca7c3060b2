"""Disks that are full, and have room again later.

As in `test_faults`: never over the capacity, nothing acknowledged and lost, and served again
without help within the stated time. Whatever runs a server starts it again when it has died of its
full disk; the balancer is left to itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import asyncpg
import pytest
from aiokafka.errors import KafkaError
from botocore.exceptions import ClientError

from balancer.embedded import S3Part
from tests.chaos.fleet import (
    SERVED_SECONDS,
    VALID_SECONDS,
    WINDOW_SECONDS,
    Fleet,
    measured,
    published,
)
from tests.chaos.reports import accounts_of, send_reports, used_once
from tests.support.apache_kafka import ApacheKafka
from tests.support.real_clients import query, s3_client
from tests.support.small_disk import SmallDisk
from worker_sdk import PermitClient

pytestmark = pytest.mark.timeout(400)

TOLD_SECONDS = 20.0
DEAD_SERVED_SECONDS = 60.0
REFUSED_SECONDS = 60.0
NEW_HOSTS = [f"new-{number}" for number in range(300)]
"""So many that their rows do not fit into what tables have room for."""

FILLERS, REFUSALS = 1_000, 10

OUT_OF_SPACE = "No space left on device"


def disk_of(fleet: Fleet, part: str) -> SmallDisk:
    if part not in fleet.disks:
        pytest.skip("no file system may be mounted here: it takes root, and the right to")
    return fleet.disks[part]


async def ask_for_more_log(dsn: str) -> None:
    """Let PostgreSQL take its next file for the log of writes, twice; it may die of it."""
    connection = await asyncpg.connect(dsn, timeout=10)
    for _ in range(2):
        await connection.execute("SELECT pg_switch_wal()", timeout=10)
        await connection.execute("SELECT pg_logical_emit_message(true, 'x', 'y')", timeout=10)


def retries(fleet: Fleet) -> float:
    name = "permit_ingest_store_retries_total"
    return sum(measured(balancer, name) for balancer in fleet.balancers)


def says_why(fleet: Fleet, part: str, words: str) -> bool:
    """Say whether a balancer says that a part takes no writes, and why."""
    answers = [balancer.ask(f"/readyz/{part}")[1] or {} for balancer in fleet.balancers]
    told = [answer.get("detail", "") for answer in answers]
    return any("answers but refuses to write" in line and words in line for line in told)


def test_a_postgres_whose_disk_is_full_costs_no_report_and_is_used_again_when_there_is_room(
    fleet: Fleet,
) -> None:
    disk, server = disk_of(fleet, "postgres"), fleet.stack.postgres
    before = retries(fleet)
    told = [len(balancer.words()) for balancer in fleet.balancers]

    def has_told() -> bool:
        words = (
            balancer.words()[length:]
            for balancer, length in zip(fleet.balancers, told, strict=True)
        )
        return any(OUT_OF_SPACE in text for text in words)

    disk.fill()
    try:
        asyncio.run(send_reports(fleet.stack.kafka.bootstrap_servers, NEW_HOSTS))
        fleet.wait(has_told, "told", TOLD_SECONDS)
        assert retries(fleet) > before
        fleet.wait(lambda: says_why(fleet, "postgres", OUT_OF_SPACE), "not ready", TOLD_SECONDS)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            asyncio.run(ask_for_more_log(server.dsn))
        time.sleep(WINDOW_SECONDS)
        assert all(balancer.ask("/healthz")[0] == 200 for balancer in fleet.balancers)
    finally:
        fleet.make_room("postgres")
    fleet.await_service(SERVED_SECONDS)
    kept = "SELECT count(*) FROM permit_member WHERE host LIKE 'new-%'"
    fleet.wait(
        lambda: asyncio.run(query(server.dsn, kept)) == len(NEW_HOSTS), "stored", SERVED_SECONDS
    )
    for balancer in fleet.balancers:
        fleet.wait(balancer.is_ready, "ready", SERVED_SECONDS)


def use_up(server: S3Part) -> None:
    """Write small files until none is taken: files end in blocks that have some room left."""
    client, refused = s3_client(server), 0
    for number in range(FILLERS):
        try:
            client.put_object(Bucket=server.bucket, Key=f"filler/{number}", Body=bytes(600))
            refused = 0
        except ClientError:
            refused += 1
            if refused == REFUSALS:
                return
    raise AssertionError("the disk is not full")


@pytest.mark.long
def test_a_kafka_whose_disk_is_full_takes_no_report_and_later_every_one_of_them_once(
    fleet: Fleet,
) -> None:
    """As a worker's client sees it that spends all the time, and counts what it spends."""
    kafka, balancer = fleet.stack.kafka, fleet.balancers[0]
    if not isinstance(kafka, ApacheKafka):
        pytest.skip("the embedded broker's data is in S3; PERMIT_TEST_KAFKA=apache has its own")
    disk, spent = disk_of(fleet, "kafka"), 0
    body = {"capacity": 30, "window_seconds": WINDOW_SECONDS}
    assert balancer.ask("/destinations/beside", "PUT", body)[0] == 201
    client = PermitClient(
        destinations=["beside"],
        kafka=fleet.links["kafka"][0].address,
        distribution=balancer.url,
        host="beside",
        flush_seconds=WINDOW_SECONDS,
    )

    def spend_until(condition: Callable[[], bool]) -> Callable[[], bool]:
        def is_met() -> bool:
            nonlocal spent
            spent += client.destination("beside").try_acquire()
            return condition()

        return is_met

    with client:
        fleet.wait(
            spend_until(lambda: spent > 0 and client.state.tuples_delivered > 1),
            "reported",
            SERVED_SECONDS,
        )
        disk.fill()
        try:
            with pytest.raises((KafkaError, TimeoutError)):
                asyncio.run(send_reports(kafka.bootstrap_servers, NEW_HOSTS))
            assert OUT_OF_SPACE in kafka.log_tail()
            before = client.state
            fleet.wait(
                spend_until(lambda: client.state.flushes_failed > before.flushes_failed + 1),
                "refused",
                REFUSED_SECONDS,
            )
            assert client.state.tuples_undelivered > before.tuples_undelivered
            assert client.state.tuples_delivered == before.tuples_delivered
            assert all(balancer.ask("/healthz")[0] == 200 for balancer in fleet.balancers)
        finally:
            fleet.make_room("kafka")
        fleet.wait(
            spend_until(lambda: client.state.tuples_delivered > before.tuples_delivered),
            "delivered",
            DEAD_SERVED_SECONDS,
        )
    assert client.state.tuples_dropped == 0  # nor with the goodbye
    accounts = asyncio.run(accounts_of(kafka.bootstrap_servers, "beside"))
    assert used_once(accounts) == spent
    assert balancer.ask("/destinations/beside", "DELETE")[0] == 204
    fleet.await_service(DEAD_SERVED_SECONDS)
    for balancer in fleet.balancers:
        fleet.wait(balancer.is_ready, "ready", SERVED_SECONDS)


@pytest.mark.long
def test_an_s3_whose_disk_is_full_is_published_to_again_when_there_is_room(fleet: Fleet) -> None:
    """The embedded broker, whose data is there, takes no reports meanwhile either."""
    disk, server = disk_of(fleet, "s3"), fleet.stack.s3
    disk.fill()
    try:
        use_up(server)
        time.sleep(WINDOW_SECONDS)  # a round under way may have had its answer
        counts = [len(published(balancer)) for balancer in fleet.balancers]
        time.sleep(2 * VALID_SECONDS)
        assert [len(published(balancer)) for balancer in fleet.balancers] == counts
        assert all(balancer.ask("/healthz")[0] == 200 for balancer in fleet.balancers)
        assert says_why(fleet, "s3", "InternalError")
    finally:
        fleet.make_room("s3")
    fleet.await_service(SERVED_SECONDS)
    for balancer in fleet.balancers:
        fleet.wait(balancer.is_ready, "ready", SERVED_SECONDS)
