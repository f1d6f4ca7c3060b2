"""The repository of several suites: the one in memory, and the one on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate
from tests.support.fakes_repository import FakeRepository


@pytest.fixture(params=["fake", "postgres"])
async def repository(
    request: pytest.FixtureRequest,
) -> AsyncIterator[FakeRepository | PostgresRepository]:
    if request.param == "fake":
        yield FakeRepository()
        return
    dsn = cast("str", request.getfixturevalue("postgres_dsn"))
    await asyncio.to_thread(migrate, dsn)  # it runs a loop of its own
    real = await PostgresRepository.open(dsn)
    yield real
    await real.close()
