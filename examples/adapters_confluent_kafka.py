"""A worker that reads orders with confluent-kafka and delivers each with a permit.

Run it with the settings in the environment, as blocking_worker.py, and with the topic ORDERS_TOPIC:

    ORDERS_TOPIC=orders python examples/adapters_confluent_kafka.py

While there is no permit its partitions are paused; the group keeps it as a member.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import closing

from confluent_kafka import Consumer

from worker_sdk import ConfigurationError, PermitClient
from worker_sdk.adapters.confluent_kafka import permitted


def main() -> None:
    """Deliver until interrupted."""
    with PermitClient.from_env() as client:
        orders = client.destination("orders-db")
        consumer = Consumer(
            {
                "bootstrap.servers": os.environ["PERMIT_KAFKA_BOOTSTRAP_SERVERS"],
                "group.id": "orders-confluent-kafka",
                "auto.offset.reset": "earliest",
                "enable.auto.offset.store": False,  # permitted() stores what was delivered
            }
        )
        consumer.subscribe([os.environ.get("ORDERS_TOPIC", "orders")])
        with closing(consumer), closing(permitted(consumer, orders)) as records:
            for record in records:
                time.sleep(0.01)  # stands for a call of the destination
                print("delivered", record.offset())


if __name__ == "__main__":
    logging.basicConfig()
    try:
        main()
    except ConfigurationError as fault:
        sys.exit(str(fault))
    except KeyboardInterrupt:
        print("bye")
