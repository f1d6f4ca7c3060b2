"""One worker of the demonstration: takes permits from the SDK as any user would, and delivers.

Decides how work is done (one blocking thread, a pool of threads, or asyncio tasks). Knows nothing
of the other workers and nothing of how shares come about. It writes one JSON line twice a second.
Run as ``python -m balancer.demo.worker PLAN``, PLAN being a `WorkerPlan` in JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from balancer.demo.demand import Backlog, Style
from worker_sdk import PermitClient, PermitTimeout
from worker_sdk.handle import DestinationHandle

POOL_THREADS: Final = 4
TASKS: Final = 16
IDLE_SECONDS: Final = 0.02
ACQUIRE_SECONDS: Final = 0.5
DELIVERY_SECONDS: Final = 5.0
REPORT_SECONDS: Final = 0.5
CLOSE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What a worker process is told; ``demand`` is by window from ``first_window`` on."""

    host: str
    style: str
    destination: str
    destination_url: str
    kafka: str
    distribution: str
    s3_endpoint_url: str
    window_seconds: int
    first_window: int
    demand: tuple[int, ...]
    keeps_backlog: bool

    def to_json(self) -> str:
        """Return the plan as the program's argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerPlan:
        """Return the plan in ``text``."""
        value = json.loads(text)
        value["demand"] = tuple(value["demand"])
        return cls(**value)


class Work:
    """The worker's queue and its account of what became of it; safe for threads."""

    def __init__(self, plan: WorkerPlan) -> None:
        self._lock = threading.Lock()
        self._plan = plan
        window_ms = plan.window_seconds * 1000
        self._backlog = Backlog(plan.demand, plan.first_window, window_ms, keeps=plan.keeps_backlog)
        self._backlog.start_now(_now_ms())
        self._started = time.monotonic()
        self.stopping = threading.Event()
        self.delivered: Counter[int] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.first_permit_seconds: float | None = None
        self._first_wanted: float | None = None

    def take(self) -> int | None:
        """Take a piece of work, None where there is none now."""
        with self._lock:
            window = self._backlog.take(_now_ms())
            if window is not None and self._first_wanted is None:
                self._first_wanted = time.monotonic()
            return window

    def put_back(self, window: int) -> None:
        """Give back a piece for which no permit was to be had."""
        with self._lock:
            self._backlog.put_back(window)

    def permitted(self) -> None:
        """Note that a permit was granted."""
        if self.first_permit_seconds is None:
            # From the start, or from the first work where that came later.
            since = max(self._started, self._first_wanted or self._started)
            self.first_permit_seconds = round(time.monotonic() - since, 3)

    def done(self, status: int | None) -> None:
        """Note what the destination answered; None for no answer."""
        outcome = {204: "delivered", 429: "refused", None: "failed"}.get(status, "failed")
        with self._lock:
            self.outcomes[outcome] += 1
            if outcome == "delivered":
                self.delivered[int(time.time() // self._plan.window_seconds)] += 1

    def account(self) -> dict[str, object]:
        """Return the counts so far."""
        with self._lock:
            return {
                "waiting": self._backlog.waiting(_now_ms()),
                "delivered": {str(window): count for window, count in self.delivered.items()},
                "outcomes": dict(self.outcomes),
                "first_permit_seconds": self.first_permit_seconds,
            }


def _now_ms() -> int:
    return int(time.time() * 1000)


def work_blocking(work: Work, permits: DestinationHandle, url: str) -> None:
    """Do work one piece at a time, as a single-threaded program would."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(
        str(address.hostname), address.port, timeout=DELIVERY_SECONDS
    )
    while not work.stopping.is_set():
        window = work.take()
        if window is None:
            work.stopping.wait(IDLE_SECONDS)
            continue
        try:
            with permits.permit(timeout=ACQUIRE_SECONDS):
                work.permitted()
                work.done(_post(connection))
        except PermitTimeout:
            work.put_back(window)
    connection.close()


def _post(connection: http.client.HTTPConnection) -> int | None:
    try:
        connection.request("POST", "/work", body=b"")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return None
    return answer.status


def work_in_threads(work: Work, permits: DestinationHandle, url: str) -> None:
    """Do work in a pool of blocking threads."""
    threads = [
        threading.Thread(target=work_blocking, args=(work, permits, url), daemon=True)
        for _ in range(POOL_THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def work_in_tasks(work: Work, permits: DestinationHandle, url: str) -> None:
    """Do work in asyncio tasks."""
    timeout = aiohttp.ClientTimeout(total=DELIVERY_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:

        async def consume() -> None:
            while not work.stopping.is_set():
                window = work.take()
                if window is None:
                    await asyncio.sleep(IDLE_SECONDS)
                    continue
                try:
                    async with permits.permit(timeout=ACQUIRE_SECONDS):
                        work.permitted()
                        work.done(await _post_async(session, f"{url}/work"))
                except PermitTimeout:
                    work.put_back(window)

        await asyncio.gather(*(consume() for _ in range(TASKS)))


async def _post_async(session: aiohttp.ClientSession, url: str) -> int | None:
    try:
        async with session.post(url, data=b"") as answer:
            await answer.read()
            return answer.status
    except (aiohttp.ClientError, TimeoutError):
        return None


def report(work: Work, permits: DestinationHandle, host: str) -> None:
    """Write the account and the SDK's state as one line of JSON."""
    state = permits.state
    line = {
        "host": host,
        "instance": state.instance,
        "mode": state.mode,
        "share_points": state.share_points,
        "denied": state.denied,
        **work.account(),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def run(plan: WorkerPlan) -> None:
    """Run the worker until SIGTERM or SIGINT."""
    work = Work(plan)

    def stop(_number: int, _frame: FrameType | None) -> None:
        work.stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    client = PermitClient(
        destinations=[plan.destination],
        kafka=plan.kafka,
        distribution=plan.distribution,
        host=plan.host,
        flush_seconds=plan.window_seconds,
        s3_endpoint_url=plan.s3_endpoint_url,
    )
    client.start()
    permits = client.destination(plan.destination)

    def report_on() -> None:
        while not work.stopping.wait(REPORT_SECONDS):
            report(work, permits, plan.host)

    reporter = threading.Thread(target=report_on, daemon=True)
    reporter.start()
    with contextlib.suppress(KeyboardInterrupt):
        if plan.style == Style.ASYNCIO:
            asyncio.run(work_in_tasks(work, permits, plan.destination_url))
        elif plan.style == Style.THREADS:
            work_in_threads(work, permits, plan.destination_url)
        else:
            work_blocking(work, permits, plan.destination_url)
    client.close(timeout=CLOSE_SECONDS)
    reporter.join(timeout=REPORT_SECONDS)
    report(work, permits, plan.host)


if __name__ == "__main__":
    run(WorkerPlan.from_json(sys.argv[1]))
