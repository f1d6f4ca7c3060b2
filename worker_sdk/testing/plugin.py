"""Fixtures for pytest: clients of balancers in memory, on a clock set by hand.

Put ``pytest_plugins = ["worker_sdk.testing.plugin"]`` into your topmost ``conftest.py``. Decides
only that all clients of a test share one clock and that they are closed after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Protocol

import pytest

from worker_sdk.client import PermitClient
from worker_sdk.testing import InMemoryBalancer, ManualClock, wait_until_ready


class StartPermitClient(Protocol):
    """What the fixture ``permit_client`` is."""

    def __call__(
        self, balancer: InMemoryBalancer | Mapping[str, int], *, host: str = "test-host"
    ) -> PermitClient:
        """Return a client that has its shares; it is closed after the test.

        Args:
            balancer: whose client; a mapping of capacities makes one for this client alone.
            host: the client's host name.
        """


@pytest.fixture
def permit_clock() -> ManualClock:
    """The clock of all this test's clients; `ManualClock.advance` makes time pass."""
    return ManualClock()


@pytest.fixture
def permit_client(permit_clock: ManualClock) -> Iterator[StartPermitClient]:
    """A function that starts a client and waits until it has its shares."""
    with ExitStack() as open_clients:

        def start(
            balancer: InMemoryBalancer | Mapping[str, int], *, host: str = "test-host"
        ) -> PermitClient:
            if not isinstance(balancer, InMemoryBalancer):
                balancer = InMemoryBalancer(balancer)
            client = open_clients.enter_context(balancer.client(host=host, clock=permit_clock))
            wait_until_ready(client)
            return client

        yield start
