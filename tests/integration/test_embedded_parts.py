"""The embedded servers answer real clients, and their faults on purpose do what they say."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import asyncpg
import pytest
from botocore.exceptions import ClientError

from balancer.embedded import EmbeddedStack, KafkaServer, PostgresPart, S3Part
from tests.support.real_clients import (
    await_condition,
    committed_by_group,
    consume,
    create_topic,
    produce,
    query,
    s3_client,
)


async def test_kafka_keeps_records_and_group_commits(
    kafka: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("topic")
    await create_topic(kafka.bootstrap_servers, topic)
    await produce(kafka.bootstrap_servers, topic, [b"one", b"two"])

    assert await consume(kafka.bootstrap_servers, topic, 2) == [b"one", b"two"]
    assert await committed_by_group(kafka.bootstrap_servers, topic, fresh_name("group")) == 1


async def test_postgres_answers_and_refuses_a_wrong_password(postgres_dsn: str) -> None:
    assert await query(postgres_dsn, "CREATE TABLE t (n int)", "SELECT count(*) FROM t") == 0
    assert await query(postgres_dsn, "SHOW server_encoding") == "UTF8"
    password = postgres_dsn.partition("permit:")[2].partition("@")[0]
    with pytest.raises(asyncpg.InvalidPasswordError):
        await query(postgres_dsn.replace(password, "wrong"), "SELECT 1")


def test_s3_puts_conditionally_and_refuses_wrong_keys(s3: S3Part, s3_prefix: str) -> None:
    client, key = s3_client(s3), f"{s3_prefix}/a"
    etag = client.put_object(Bucket=s3.bucket, Key=key, Body=b"1", IfNoneMatch="*")["ETag"]
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=s3.bucket, Key=key, Body=b"2", IfNoneMatch="*")
    client.put_object(Bucket=s3.bucket, Key=key, Body=b"3", IfMatch=etag)
    assert client.get_object(Bucket=s3.bucket, Key=key)["Body"].read() == b"3"
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        s3_client(s3, secret_key="wrong").list_buckets()


@pytest.fixture(scope="module")
def durable() -> Iterator[EmbeddedStack]:
    with EmbeddedStack(durable_kafka=True, report=lambda _: None) as stack:
        yield stack


async def test_kafka_on_s3_keeps_address_records_and_commits_over_kill_and_restart(
    durable: EmbeddedStack, fresh_name: Callable[[str], str]
) -> None:
    kafka, topic, group = durable.kafka, fresh_name("topic"), fresh_name("group")
    address = kafka.bootstrap_servers
    await create_topic(address, topic)
    await produce(address, topic, [b"one"])
    assert await committed_by_group(address, topic, group) == 1

    kafka.kill()
    assert not kafka.alive()
    kafka.start()
    await produce(address, topic, [b"two"])
    kafka.restart()

    assert kafka.bootstrap_servers == address
    assert await consume(address, topic, 2) == [b"one", b"two"]
    assert await committed_by_group(address, topic, group) == 2


async def test_kafka_on_s3_serves_again_after_s3_was_away(
    durable: EmbeddedStack, fresh_name: Callable[[str], str]
) -> None:
    topic, address = fresh_name("topic"), durable.kafka.bootstrap_servers
    await create_topic(address, topic)
    await produce(address, topic, [b"one"])
    durable.s3.restart()
    await produce(address, topic, [b"two"])
    assert await consume(address, topic, 2) == [b"one", b"two"]


async def test_postgres_keeps_address_and_data_over_kill_and_restart(
    durable: EmbeddedStack,
) -> None:
    postgres = durable.postgres
    dsn = postgres.dsn
    await query(dsn, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (7)")
    postgres.kill()
    postgres.start()
    assert await query(dsn, "SELECT n FROM kept") == 7
    postgres.restart()
    assert postgres.dsn == dsn
    assert await query(dsn, "SELECT n FROM kept") == 7


def test_s3_keeps_address_keys_and_data_over_kill_and_restart(
    durable: EmbeddedStack, s3_prefix: str
) -> None:
    s3 = durable.s3
    address, client, key = s3.endpoint_url, s3_client(s3), f"{s3_prefix}/kept"
    client.put_object(Bucket=s3.bucket, Key=key, Body=b"kept")
    s3.kill()
    s3.start()
    assert client.get_object(Bucket=s3.bucket, Key=key)["Body"].read() == b"kept"
    s3.restart()
    assert s3.endpoint_url == address
    assert client.get_object(Bucket=s3.bucket, Key=key)["Body"].read() == b"kept"


async def test_paused_part_hangs_and_goes_on_when_resumed(durable: EmbeddedStack) -> None:
    postgres: PostgresPart = durable.postgres
    postgres.pause()
    try:
        with socket.create_connection(("127.0.0.1", postgres.port), timeout=5) as connection:
            connection.settimeout(0.3)
            connection.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")  # asks for TLS; answered by a byte
            with pytest.raises(TimeoutError):
                connection.recv(1)
        assert postgres.alive()
    finally:
        postgres.resume()
    assert await query(postgres.dsn, "SELECT 1") == 1


def test_stopped_part_is_gone_and_stop_is_repeatable(durable: EmbeddedStack) -> None:
    kafka = durable.kafka
    kafka.stop()
    kafka.stop()
    assert not kafka.alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", kafka.port), timeout=5)
    kafka.start()
    await_condition(kafka.alive, "the broker is back")
