"""A FastStream application whose handler takes a permit a message.

Run it with the settings in the environment, as blocking_worker.py, and with the topic ORDERS_TOPIC:

    ORDERS_TOPIC=orders python examples/adapters_faststream.py

While there is no permit its partitions are paused; the group keeps it as a member.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker

from worker_sdk import ConfigurationError, PermitClient
from worker_sdk.adapters.faststream import permit_middleware


async def main() -> None:
    """Deliver until interrupted."""
    async with PermitClient.from_env() as client:
        orders = client.destination("orders-db")
        broker = KafkaBroker(
            os.environ["PERMIT_KAFKA_BOOTSTRAP_SERVERS"], middlewares=[permit_middleware(orders)]
        )

        @broker.subscriber(
            os.environ.get("ORDERS_TOPIC", "orders"),
            group_id="orders-faststream",
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.NACK_ON_ERROR,  # what still waits at the end comes again
        )
        async def deliver(order: int) -> None:
            await asyncio.sleep(0.01)  # stands for a call of the destination
            print("delivered", order)

        await FastStream(broker).run()


if __name__ == "__main__":
    logging.basicConfig()
    try:
        asyncio.run(main())
    except ConfigurationError as fault:
        sys.exit(str(fault))
