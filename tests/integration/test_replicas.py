"""Two balancers on real servers, a partition each: what one reads the other plans."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from tests.support.real_clients import query
from tests.support.served import Server, run_command, serving
from tests.support.servers import Stack
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple, encode_batch

NAME = f"orders-{secrets.token_hex(4)}"
ROUND_SECONDS = 60  # long: within a round only an early one can publish
CALLED_SECONDS = 5.0  # a second to learn of it, and time to plan on a machine that is loaded

Pair = tuple[Server, Server, str]


@pytest.fixture
def pair(
    stack: Stack,
    postgres_dsn: str,
    s3_prefix: str,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
) -> Iterator[Pair]:
    """Two ready balancers, the first of which leads the only shard; and their topic."""
    session_seconds = "6" if "pache" in stack.kafka.version() else "3"
    topic = fresh_name("usage")
    settings = stack.environment() | {
        "PERMIT_POSTGRES_DSN": postgres_dsn,
        "PERMIT_S3_PREFIX": s3_prefix,
        "PERMIT_KAFKA_GROUP_ID": fresh_name("group"),
        "PERMIT_KAFKA_USAGE_TOPIC": topic,
        "PERMIT_KAFKA_REJECTED_TOPIC": fresh_name("rejected"),
        "PERMIT_KAFKA_PARTITIONS": "2",
        "PERMIT_KAFKA_SESSION_SECONDS": session_seconds,
        "PERMIT_ROUND_SECONDS": str(ROUND_SECONDS),
        "PERMIT_TTL_SECONDS": str(3 * ROUND_SECONDS),
        "PERMIT_SHARDS": "1",
    }
    migrated = run_command(settings, ["migrate"])
    assert migrated.returncode == 0, migrated.stderr
    with ExitStack() as running:
        leader = running.enter_context(serving(settings, tmp_path))
        leader.wait_ready()
        other = running.enter_context(serving(settings, tmp_path))
        other.wait_ready()
        body = {"capacity": 300, "window_seconds": ROUND_SECONDS}
        assert leader.ask(f"/destinations/{NAME}", "PUT", body)[0] == 201
        yield leader, other, topic


def batch(host: str, state: MemberState) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    entry = UsageTuple(NAME, now_ms - 1_000, now_ms, 0, 0, 0, 5, 0, 0)
    # What it proves unspent of the present window is free at once.
    window = now_ms // (ROUND_SECONDS * 1000)
    spent = {NAME: (window, 0)} if state is MemberState.LEAVING else {}
    return encode_batch(UsageBatch(host, "i", now_ms, state, None, {}, (entry,), spent))


async def send(pair: Pair, host: str, state: MemberState, partition: int) -> None:
    servers, topic = pair[0].settings["PERMIT_KAFKA_BOOTSTRAP_SERVERS"], pair[2]
    async with asyncio.timeout(20), AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(topic, batch(host, state), partition=partition)


def newest_names(server: Server) -> list[str]:
    """Return the hosts of the newest document."""
    status, body = server.ask(f"/destinations/{NAME}/distribution")
    found = body["documents"] if status == 200 else []
    return [member["host"] for member in found[0]["members"]] if found else []


def stored(server: Server) -> float:
    found = re.search(r"^permit_ingest_stored_total (\S+)", server.ask("/metrics")[1], re.MULTILINE)
    return float(found[1]) if found else 0.0


async def partition_of(pair: Pair, server: Server) -> int:
    """Return a partition that this one reads, once both have one."""
    dsn = pair[0].settings["PERMIT_POSTGRES_DSN"]
    statement = (
        "SELECT partitions[1] FROM permit_reader WHERE cardinality(partitions) = 1 "
        f"AND split_part(reader, ':', 2) = '{server.process.pid}' "
        "AND (SELECT sum(cardinality(partitions)) FROM permit_reader) = 2"
    )
    async with asyncio.timeout(60):
        while (found := await query(dsn, statement)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return int(found)


@pytest.mark.timeout(180)
async def test_a_hello_and_a_goodbye_read_by_one_that_does_not_lead_are_planned_at_once(
    pair: Pair,
) -> None:
    leader, other, _ = pair
    partition = await partition_of(pair, other)
    assert "permit_leading_shards 1.0" in leader.ask("/metrics")[1]
    for state, names in ((MemberState.STARTING, ["a"]), (MemberState.LEAVING, [])):
        await send(pair, "a", state, partition)
        for server in (leader, other):
            server.wait(lambda s=server, n=names: newest_names(s) == n, state, CALLED_SECONDS)
    assert (stored(leader), stored(other)) == (0.0, 2.0)
