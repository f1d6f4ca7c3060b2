"""The fixtures for users' tests: used here as a user would."""

from __future__ import annotations

import pytest

from worker_sdk.testing import InMemoryBalancer, ManualClock, wait_until_ready
from worker_sdk.testing.plugin import StartPermitClient

USERS_CONFTEST = 'pytest_plugins = ["worker_sdk.testing.plugin"]\n'
USERS_TEST = """
def test_the_share_comes_back_with_the_next_window(permit_client, permit_clock):
    orders = permit_client({"orders-db": 3}).destination("orders-db")
    assert [orders.try_acquire() for _ in range(4)] == [True, True, True, False]
    permit_clock.advance(60)
    assert orders.try_acquire()
"""

USERS_TWO_TESTS = """
import pytest
from worker_sdk import ClientClosedError

kept = []

def test_one(permit_client):
    kept.append(permit_client({"db": 1}).destination("db"))
    assert kept[0].try_acquire()

def test_two():
    with pytest.raises(ClientClosedError):
        kept[0].try_acquire()
"""


def test_a_users_test_gets_a_client_that_has_its_share(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(USERS_CONFTEST)
    pytester.makepyfile(USERS_TEST)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_clients_of_one_balancer_share_it_and_one_clock(
    permit_client: StartPermitClient, permit_clock: ManualClock
) -> None:
    balancer = InMemoryBalancer({"db": 10}, members=2)
    handles = [permit_client(balancer, host=host).destination("db") for host in ("a", "b")]
    for _ in range(2):
        for handle in handles:
            assert [handle.try_acquire() for _ in range(6)] == [True] * 5 + [False]
        permit_clock.advance(60)


def test_a_client_is_closed_when_its_test_has_ended(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(USERS_CONFTEST)
    pytester.makepyfile(USERS_TWO_TESTS)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_waiting_for_a_client_that_never_gets_a_share_ends() -> None:
    balancer = InMemoryBalancer({"db": 1})
    balancer.sink.fault = "broker away"
    with (
        balancer.client(clock=ManualClock()) as client,
        pytest.raises(TimeoutError, match="no distribution for 'db'"),
    ):
        wait_until_ready(client, 0.1)
