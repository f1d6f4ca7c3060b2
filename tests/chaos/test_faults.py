"""Faults of every part, one after another on the same fleet, and that it recovers without help.

After each of them: no window's permits were over the capacity, what was acknowledged is there, and
within the time that the test states all workers are served nearly the whole capacity again. Times
are for rounds of 3 s and a loaded machine; with rounds of 60 s most of them grow with the rounds.
"""

from __future__ import annotations

import signal
import time

import pytest

from balancer.adapters.kafka.usage_log import CALL_SECONDS
from tests.chaos.fleet import (
    LEASE_SECONDS,
    NAME,
    SERVED_SECONDS,
    TAKEN_OVER_SECONDS,
    VALID_SECONDS,
    WINDOW_SECONDS,
    Fleet,
    leads,
    published,
)
from tests.support.fault_proxy import Fault

pytestmark = pytest.mark.timeout(240)


def test_a_leader_that_sleeps_past_its_lease_is_replaced_and_publishes_nothing_on_waking(
    fleet: Fleet,
) -> None:
    leader, other = fleet.roles()
    leader.process.send_signal(signal.SIGSTOP)
    try:
        before = leader.words()
        fleet.wait(lambda: leads(other), "taken over", TAKEN_OVER_SECONDS)
        count = len(published(other))
        fleet.wait(lambda: len(published(other)) > count + 1, "published", SERVED_SECONDS)
    finally:
        leader.process.send_signal(signal.SIGCONT)
    fleet.wait(lambda: "no longer leads" in leader.words()[len(before) :], "told", 10)
    fleet.await_service(SERVED_SECONDS)
    assert leads(other)
    assert published(leader, leader.words()[len(before) :]) == []


def test_a_put_of_a_leader_that_was_replaced_meanwhile_arrives_late_and_changes_nothing(
    fleet: Fleet,
) -> None:
    leader, other = fleet.roles()
    proxy = fleet.proxies[fleet.balancers.index(leader)]
    held = proxy.held
    proxy.play(Fault.HOLD)
    try:
        fleet.wait(lambda: proxy.held > held, "asking S3", 3 * WINDOW_SECONDS)
        leader.process.send_signal(signal.SIGSTOP)
        fleet.wait(lambda: leads(other), "taken over", TAKEN_OVER_SECONDS)
        count = len(published(other))
        fleet.wait(lambda: len(published(other)) > count + 1, "published", SERVED_SECONDS)
    finally:
        before = leader.words()
        proxy.play(Fault.NONE)
        leader.process.send_signal(signal.SIGCONT)
    fleet.await_service(SERVED_SECONDS)
    assert published(leader, leader.words()[len(before) :]) == []


def test_a_follower_that_sleeps_is_not_missed_and_serves_what_is_current_when_it_wakes(
    fleet: Fleet,
) -> None:
    leader, other = fleet.roles()
    other.process.send_signal(signal.SIGSTOP)
    try:
        # Its partitions are read by the leader once the group has given them away.
        time.sleep(2 * LEASE_SECONDS)
        fleet.await_service(SERVED_SECONDS)
    finally:
        other.process.send_signal(signal.SIGCONT)
    assert leads(leader)

    def same() -> bool:
        path = f"/destinations/{NAME}/distribution"
        return bool(other.ask(path)[1] == leader.ask(path)[1])

    fleet.wait(same, "current", VALID_SECONDS)
    fleet.wait(other.is_ready, "ready", SERVED_SECONDS)


@pytest.mark.long
def test_balancers_that_each_sleep_longer_than_a_read_may_take_go_on_reading_when_they_wake(
    fleet: Fleet,
) -> None:
    for balancer in fleet.balancers:
        worker = fleet.workers["a"]
        worker.process.kill()
        worker.process.wait(10)
        balancer.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(CALL_SECONDS + 1)
        finally:
            # Only whoever reads its hello gives it a share.
            fleet.start_worker("a")
            balancer.process.send_signal(signal.SIGCONT)
        fleet.await_service(SERVED_SECONDS)


@pytest.mark.long
def test_a_worker_that_sleeps_past_all_that_it_was_told_spends_nothing_on_waking(
    fleet: Fleet,
) -> None:
    worker = fleet.workers["a"]
    worker.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(2 * VALID_SECONDS)  # its documents are over, and the others have its share
        fleet.await_service(SERVED_SECONDS, ("b", "c"))
        fleet.proxies[-1].play(Fault.REFUSE)  # nobody tells it anything new
        before = sum(fleet.spent(("a",)).values())
    finally:
        worker.process.send_signal(signal.SIGCONT)
    time.sleep(2 * WINDOW_SECONDS)
    assert sum(fleet.spent(("a",)).values()) == before
    fleet.proxies[-1].play(Fault.NONE)
    fleet.await_service(SERVED_SECONDS)


def test_a_worker_that_is_killed_leaves_its_share_to_the_others(fleet: Fleet) -> None:
    worker = fleet.workers["a"]
    worker.process.kill()
    worker.process.wait(10)
    try:
        fleet.await_service(2 * VALID_SECONDS + SERVED_SECONDS, ("b", "c"))
    finally:
        fleet.start_worker("a")
    fleet.await_service(SERVED_SECONDS)


@pytest.mark.parametrize(
    "fault",
    [
        Fault.ERROR,
        pytest.param(Fault.TRUNCATE, marks=pytest.mark.long),
        pytest.param(Fault.HOLD, marks=pytest.mark.long),
        pytest.param(Fault.STALL, marks=pytest.mark.long),
        pytest.param(Fault.FORBID, marks=pytest.mark.long),
        pytest.param(Fault.SKEWED, marks=pytest.mark.long),
    ],
    ids=lambda fault: fault.name,
)
def test_s3_that_fails_for_longer_than_documents_last_is_used_again_as_soon_as_it_works(
    fleet: Fleet, fault: Fault
) -> None:
    fleet.play(fault)
    try:
        time.sleep(WINDOW_SECONDS)  # a round under way may have had its answer
        counts = [len(published(balancer)) for balancer in fleet.balancers]
        time.sleep(VALID_SECONDS)
        assert [len(published(balancer)) for balancer in fleet.balancers] == counts
        assert all(balancer.ask("/healthz")[0] == 200 for balancer in fleet.balancers)
    finally:
        fleet.play(Fault.NONE)
    fleet.await_service(SERVED_SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("part", ["postgres", "kafka", "s3"])
@pytest.mark.parametrize("how", ["killed", "paused"])
def test_a_part_that_is_away_for_20_seconds_is_used_again_as_soon_as_it_is_back(
    fleet: Fleet, part: str, how: str
) -> None:
    server = fleet.stack.parts[part]
    (server.kill if how == "killed" else server.pause)()
    try:
        time.sleep(20)
    finally:
        server.resume()
        server.start()
    fleet.await_service(SERVED_SECONDS)
    for balancer in fleet.balancers:
        fleet.wait(balancer.is_ready, "ready", SERVED_SECONDS)
