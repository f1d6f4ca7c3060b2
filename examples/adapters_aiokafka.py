"""A worker that reads orders from Kafka and delivers each with a permit.

Run it with the settings in the environment, as blocking_worker.py, and with the topic ORDERS_TOPIC:

    ORDERS_TOPIC=orders python examples/adapters_aiokafka.py

While there is no permit its partitions are paused; the group keeps it as a member.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import aclosing

from aiokafka import AIOKafkaConsumer

from worker_sdk import ConfigurationError, PermitClient
from worker_sdk.adapters.aiokafka import permitted


async def main() -> None:
    """Deliver until interrupted."""
    async with PermitClient.from_env() as client:
        orders = client.destination("orders-db")
        consumer = AIOKafkaConsumer(
            os.environ.get("ORDERS_TOPIC", "orders"),
            bootstrap_servers=os.environ["PERMIT_KAFKA_BOOTSTRAP_SERVERS"],
            group_id="orders-aiokafka",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        async with consumer, aclosing(permitted(consumer, orders)) as records:
            async for record in records:
                await asyncio.sleep(0.01)  # stands for a call of the destination
                print("delivered", record.offset)
                await consumer.commit()


if __name__ == "__main__":
    logging.basicConfig()
    try:
        asyncio.run(main())
    except ConfigurationError as fault:
        sys.exit(str(fault))
    except KeyboardInterrupt:
        print("bye")
