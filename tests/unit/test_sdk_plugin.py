"""The fixtures for users' tests: used here as a user would."""

from __future__ import annotations

import pytest

from worker_sdk import ConfigurationError
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity": 30}, "^capacity must be permits a window by destination, not 30;.*orders-db"),
        ({"capacity": ["db"]}, "^capacity must be"),
        ({"capacity": {}}, "^capacity must be"),
        ({"capacity": {"db": "30"}}, "^capacity of 'db' must be a whole number of at least 0"),
        ({"capacity": {"db": 0.5}}, "not 0.5; an example: 30"),
        ({"members": 0}, "^members must be a whole number of at least 1"),
        ({"window_seconds": "60"}, "^window_seconds must be"),
        ({"guard_ms": -1}, "^guard_ms must be"),
        ({"guard_ms": 30_000}, "leaves nothing of a window of 60 s"),
        ({"pacing": "even"}, "^pacing must be a Pacing.*Pacing.WINDOW"),
    ],
)
def test_a_wrong_argument_of_a_fake_is_named_with_an_example(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        InMemoryBalancer(**{"capacity": {"db": 1}, **settings})  # type: ignore[arg-type]  # wrong


def test_what_is_no_clock_or_client_is_told(permit_client: StartPermitClient) -> None:
    with pytest.raises(ConfigurationError, match="clock must be a ManualClock"):
        InMemoryBalancer({"db": 1}).client(clock=5)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigurationError, match="seconds must be a number of seconds, not '60'"):
        ManualClock().advance("60")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigurationError, match="seconds must be"):
        ManualClock().step_wall(float("nan"))
    with pytest.raises(ConfigurationError, match="client must be a PermitClient"):
        wait_until_ready("client")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigurationError, match="capacity must be permits a window"):
        permit_client(["db"])  # type: ignore[arg-type]  # wrong on purpose


def test_waiting_for_a_client_that_never_gets_a_share_ends() -> None:
    balancer = InMemoryBalancer({"db": 1})
    balancer.sink.fault = "broker away"
    with (
        balancer.client(clock=ManualClock()) as client,
        pytest.raises(TimeoutError, match="no distribution for 'db'"),
    ):
        wait_until_ready(client, 0.1)
