"""A worker as a user would write it: takes a permit, sends a unit of work, and again.

Run as ``python example_worker.py URL UNITS_A_MINUTE``; the permits' settings are in the
environment (``PERMIT_DESTINATIONS`` and others, see `PermitClient.from_env`). A unit for which no
permit came in time waits its turn: nothing is dropped. SIGTERM ends it in order, so that its share
is free at once.
"""

import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

from worker_sdk import PermitClient, PermitTimeout

DELIVERY_SECONDS = 5.0
ACQUIRE_SECONDS = 2.0
TELL_SECONDS = 10.0


def deliver(url: str) -> bool:
    """Sends one unit of work; says whether the destination took it."""
    request = urllib.request.Request(f"{url}/work", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=DELIVERY_SECONDS):
            return True
    except (urllib.error.URLError, TimeoutError):
        return False


def main(url: str, units_a_minute: str) -> None:
    """Works until SIGTERM, at most so many units a minute."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    destination = os.environ["PERMIT_DESTINATIONS"]
    pause_seconds = 60 / int(units_a_minute)
    sent = failed = 0
    with PermitClient.from_env() as client:
        target = client.destination(destination)
        due = time.monotonic()
        tell = 0.0
        while not stopped.is_set():
            try:
                target.acquire(timeout=ACQUIRE_SECONDS)
            except PermitTimeout:
                pass
            else:
                ok = deliver(url)
                sent, failed, due = sent + ok, failed + (not ok), due + pause_seconds
            now = time.monotonic()
            if now >= tell:
                tell = now + TELL_SECONDS
                state = target.state
                told = f"{state.mode.value}, {state.share_percent:.1f} % of the capacity"
                print(f"delivered {sent}, failed {failed}; {told}", flush=True)
            stopped.wait(max(0.0, due - now))
    print(f"stopped: delivered {sent}, failed {failed}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
