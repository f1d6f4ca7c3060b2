"""A pool of threads whose every task takes a permit; runs without any server.

Run it: python examples/adapters_threads.py

A real worker has ``PermitClient.from_env()`` in place of the balancer in memory.
"""

from __future__ import annotations

from worker_sdk.adapters.threads import PermitThreadPool
from worker_sdk.testing import InMemoryBalancer, ManualClock, wait_until_ready


def deliver(number: int) -> str:
    """Stand for a call of the destination."""
    return f"order {number}"


def main() -> None:
    """Deliver five orders with three permits."""
    with InMemoryBalancer({"orders-db": 3}).client(clock=ManualClock()) as client:
        wait_until_ready(client)
        orders = client.destination("orders-db")
        with PermitThreadPool(orders, max_workers=4, timeout=0.1) as pool:
            futures = [pool.submit(deliver, number) for number in range(5)]
        print("delivered:", sum(future.exception() is None for future in futures))
        print("no permit:", sum(future.exception() is not None for future in futures))


if __name__ == "__main__":
    main()
