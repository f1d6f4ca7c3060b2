"""Fixtures: the real servers that tests run against, and a fresh corner of each for every test.

``PERMIT_TEST_KAFKA`` decides the brokers: ``embedded`` (or unset) only the embedded one,
``apache`` both it and Apache Kafka, so that each test that asks for ``kafka`` runs twice. The
servers live as long as the session; what a test does to a server it must undo.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from balancer.embedded import (
    EmbeddedError,
    EmbeddedStack,
    KafkaPart,
    KafkaServer,
    PostgresPart,
    S3Part,
)
from tests.support.apache_kafka import ApacheKafka

CHOICES = ("embedded", "apache")


def brokers_to_test() -> list[str]:
    """Returns the brokers that ``PERMIT_TEST_KAFKA`` asks for."""
    choice = os.environ.get("PERMIT_TEST_KAFKA") or "embedded"
    if choice not in CHOICES:
        raise pytest.UsageError(
            f"PERMIT_TEST_KAFKA is {choice!r}; it must be one of {', '.join(CHOICES)}"
        )
    return ["embedded", "apache"] if choice == "apache" else ["embedded"]


@dataclass(frozen=True, slots=True)
class Stack:
    """The three servers together, in the shape that a balancer's settings take."""

    kafka: KafkaServer
    postgres: PostgresPart
    s3: S3Part

    def environment(self) -> dict[str, str]:
        """Returns the environment variables that point a balancer and its workers here."""
        return {
            "PERMIT_KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "PERMIT_POSTGRES_DSN": self.postgres.dsn,
            "PERMIT_S3_BUCKET": self.s3.bucket,
            "PERMIT_S3_ENDPOINT_URL": self.s3.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.s3.access_key,
            "AWS_SECRET_ACCESS_KEY": self.s3.secret_key,
            "AWS_REGION": self.s3.region,
            "AWS_DEFAULT_REGION": self.s3.region,
        }


def silent(line: str) -> None:
    """Takes a line about a started server and says nothing: the report's header has said it."""


@pytest.fixture(scope="session", params=brokers_to_test())
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    """A running Kafka; with ``PERMIT_TEST_KAFKA=apache`` first the embedded one, then Apache's."""
    kafka_type = ApacheKafka if request.param == "apache" else None
    with EmbeddedStack(parts=["kafka"], kafka_type=kafka_type, report=silent) as stack:
        yield stack.kafka


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresPart]:
    """A running PostgreSQL; ``postgres_dsn`` is a fresh database in it."""
    with EmbeddedStack(parts=["postgres"], report=silent) as stack:
        yield stack.postgres


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Part]:
    """A running S3; ``s3_prefix`` is a fresh corner of its bucket."""
    with EmbeddedStack(parts=["s3"], report=silent) as stack:
        yield stack.s3


@pytest.fixture(scope="session")
def stack(kafka: KafkaServer, postgres: PostgresPart, s3: S3Part) -> Stack:
    """All three servers."""
    return Stack(kafka, postgres, s3)


@pytest.fixture
def postgres_dsn(postgres: PostgresPart) -> Iterator[str]:
    """The DSN of a database that this test alone uses, empty; dropped afterwards."""
    name = f"test_{secrets.token_hex(8)}"
    _run_sql(postgres.dsn, f"CREATE DATABASE {name}")
    parts = urlsplit(postgres.dsn)
    yield urlunsplit(parts._replace(path=f"/{name}"))
    postgres.resume()
    postgres.start()  # nothing happens if the test left it running
    _run_sql(postgres.dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def s3_prefix(s3: S3Part) -> str:
    """A prefix in the bucket that nobody else uses."""
    return f"test-{secrets.token_hex(8)}"


@pytest.fixture
def fresh_name() -> Callable[[str], str]:
    """Makes names (of topics, groups, destinations) that nobody else uses: ``kind-<random>``."""
    return lambda kind: f"{kind}-{secrets.token_hex(6)}"


@pytest.fixture
def aws_environment(s3: S3Part, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the credentials that boto3 reads from the environment to those of the test's S3."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", s3.region)
    monkeypatch.setenv("AWS_REGION", s3.region)


def pytest_report_header() -> list[str]:
    """Says which servers the session runs against, with versions.

    What is missing is said here and fails in the tests that need it, but for Apache Kafka: where
    it is asked for, a run without it would prove nothing, so there is none.
    """
    lines = []
    nowhere = Path("/")  # nothing is written before a start
    makers: dict[str, Callable[[Path], KafkaServer | PostgresPart | S3Part]] = {
        "postgres": PostgresPart,
        "s3": S3Part,
    }
    for broker in brokers_to_test():
        makers[f"kafka ({broker})"] = ApacheKafka if broker == "apache" else KafkaPart
    for part, make in sorted(makers.items()):
        try:
            lines.append(f"{part}: {make(nowhere).version()}")
        except EmbeddedError as fault:
            if "apache" in part:
                raise pytest.UsageError(str(fault)) from fault
            lines.append(f"{part}: {fault}")
    return lines


def _run_sql(dsn: str, statement: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(dsn, timeout=10)
        try:
            await connection.execute(statement, timeout=30)
        finally:
            with contextlib.suppress(TimeoutError):
                await connection.close(timeout=5)

    with ThreadPoolExecutor(max_workers=1) as pool:  # a loop of its own, whoever has one here
        pool.submit(asyncio.run, run()).result(timeout=60)
