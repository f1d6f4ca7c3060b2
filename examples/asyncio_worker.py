"""A worker with many asyncio tasks that share one client.

Run it with the settings in the environment, as blocking_worker.py.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from worker_sdk import ConfigurationError, DestinationHandle, PermitClient, PermitTimeout

TASKS = 8


async def deliver_forever(number: int, orders: DestinationHandle) -> None:
    """Deliver one piece after the other, each with a permit."""
    while True:
        try:
            async with orders.permit(timeout=5.0):
                await asyncio.sleep(0.01)  # stands for a call of the destination
        except PermitTimeout as late:
            print(f"task {number}: {late} (mode: {orders.state.mode})")


async def main() -> None:
    """Run the tasks until interrupted."""
    async with PermitClient.from_env() as client, asyncio.TaskGroup() as group:
        orders = client.destination("orders-db")
        for number in range(TASKS):
            group.create_task(deliver_forever(number, orders))


if __name__ == "__main__":
    logging.basicConfig()  # so that it is seen when Kafka or the balancer does not answer
    try:
        asyncio.run(main())
    except ConfigurationError as fault:
        sys.exit(str(fault))
    except KeyboardInterrupt:
        print("bye")
