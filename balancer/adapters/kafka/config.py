"""How to reach Kafka: what every client of it is given.

Decides nothing; security settings pass through to the client unchanged.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any

from worker_sdk.wire.usage import REJECTED_TOPIC, USAGE_TOPIC


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Address, names and bounds. ``sasl_password`` never shows."""

    bootstrap_servers: str
    group_id: str = "permit-balancer"
    usage_topic: str = USAGE_TOPIC
    rejected_topic: str = REJECTED_TOPIC
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    request_timeout_ms: int = 10_000
    session_timeout_ms: int = 10_000

    def client_options(self) -> dict[str, Any]:
        """Return the options that consumers, producers and admin clients share."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "request_timeout_ms": self.request_timeout_ms,
            "security_protocol": self.security_protocol,
        }
        if "SSL" in self.security_protocol:
            options["ssl_context"] = ssl.create_default_context(cafile=self.ssl_cafile)
        if self.security_protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.sasl_mechanism
            options["sasl_plain_username"] = self.sasl_username
            options["sasl_plain_password"] = self.sasl_password
        return options
