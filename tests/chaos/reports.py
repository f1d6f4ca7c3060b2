"""Reports of hosts that are no workers, for a destination that is none of the fleet's; and what the
topic holds of a host.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from balancer.adapters.kafka.compression import unpack
from worker_sdk.wire.limits import BATCH_MAX_BYTES
from worker_sdk.wire.usage import UsageTuple, decode_batch

TOPIC = "permit-usage"
SEND_SECONDS = 60
READ_SECONDS = 60


def report(host: str) -> bytes:
    """Return a sound report; its instance's name is long, so that rows are."""
    now_ms = time.time_ns() // 1_000_000
    account = ["elsewhere", now_ms - 1_000, now_ms, 0, 0, 5, 0, 0, 0]
    batch = {
        "v": 1,
        "host": host,
        "instance": "i" * 200,
        "sent_at_ms": now_ms,
        "state": "running",
        "epochs": {},
        "tuples": [account],
    }
    return json.dumps(batch).encode()


async def send_reports(servers: str, hosts: Iterable[str]) -> None:
    """Send a report of each of these hosts; return when every one is acknowledged."""
    async with (
        asyncio.timeout(SEND_SECONDS),
        AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer,
    ):
        sent = [await producer.send(TOPIC, report(host), key=host.encode()) for host in hosts]
        await asyncio.gather(*sent)


async def accounts_of(servers: str, host: str) -> list[UsageTuple]:
    """Return every account of a host that the topic holds, in order of their instants."""
    found: list[UsageTuple] = []
    async with (
        asyncio.timeout(READ_SECONDS),
        AIOKafkaConsumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest") as reader,
    ):
        ends = await reader.end_offsets(reader.assignment())
        while any([await reader.position(each) < end for each, end in ends.items()]):
            for messages in (await reader.getmany(timeout_ms=500)).values():
                for message in messages:
                    if message.key == host.encode():
                        encoding = dict(message.headers).get("content-encoding")
                        body = unpack(message.value, encoding, BATCH_MAX_BYTES)
                        found.extend(decode_batch(body).batch.tuples)
    return sorted(found, key=lambda account: account.instant_ms)


def used_once(accounts: list[UsageTuple]) -> int:
    """Return what was used, by the newest account of each stretch of time.

    An attempt that seemed to fail may have arrived: the next account then begins where it began.
    """
    counted: list[UsageTuple] = []
    for account in accounts:
        while counted and counted[-1].from_ms >= account.from_ms:
            counted.pop()
        counted.append(account)
    return sum(account.used for account in counted)
