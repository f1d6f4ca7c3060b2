"""A worker with one thread that sends work one piece at a time.

Run it with the settings in the environment:

    PERMIT_DESTINATIONS=orders-db PERMIT_KAFKA_BOOTSTRAP_SERVERS=localhost:9092 \
    PERMIT_DISTRIBUTION=http://localhost:8080 python examples/blocking_worker.py
"""

from __future__ import annotations

import logging
import sys
import time

from worker_sdk import ConfigurationError, PermitClient, PermitTimeout


def deliver(number: int) -> None:
    """Stand for a call of the destination."""
    time.sleep(0.01)
    print("delivered", number)


def main() -> None:
    """Deliver until interrupted."""
    with PermitClient.from_env() as client:
        orders = client.destination("orders-db")
        number = 0
        while True:
            try:
                with orders.permit(timeout=5.0):
                    deliver(number)
            except PermitTimeout as late:
                print(f"{late} (mode: {orders.state.mode})")
                continue
            number += 1


if __name__ == "__main__":
    logging.basicConfig()  # so that it is seen when Kafka or the balancer does not answer
    try:
        main()
    except ConfigurationError as fault:
        sys.exit(str(fault))
    except KeyboardInterrupt:
        print("bye")
