"""The servers of ``docker-compose.yml`` without Docker, with the settings that it gives them.

Decides what takes an image's place: Apache Kafka of the version that Maven fetches, or the embedded
broker; the PostgreSQL of a package; SeaweedFS for MinIO, of which no package carries a binary. Each
does at its first start what the image's entrypoint would do with the same environment.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import boto3
from botocore.config import Config

from balancer.embedded import PostgresPart, S3Part, ServerPart
from balancer.embedded.ports import LOOPBACK
from balancer.embedded.postgres import USER as OWNER
from balancer.embedded.s3 import PROBE_BUCKET, REGION
from tests.support.apache_kafka import ApacheKafka

STOP_SECONDS = 30.0
NOT_SETTINGS = {"KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS"}

Natively = Callable[[str], str]


def kafka_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that Kafka's image makes of its environment.

    ``KAFKA_NODE_ID`` becomes ``node.id``; three underscores are a dash, two an underscore.
    """
    settings = {}
    for name, value in environment.items():
        if name.startswith("KAFKA_") and name not in NOT_SETTINGS:
            dotted = name.removeprefix("KAFKA_").lower().replace("_", ".")
            settings[dotted.replace("...", "-").replace("..", "_")] = value
    return settings


class ComposeKafka(ApacheKafka):
    """Apache Kafka with the service's settings alone; only addresses and folder are others."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str],
        native: Callable[[ServerPart], Natively],
    ) -> None:
        """Takes the directory, the service's environment and what makes its addresses native."""
        super().__init__(directory)
        self._given = environment
        self._native = native

    def _prepare(self) -> None:
        native = self._native(self)
        settings = {key: native(value) for key, value in kafka_settings(self._given).items()}
        settings["log.dirs"] = str(self._data)
        lines = (f"{key}={value}\n" for key, value in settings.items())
        self._settings_file.write_text("".join(lines))
        if not (self._data / "meta.properties").exists():
            self._format()

    def _run(self, main_class: str, arguments: list[str]) -> list[str]:
        java, *words = super()._run(main_class, arguments)
        at = words.index("-cp")  # of two options that differ Java takes the later one
        return [java, *words[:at], *self._given["KAFKA_HEAP_OPTS"].split(), *words[at:]]


class ComposePostgres(PostgresPart):
    """PostgreSQL with the service's user, password and database."""

    def create_database(self, environment: Mapping[str, str]) -> None:
        """Creates user and database, as the image does at its first start."""
        asyncio.run(self._create_database(environment))

    async def _create_database(self, environment: Mapping[str, str]) -> None:
        user, database = environment["POSTGRES_USER"], environment["POSTGRES_DB"]
        password = environment["POSTGRES_PASSWORD"]
        assert (user + password + database).replace("-", "").isalnum()
        connection = await asyncpg.connect(self.dsn, timeout=10)
        try:
            verb = "ALTER" if user == OWNER else "CREATE"
            await connection.execute(
                f"{verb} ROLE \"{user}\" SUPERUSER LOGIN PASSWORD '{password}'"
            )
            await connection.execute(f'CREATE DATABASE "{database}" OWNER "{user}"')
        finally:
            await connection.close(timeout=5)

    def program(self, name: str) -> str:
        """Returns the path of one of PostgreSQL's programs."""
        return str(self._bin_folder / name)


class ComposeS3(S3Part):
    """SeaweedFS with the service's key pair, and without a bucket for the balancer."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        """Takes the directory and the service's environment."""
        super().__init__(directory)
        self._buckets = (PROBE_BUCKET,)
        self._given = environment

    def _prepare(self) -> None:
        pair = {
            "accessKey": self._given["MINIO_ROOT_USER"],
            "secretKey": self._given["MINIO_ROOT_PASSWORD"],
        }
        identity = {
            "name": "root",
            "credentials": [pair],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
        self._config_file.touch(mode=0o600)
        self._config_file.write_text(json.dumps({"identities": [identity]}))
        super()._prepare()


def make_bucket(arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
    """Does what ``mc mb --ignore-existing ALIAS/BUCKET`` does; no package has ``mc``."""
    program, verb, option, target = arguments
    assert (program, verb, option) == ("mc", "mb", "--ignore-existing")
    alias, _, bucket = target.partition("/")
    url = urlsplit(environment[f"MC_HOST_{alias}"])
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=urlunsplit((url.scheme, f"{url.hostname}:{url.port}", "", "", "")),
        aws_access_key_id=url.username,
        aws_secret_access_key=url.password,
        region_name=REGION,
        config=Config(connect_timeout=5, read_timeout=30, s3={"addressing_style": "path"}),
    )
    if bucket not in {found["Name"] for found in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=bucket)


def terminate(part: ServerPart) -> int:
    """Ends a server by SIGTERM; returns its exit code, negative where the signal ended it."""
    process = part._process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    return process.wait(STOP_SECONDS)


__all__ = [
    "LOOPBACK",
    "ComposeKafka",
    "ComposePostgres",
    "ComposeS3",
    "kafka_settings",
    "make_bucket",
    "terminate",
]
