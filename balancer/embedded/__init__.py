"""The local stack: Kafka, PostgreSQL and S3 as real servers from installed packages.

For the demo, for trying the balancer out and for its tests: no Docker, no root, nothing to set up.
"""

from balancer.embedded.errors import EmbeddedError, MissingProgramError
from balancer.embedded.kafka import KafkaPart, KafkaServer
from balancer.embedded.part import ServerPart
from balancer.embedded.postgres import PostgresPart
from balancer.embedded.s3 import S3Part
from balancer.embedded.stack import EmbeddedStack

__all__ = [
    "EmbeddedError",
    "EmbeddedStack",
    "KafkaPart",
    "KafkaServer",
    "MissingProgramError",
    "PostgresPart",
    "S3Part",
    "ServerPart",
]
