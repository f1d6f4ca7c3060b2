"""Whether a broker answers.

Decides nothing; for readiness and the wait at start.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from balancer.adapters.kafka.config import KafkaConfig
from balancer.errors import SettingsError, UnavailableError

PROBE_SECONDS: Final = 8


async def list_topics(config: KafkaConfig) -> set[str]:
    """Return the topics that a broker knows.

    Raises:
        UnavailableError: where none answers in time.
        SettingsError: where the client refuses the settings.
    """
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            admin = AIOKafkaAdminClient(**config.client_options())
            try:
                await admin.start()
                return set(await admin.list_topics())
            finally:
                await admin.close()
    except (KafkaError, OSError, TimeoutError) as error:
        silence = f"no answer within {PROBE_SECONDS} s ({type(error).__name__})"
        told = str(error) or silence
        raise UnavailableError(f"Kafka at {config.bootstrap_servers}: {told}") from error
    except (ValueError, AssertionError) as error:
        raise SettingsError(
            "PERMIT_KAFKA_BOOTSTRAP_SERVERS: the client refuses it or another PERMIT_KAFKA_ "
            f"setting ({error}); for example PERMIT_KAFKA_BOOTSTRAP_SERVERS=localhost:9092"
        ) from error
