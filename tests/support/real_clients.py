"""Short conversations of real clients with the servers, each with a limit in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import asyncpg
import boto3
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from botocore.config import Config

from balancer.embedded import S3Part

WAIT_SECONDS = 20.0


def await_condition(holds: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Waits until a condition holds; fails by its description when it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def s3_client(s3: S3Part, secret_key: str | None = None) -> Any:
    """Returns a boto3 client for the S3 part, with its keys or with another secret."""
    return boto3.session.Session().client(
        "s3",
        endpoint_url=s3.endpoint_url,
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=secret_key or s3.secret_key,
        region_name=s3.region,
        config=Config(
            connect_timeout=5,
            read_timeout=10,
            retries={"total_max_attempts": 2},
            s3={"addressing_style": "path"},
        ),
    )


async def create_topic(bootstrap_servers: str, topic: str) -> None:
    """Creates a topic with one partition."""
    async with asyncio.timeout(WAIT_SECONDS):
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        finally:
            await admin.close()


async def produce(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    """Sends records to partition 0 and waits until the broker has acknowledged all."""
    async with asyncio.timeout(WAIT_SECONDS):
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
        await producer.start()
        try:
            for value in values:
                await producer.send_and_wait(topic, value, partition=0)
        finally:
            await producer.stop()


async def consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    """Reads that many records of partition 0 from the beginning."""
    async with asyncio.timeout(WAIT_SECONDS):
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
        await consumer.start()
        try:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()


async def committed_by_group(bootstrap_servers: str, topic: str, group: str) -> int | None:
    """Joins a group, commits what it read of the topic's first record, and asks for the commit."""
    async with asyncio.timeout(WAIT_SECONDS):
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )
        await consumer.start()
        try:
            record = await consumer.getone()
            partition = TopicPartition(topic, record.partition)
            await consumer.commit({partition: record.offset + 1})
            committed: int | None = await consumer.committed(partition)
            return committed
        finally:
            await consumer.stop()


async def query(dsn: str, *statements: str) -> Any:
    """Runs SQL statements; returns the last one's first value."""
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        value = None
        for statement in statements:
            value = await connection.fetchval(statement, timeout=20)
        return value
    finally:
        await connection.close(timeout=5)
