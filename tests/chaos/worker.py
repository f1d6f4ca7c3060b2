"""A worker that spends every permit it gets and writes each down before the next, a line each.

``python -m tests.chaos.worker HOST FILE``; where everything is comes from the environment. A line
is the Unix instant in milliseconds, written without a buffer, so that a killed worker loses none.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from worker_sdk import PermitClient

IDLE_SECONDS = 0.01


def main() -> None:
    """Run until SIGTERM."""
    host, file = sys.argv[1:]
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    destination = os.environ["CHAOS_DESTINATION"]
    client = PermitClient(
        destinations=[destination],
        kafka=os.environ["PERMIT_KAFKA_BOOTSTRAP_SERVERS"],
        distribution=os.environ["CHAOS_DISTRIBUTION"],
        host=host,
        flush_seconds=float(os.environ["PERMIT_ROUND_SECONDS"]),
        s3_endpoint_url=os.environ["PERMIT_S3_ENDPOINT_URL"],
    )
    with client, open(file, "ab", buffering=0) as spent:  # noqa: PTH123
        permits = client.destination(destination)
        while not over.is_set():
            at_ms = time.time_ns() // 1_000_000
            if permits.try_acquire():
                spent.write(b"%d\n" % at_ms)
            else:
                over.wait(IDLE_SECONDS)


if __name__ == "__main__":
    main()
