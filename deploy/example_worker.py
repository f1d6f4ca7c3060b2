"""A worker as a user would write it: takes a permit, sends a unit of work, and again.

Run as ``python example_worker.py DESTINATION URL KAFKA DISTRIBUTION UNITS_A_MINUTE``. Its host name
is ``PERMIT_HOST``. A unit for which no permit came in time waits its turn: nothing is dropped.
"""

import sys
import time
import urllib.error
import urllib.request

from worker_sdk import PermitClient, PermitTimeout

DELIVERY_SECONDS = 5.0
ACQUIRE_SECONDS = 2.0


def deliver(url: str) -> bool:
    """Sends one unit of work; says whether the destination took it."""
    request = urllib.request.Request(f"{url}/work", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=DELIVERY_SECONDS):
            return True
    except (urllib.error.URLError, TimeoutError):
        return False


def main(destination: str, url: str, kafka: str, distribution: str, units_a_minute: str) -> None:
    """Works until it is stopped, at most so many units a minute."""
    pause_seconds = 60 / int(units_a_minute)
    sent = failed = 0
    client = PermitClient(destinations=[destination], kafka=kafka, distribution=distribution)
    with client:
        target = client.destination(destination)
        due = told = time.monotonic()
        while True:
            try:
                target.acquire(timeout=ACQUIRE_SECONDS)
            except PermitTimeout:
                pass
            else:
                ok = deliver(url)
                sent, failed, due = sent + ok, failed + (not ok), due + pause_seconds
            now = time.monotonic()
            if now >= told + 10:
                told = now
                print(f"delivered {sent}, failed {failed}, {target.state}", flush=True)
            time.sleep(max(0.0, due - now))


if __name__ == "__main__":
    main(*sys.argv[1:])
