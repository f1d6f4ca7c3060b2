"""How a program that uses the SDK is tested without any server, on a clock set by hand.

Run it: python examples/without_servers.py
"""

from __future__ import annotations

import time

from worker_sdk import DestinationHandle
from worker_sdk.testing import InMemoryBalancer, ManualClock


def send_all(orders: DestinationHandle, pieces: int) -> int:
    """Send as many of the pieces as there are permits for: the program under test."""
    return sum(orders.try_acquire() for _ in range(pieces))


def main() -> None:
    """Show two windows of a share of a third."""
    clock = ManualClock()
    balancer = InMemoryBalancer({"orders-db": 30}, members=3)
    with balancer.client(clock=clock) as client:
        orders = client.destination("orders-db")
        while orders.state.mode == "starting":
            time.sleep(0.01)
        print("first window:", send_all(orders, 25), "of 25")
        clock.advance(60)
        print("second window:", send_all(orders, 25), "of 25")
    print("reported:", sum(entry.used for entry in balancer.batches[-1].tuples))


if __name__ == "__main__":
    main()
