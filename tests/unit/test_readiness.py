"""What readiness tells of a dependency that answers and takes no writes."""

from __future__ import annotations

import asyncio

import pytest

from balancer.app import catalogue
from balancer.app.readiness import STOPPING, WRITE_FAULT_MS, Readiness, Writes
from balancer.app.view import DistributionView
from balancer.errors import BalancerError, ConflictError, RefusedError, UnavailableError
from tests.support.service_doubles import CountingMetrics, ManualClock

READ_ONLY = UnavailableError("PostgreSQL could not store reports: read-only\ntransaction")
TOLD = "PostgreSQL answers but refuses to write: could not store reports: read-only transaction"


class Database:
    """A dependency that answers, until it has a fault."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = CountingMetrics()
        self.writes = Writes("postgres", "PostgreSQL", self.clock, self.metrics)
        self.fault: BalancerError | None = None
        checks = {"postgres": lambda: self.writes.check(self._answers)}
        self.readiness = Readiness(checks, DistributionView(1), self.metrics)

    async def _answers(self) -> None:
        if self.fault is not None:
            raise self.fault

    async def look(self) -> str | None:
        self.clock.ms += 1_000
        return await self.readiness.look_at("postgres")

    def write(self, error: BalancerError | None = None, kind: str = "reports") -> None:
        self.clock.ms += 1
        try:
            with self.writes.noted(kind):
                if error is not None:
                    raise error
        except BalancerError as raised:
            assert raised is error  # noqa: PT017 - it goes on to whoever wrote


@pytest.fixture
async def database() -> Database:
    found = Database()
    assert await found.look() is None
    return found


async def test_a_write_that_failed_makes_it_not_ready_in_one_line_until_one_is_taken(
    database: Database,
) -> None:
    database.write(READ_ONLY)
    assert await database.look() == TOLD
    assert database.readiness.fault_of("postgres") == TOLD
    assert database.metrics.gauges[catalogue.DEPENDENCY_UP, "postgres"] == 0
    database.write(kind="readers")
    assert await database.look() == TOLD  # what fits into a table's room is no sign for the rest
    database.write()
    assert await database.look() is None
    assert database.metrics.gauges[catalogue.DEPENDENCY_UP, "postgres"] == 1


async def test_a_write_that_failed_while_nothing_answered_is_no_sign_once_it_answers(
    database: Database,
) -> None:
    database.write(READ_ONLY)
    database.fault = UnavailableError("PostgreSQL could not tell its schema: connection refused")
    assert await database.look() == str(database.fault)
    database.fault = None
    assert await database.look() is None
    database.write(READ_ONLY)
    assert await database.look() == TOLD


@pytest.mark.parametrize("error", [RefusedError("a value"), ConflictError("somebody else")])
async def test_a_value_that_is_refused_is_no_fault_of_the_dependency(
    database: Database, error: BalancerError
) -> None:
    database.write(READ_ONLY)
    database.write(error)
    assert await database.look() is None


async def test_a_write_that_nobody_tries_again_is_forgotten(database: Database) -> None:
    database.write(READ_ONLY)
    assert await database.look() == TOLD
    database.clock.ms += WRITE_FAULT_MS
    with database.writes.noted("reports"):  # somebody does
        assert await database.look() == TOLD
    assert await database.look() is None
    database.write(READ_ONLY)
    database.clock.ms += WRITE_FAULT_MS
    assert await database.look() is None


async def test_each_call_is_measured_whatever_comes_of_it(database: Database) -> None:
    database.write()
    database.write(READ_ONLY)
    await database.look()
    counts, name = database.metrics.counts, catalogue.DEPENDENCY_SECONDS
    assert (counts[name, "postgres", "reports"], counts[name, "postgres", "check"]) == (2, 2)


async def test_who_is_told_to_stop_is_not_ready_for_workers_from_then_on() -> None:
    view, stop = DistributionView(1), asyncio.Event()
    view.publish(0, [])
    readiness = Readiness({}, view, CountingMetrics())
    readiness.end_with(stop)
    assert readiness.is_ready
    stop.set()
    assert (readiness.is_ready, readiness.fault_of("distribution")) == (False, STOPPING)
