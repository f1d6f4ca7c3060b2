"""Several balancers on real servers: what one reads another plans, and who leads which shard."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import signal
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
def settings(
    stack: Stack, postgres_dsn: str, s3_prefix: str, fresh_name: Callable[[str], str]
) -> dict[str, str]:
    """Settings of a balancer whose database is ready."""
    session_seconds = "6" if "pache" in stack.kafka.version() else "3"
    found = stack.environment() | {
        "PERMIT_POSTGRES_DSN": postgres_dsn,
        "PERMIT_S3_PREFIX": s3_prefix,
        "PERMIT_KAFKA_GROUP_ID": fresh_name("group"),
        "PERMIT_KAFKA_USAGE_TOPIC": fresh_name("usage"),
        "PERMIT_KAFKA_REJECTED_TOPIC": fresh_name("rejected"),
        "PERMIT_KAFKA_PARTITIONS": "2",
        "PERMIT_KAFKA_SESSION_SECONDS": session_seconds,
        "PERMIT_ROUND_SECONDS": str(ROUND_SECONDS),
        "PERMIT_TTL_SECONDS": str(3 * ROUND_SECONDS),
        "PERMIT_SHARDS": "1",
    }
    migrated = run_command(found, ["migrate"])
    assert migrated.returncode == 0, migrated.stderr
    return found


@pytest.fixture
def pair(settings: dict[str, str], tmp_path: Path) -> Iterator[Pair]:
    """Two ready balancers, the first of which leads the only shard; and their topic."""
    with ExitStack() as running:
        leader = running.enter_context(serving(settings, tmp_path))
        leader.wait_ready()
        other = running.enter_context(serving(settings, tmp_path))
        other.wait_ready()
        body = {"capacity": 300, "window_seconds": ROUND_SECONDS}
        assert leader.ask(f"/destinations/{NAME}", "PUT", body)[0] == 201
        yield leader, other, settings["PERMIT_KAFKA_USAGE_TOPIC"]


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


# ---------------------------------------------------------------- who leads

SHARDS = 4
SHORT_ROUND_SECONDS = 4
LEASE_SECONDS = 10
TAKEN_OVER_SECONDS = 15.0


def leading(server: Server) -> int:
    found = re.search(r"^permit_leading_shards (\S+)", str(server.ask("/metrics")[1]), re.MULTILINE)
    return int(float(found[1])) if found else -1


def put_destinations(server: Server) -> None:
    """Let every shard have something to plan."""
    for number in range(4 * SHARDS):
        body = {"capacity": 100, "window_seconds": SHORT_ROUND_SECONDS}
        assert server.ask(f"/destinations/d{number}", "PUT", body)[0] == 201


async def coverage(dsn: str) -> dict[str, list[tuple[int, int]]]:
    """Return for each destination what was covered, in order of publishing."""
    text = await query(
        dsn,
        "SELECT coalesce(json_agg(json_build_array(destination, from_ms, until_ms) "
        "ORDER BY planned_at_ms, from_ms), '[]')::text FROM permit_history_destination",
    )
    found: dict[str, list[tuple[int, int]]] = {}
    for name, from_ms, until_ms in json.loads(text):
        found.setdefault(name, []).append((from_ms, until_ms))
    return found


def gaps(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the stretches that no document covered."""
    found, covered_ms = [], spans[0][0]
    for from_ms, until_ms in spans:
        if from_ms > covered_ms:
            found.append((covered_ms, from_ms))
        covered_ms = max(covered_ms, until_ms)
    return found


def short_rounds(settings: dict[str, str]) -> dict[str, str]:
    return settings | {
        "PERMIT_ROUND_SECONDS": str(SHORT_ROUND_SECONDS),
        "PERMIT_TTL_SECONDS": str(3 * SHORT_ROUND_SECONDS),
        "PERMIT_SHARDS": str(SHARDS),
    }


@pytest.mark.timeout(180)
async def test_shards_are_spread_and_no_round_is_missed_when_a_balancer_joins_or_leaves(
    settings: dict[str, str], tmp_path: Path
) -> None:
    settings = short_rounds(settings)
    with serving(settings, tmp_path) as first, serving(settings, tmp_path) as other:
        first.wait_ready()
        put_destinations(first)
        other.wait_ready()
        first.wait(lambda: (leading(first), leading(other)) == (2, 2), "spread")
        assert other.stop() == 0
        first.wait(lambda: leading(first) == SHARDS, "taken over", TAKEN_OVER_SECONDS)
        since_ms = time.time_ns() // 1_000_000
        dsn = settings["PERMIT_POSTGRES_DSN"]
        async with asyncio.timeout(60):
            while True:
                covered = await coverage(dsn)
                if len(covered) == 4 * SHARDS and all(
                    spans[-1][0] >= since_ms for spans in covered.values()
                ):
                    break
                await asyncio.sleep(0.2)
        assert {name: gaps(spans) for name, spans in covered.items() if gaps(spans)} == {}


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_balancer_that_dies_or_is_paused_is_replaced_within_fifteen_seconds(
    settings: dict[str, str], tmp_path: Path, number: int
) -> None:
    settings = short_rounds(settings) | {"PERMIT_LEASE_SECONDS": str(LEASE_SECONDS)}
    with serving(settings, tmp_path) as first, serving(settings, tmp_path) as other:
        first.wait_ready()
        put_destinations(first)
        other.wait_ready()
        first.wait(lambda: (leading(first), leading(other)) == (2, 2), "spread")
        first.process.send_signal(number)
        other.wait(lambda: leading(other) == SHARDS, "taken over", TAKEN_OVER_SECONDS)
        if number == signal.SIGSTOP:
            first.process.send_signal(signal.SIGCONT)
            other.wait(lambda: leading(first) == 2, "back to its part")
