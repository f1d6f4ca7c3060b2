"""The fleet that all chaos tests share, and what is checked after each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.chaos.fleet import NAME, SERVED_SECONDS, Fleet, published, running_fleet
from tests.support.real_clients import query


@pytest.fixture(scope="package")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@pytest.fixture
def fleet(whole: Fleet) -> Iterator[Fleet]:
    """The fleet, serving; afterwards it serves again, was never over, and has lost nothing."""
    if not whole.is_well:  # a test before this one failed
        whole.await_service(SERVED_SECONDS)
    whole.is_well = False
    yield whole
    whole.check_never_over()
    asyncio.run(check_nothing_lost(whole))


async def check_nothing_lost(fleet: Fleet) -> None:
    """Check that the destination that was acknowledged is there, and the largest epoch."""
    dsn = fleet.stack.postgres.dsn
    found = await query(dsn, f"SELECT count(*) FROM permit_destination WHERE name = '{NAME}'")
    assert found == 1
    epochs = [epoch for balancer in fleet.balancers for epoch in published(balancer)]
    assert len(epochs) == len(set(epochs)), "one epoch was published twice"
    assert await query(dsn, "SELECT epoch FROM permit_lease") >= max(epochs)
