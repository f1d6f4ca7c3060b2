"""Whether the service can do its work: which dependency answers, and takes what is written.

Decides what "ready" means: every dependency answered when last asked, what was written to it was
taken, every shard was looked at once, and nobody told the process to stop. Asks through the
functions given; knows no driver.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from balancer.app import catalogue
from balancer.app.cancellation import is_cancelled
from balancer.app.view import DistributionView
from balancer.errors import BalancerError, ConflictError, RefusedError, UnavailableError
from balancer.ports import Clock, Metrics

CHECK_SECONDS: Final = 15.0
NOT_ASKED: Final = "not asked yet"
STOPPING: Final = "this process is being stopped"
NOT_SERVED: Final = "this balancer answers no worker: PERMIT_HTTP_DISTRIBUTION is false"
DETAIL_MAX: Final = 500

WRITE_FAULT_MS: Final = 15_000
"""A write that failed is tried again within this time by whoever still has it to do."""

_log = logging.getLogger("balancer.readiness")

Check = Callable[[], Awaitable[None]]
Fact = Callable[[], str | None]


class Writes:
    """What came of the writes to one dependency, which may answer and yet take none.

    A server whose disk is full, that became a standby or lacks a right answers every question. Only
    what is really to be written shows it, and is noted here.

    Args:
        dependency: its name among the checks.
        name: as its errors begin and as it is told.
        clock: for the age of what was noted.
        metrics: told how long each write took.
    """

    def __init__(self, dependency: str, name: str, clock: Clock, metrics: Metrics) -> None:
        self._dependency = dependency
        self._name = name
        self._clock = clock
        self._metrics = metrics
        self._faults: dict[str, tuple[int, str]] = {}
        self._under_way: Counter[str] = Counter()
        self._answers_since_ms: int | None = None

    @contextmanager
    def noted(self, kind: str) -> Iterator[None]:
        """Note what comes of a write; the next one of its kind takes the note's place.

        A failure that nobody tries again is no sign for long: who leads no more records nothing.
        """
        self._under_way[kind] += 1
        started_ms = self._clock.monotonic_ms()
        try:
            yield
        except (RefusedError, ConflictError):  # it answered: what was to be written is at fault
            self._faults.pop(kind, None)
            raise
        except BalancerError as error:
            self._faults[kind] = (self._clock.monotonic_ms(), str(error))
            raise
        else:
            self._faults.pop(kind, None)
        finally:
            self._under_way[kind] -= 1
            took_seconds = (self._clock.monotonic_ms() - started_ms) / 1000
            _observe(self._metrics, took_seconds, self._dependency, kind)

    async def check(self, answers: Check) -> None:
        """Check that it answers, and takes what is written.

        What failed before it answered is no sign: it may not have been tried again yet.

        Raises:
            UnavailableError: in one line, what could not be written and why.
            BalancerError: as ``answers`` does.
        """
        since_ms, self._answers_since_ms = self._answers_since_ms, None
        await answers()
        now_ms = self._clock.monotonic_ms()
        self._answers_since_ms = now_ms if since_ms is None else since_ms
        signs = [
            (at_ms, words)
            for kind, (at_ms, words) in self._faults.items()
            if at_ms >= self._answers_since_ms
            and (self._under_way[kind] or now_ms - at_ms < WRITE_FAULT_MS)
        ]
        if signs:
            _, words = max(signs)
            told = " ".join(words.removeprefix(f"{self._name} ").split())
            raise UnavailableError(f"{self._name} answers but refuses to write: {told}")


def _observe(metrics: Metrics, took_seconds: float, dependency: str, call: str) -> None:
    labels = {"dependency": dependency, "call": call}
    metrics.observe(catalogue.DEPENDENCY_SECONDS, took_seconds, labels)


class Readiness:
    """What is known of each dependency.

    Args:
        checks: dependency to a call that raises a `BalancerError` where it is away.
        view: what is served.
        metrics: told which dependency answers.
        facts: whatever else must be so, to a call that says what is wrong, None for nothing.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        view: DistributionView,
        metrics: Metrics,
        facts: Mapping[str, Fact] | None = None,
    ) -> None:
        self._checks = dict(checks)
        self._facts = dict(facts or {})
        self._view = view
        self._metrics = metrics
        self._faults: dict[str, str | None] = dict.fromkeys(checks, NOT_ASKED)
        self._stop: asyncio.Event | None = None

    def end_with(self, stop: asyncio.Event) -> None:
        """Let the process be not ready once it is told to stop, whatever it still answers."""
        self._stop = stop

    async def look(self) -> None:
        """Ask every dependency, all at once."""
        await asyncio.gather(*(self.look_at(name) for name in self._checks))

    async def look_at(self, name: str) -> str | None:
        """Ask one dependency; return what is wrong with it, None for nothing.

        Raises:
            BalancerError: where it answered and refuses, so that waiting is in vain.
        """
        fault: str | None = None
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._checks[name]()
        except TimeoutError:
            fault = f"no answer within {CHECK_SECONDS:.0f} s"
        except UnavailableError as error:
            fault = str(error)[:DETAIL_MAX]
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            fault = "its client gave up"  # without a word, by the end of a task of its own
        except BalancerError as error:
            self._note(name, str(error)[:DETAIL_MAX])
            raise
        finally:
            _observe(self._metrics, loop.time() - started, name, "check")
        self._note(name, fault)
        return fault

    def _note(self, name: str, fault: str | None) -> None:
        before = self._faults[name]
        self._faults[name] = fault
        self._metrics.gauge(catalogue.DEPENDENCY_UP, float(fault is None), {"dependency": name})
        if fault is None and before not in (None, NOT_ASKED):
            _log.info("%s answers again", name, extra={"action": "ready"})
        elif fault is not None and before is None:
            _log.warning("%s is not ready: %s", name, fault, extra={"action": "not_ready"})

    async def keep_looking(self, every_seconds: float) -> None:
        """Ask every dependency for ever, with pauses."""
        while True:
            for outcome in await asyncio.gather(
                *(self.look_at(name) for name in self._checks), return_exceptions=True
            ):
                if isinstance(outcome, BaseException) and not isinstance(outcome, BalancerError):
                    _log.error("a check failed: %r", outcome, extra={"action": "check_crashed"})
            await asyncio.sleep(every_seconds)

    def _all(self) -> dict[str, str | None]:
        facts = {name: fact() for name, fact in self._facts.items()}
        return {**self._faults, **facts, "distribution": self._served()}

    def _served(self) -> str | None:
        if self._stop is not None and self._stop.is_set():
            return STOPPING
        if not self._view.follows:
            return NOT_SERVED
        return None if self._view.is_complete else "not all shards were read yet"

    @property
    def is_ready(self) -> bool:
        """Whether nothing is wrong; that no worker is to ask here is as it should be."""
        return all(fault in (None, NOT_SERVED) for fault in self._all().values())

    def fault_of(self, name: str) -> str | None:
        """Return what is wrong with one of them, None for nothing.

        Raises:
            KeyError: there is none of this name.
        """
        return self._all()[name]

    def report(self) -> dict[str, object]:
        """Return ``{"ready","dependencies":{name:{"ready","detail"?},…}}``."""
        rows: dict[str, object] = {
            name: {"ready": True} if fault is None else {"ready": False, "detail": fault}
            for name, fault in sorted(self._all().items())
        }
        return {"ready": self.is_ready, "dependencies": rows}
