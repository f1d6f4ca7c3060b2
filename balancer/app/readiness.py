"""Whether the service can do its work: which dependency answers.

Decides what "ready" means: every dependency answered when last asked, and every shard was looked at
once. Asks through the functions given; knows no driver.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from balancer.app import catalogue
from balancer.app.cancellation import is_cancelled
from balancer.app.view import DistributionView
from balancer.errors import BalancerError, UnavailableError
from balancer.ports import Metrics

CHECK_SECONDS: Final = 15.0
NOT_ASKED: Final = "not asked yet"
DETAIL_MAX: Final = 500

_log = logging.getLogger("balancer.readiness")

Check = Callable[[], Awaitable[None]]
Fact = Callable[[], str | None]


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

    async def look(self) -> None:
        """Ask every dependency, all at once."""
        await asyncio.gather(*(self.look_at(name) for name in self._checks))

    async def look_at(self, name: str) -> str | None:
        """Ask one dependency; return what is wrong with it, None for nothing.

        Raises:
            BalancerError: where it answered and refuses, so that waiting is in vain.
        """
        fault: str | None = None
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
        served = None if self._view.is_complete else "not all shards were read yet"
        facts = {name: fact() for name, fact in self._facts.items()}
        return {**self._faults, **facts, "distribution": served}

    @property
    def is_ready(self) -> bool:
        """Whether nothing is wrong."""
        return all(fault is None for fault in self._all().values())

    def report(self) -> dict[str, object]:
        """Return ``{"ready","dependencies":{name:{"ready","detail"?},…}}``."""
        rows: dict[str, object] = {
            name: {"ready": True} if fault is None else {"ready": False, "detail": fault}
            for name, fault in sorted(self._all().items())
        }
        return {"ready": self.is_ready, "dependencies": rows}
