"""Links and stores that half work: slow, dead without a word, cut off, read-only, made anew.

As in `test_faults`: never over the capacity, nothing acknowledged and lost, and served again
without help within the stated time.
"""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.chaos.fleet import SERVED_SECONDS, VALID_SECONDS, WINDOW_SECONDS, Fleet, measured
from tests.support.fault_proxy import Fault

pytestmark = pytest.mark.timeout(240)

CUT_SECONDS = 6.0
CUT_EVERY_SECONDS = 0.05
DEAD_SERVED_SECONDS = 60.0
"""Drivers notice a link that is dead without a word by their own limits of time."""

STORED = "permit_ingest_stored_total"
READ_ONLY = "default_transaction_read_only"


async def run_sql(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        for statement in statements:
            await connection.execute(statement, timeout=10)
    finally:
        await connection.close(timeout=5)


def test_connections_of_postgres_cut_again_and_again_in_the_middle_of_writes_cost_no_round_for_long(
    fleet: Fleet,
) -> None:
    async def cut() -> None:
        connection = await asyncpg.connect(fleet.stack.postgres.dsn, timeout=10)
        try:
            async with asyncio.timeout(CUT_SECONDS + 10):
                end = time.monotonic() + CUT_SECONDS
                while time.monotonic() < end:
                    await connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE pid <> pg_backend_pid() AND datname = current_database()"
                    )
                    await asyncio.sleep(CUT_EVERY_SECONDS)
        finally:
            await connection.close(timeout=5)

    asyncio.run(cut())
    fleet.await_service(SERVED_SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("part", ["kafka", "postgres", "s3"])
def test_a_slow_link_is_used_as_well_as_it_goes_and_well_again_when_it_is_well(
    fleet: Fleet, part: str
) -> None:
    fleet.play(Fault.SLOW, part)
    try:
        time.sleep(4 * VALID_SECONDS)
        assert all(balancer.ask("/healthz")[0] == 200 for balancer in fleet.balancers)
    finally:
        fleet.play(Fault.NONE, part)
    fleet.await_service(SERVED_SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("part", ["kafka", "postgres", "s3"])
def test_a_link_that_dies_without_a_word_is_given_up_and_made_anew(fleet: Fleet, part: str) -> None:
    fleet.play(Fault.DEAD, part)
    try:
        time.sleep(2 * VALID_SECONDS)
        assert all(balancer.ask("/healthz")[0] == 200 for balancer in fleet.balancers)
    finally:
        fleet.play(Fault.NONE, part)
    fleet.await_service(DEAD_SERVED_SECONDS)
    for balancer in fleet.balancers:
        fleet.wait(balancer.is_ready, "ready", SERVED_SECONDS)


@pytest.mark.long
def test_a_postgres_that_takes_no_writes_is_written_to_again_when_it_does(fleet: Fleet) -> None:
    """As a server does whose disk is full, or that has become a standby."""
    dsn = fleet.stack.postgres.dsn
    again = (f"ALTER SYSTEM RESET {READ_ONLY}", "SELECT pg_reload_conf()")
    asyncio.run(run_sql(dsn, f"ALTER SYSTEM SET {READ_ONLY} = on", "SELECT pg_reload_conf()"))
    try:
        time.sleep(2 * VALID_SECONDS)
        for balancer in fleet.balancers:
            assert balancer.ask("/healthz")[0] == 200
            status, body = balancer.ask("/readyz/postgres")
            assert (status, "refuses to write" in body["detail"]) == (503, True)
            assert balancer.ask("/readyz/distribution")[0] == 200
    finally:
        asyncio.run(run_sql(dsn, f"SET {READ_ONLY} = off", *again))
    fleet.await_service(SERVED_SECONDS)
    for balancer in fleet.balancers:
        fleet.wait(balancer.is_ready, "ready", SERVED_SECONDS)


@pytest.mark.long
def test_a_topic_that_is_deleted_and_made_again_is_read_again(fleet: Fleet) -> None:
    async def remake() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=fleet.stack.kafka.bootstrap_servers)
        async with asyncio.timeout(30):
            await admin.start()
            try:
                await admin.delete_topics(["permit-usage"])
                await asyncio.sleep(2 * WINDOW_SECONDS)
                made = NewTopic("permit-usage", num_partitions=4, replication_factor=1)
                await admin.create_topics([made])
            finally:
                await admin.close()

    asyncio.run(remake())
    before = sum(measured(balancer, STORED) for balancer in fleet.balancers)

    def is_stored() -> bool:
        return sum(measured(balancer, STORED) for balancer in fleet.balancers) > before

    # Not served alone: shares are repeated where nobody reads.
    fleet.wait(is_stored, "read again", DEAD_SERVED_SECONDS)
    fleet.await_service(DEAD_SERVED_SECONDS)
