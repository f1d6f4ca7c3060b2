"""A celery app whose task takes a permit before it runs; runs in one process, without any server.

Run it: python examples/adapters_celery.py

A real app has a broker, and ``PermitClient.from_env()`` in place of the balancer in memory; it is
started with ``celery -A ... worker``, and each process of the pool is a member of its own.
"""

from __future__ import annotations

import queue

from celery import Celery
from celery.contrib.testing.worker import start_worker

from worker_sdk.adapters.celery import permit_task
from worker_sdk.testing import InMemoryBalancer

app = Celery("orders", broker="memory://")
client = InMemoryBalancer({"orders-db": 100}).client()  # the workers start it
delivered: queue.Queue[int] = queue.Queue()


@app.task(base=permit_task(client, "orders-db"))  # type: ignore[untyped-decorator]  # no types
def deliver(number: int) -> None:
    """Stand for a call of the destination."""
    delivered.put(number)


def main() -> None:
    """Deliver three orders in a worker."""
    with start_worker(app, perform_ping_check=False, pool="solo"):
        for number in range(3):
            deliver.delay(number)
        print("delivered:", [delivered.get(timeout=30) for _ in range(3)])
    print("permits used:", client.destination("orders-db").state.used)


if __name__ == "__main__":
    main()
