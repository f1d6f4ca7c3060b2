"""Whole rounds of the planner under any policy: what members may spend, window by window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.core.memory import Memory
from balancer.core.model import (
    Destination,
    MemberRecord,
    Plan,
    Policy,
    RoundKind,
    Snapshot,
    Strategy,
    Usage,
    WeightRule,
)
from balancer.core.planner import plan
from worker_sdk.wire.distribution import DestinationShares, Document
from worker_sdk.wire.shares import POINTS, interval_permits, share_points

T0 = 1_800_000_000_000
WINDOW_MS = 60_000
NAME = "db"
CAPACITIES = [0, 1, 5, 7, 100_000, 10**9, 10**12]


@dataclass
class Fleet:
    """Members with demands, planned round by round; each acknowledges what was published."""

    capacity: int
    policy: Policy
    demands: Mapping[str, int]
    silent: frozenset[str] = frozenset()
    memory: Memory = field(default_factory=Memory)
    documents: tuple[Document, ...] = ()
    round: int = 0
    last: Plan | None = None

    def run(self, rounds: int = 1) -> DestinationShares:
        """Plan so many rounds; return the newest line."""
        for _ in range(rounds):
            now_ms = T0 + self.round * WINDOW_MS + 38_000
            outcome = plan(self._snapshot(now_ms), self.memory, now_ms)
            assert outcome.broken == ()
            assert outcome.document is not None
            self.last, self.memory = outcome, outcome.memory
            self.documents = (outcome.document, *self.documents)[:4]
            self.round += 1
        return self.documents[0].destinations[0]

    def permits(self) -> list[dict[str, int]]:
        """Return, for each window of the newest line, each host's permits."""
        line = self.documents[0].destinations[0]
        return [
            {
                entry.host: sum(
                    interval_permits(self.capacity, start, end, window)
                    for start, end in entry.intervals
                )
                for entry in line.entries
            }
            for window in range(line.terms.from_window, line.terms.until_window)
        ]

    def points(self) -> dict[str, int]:
        """Return each host's share."""
        line = self.documents[0].destinations[0]
        return {entry.host: share_points(entry.intervals) for entry in line.entries}

    def _snapshot(self, now_ms: int) -> Snapshot:
        epoch = self.documents[0].epoch if self.documents else 0
        shares = self.permits()[0] if self.documents else {}
        members, usage = [], []
        for host, demand in self.demands.items():
            seen_ms = now_ms - (100_000 if host in self.silent else 8_000)
            got = shares.get(host, 0)
            used = min(demand, got)
            members.append(MemberRecord(host, "i", None, seen_ms, seen_ms, None, epoch, seen_ms))
            counts = (got, used, demand - used, 0, 0)
            usage.append(
                Usage(host, "i", NAME, seen_ms - WINDOW_MS, seen_ms, epoch, *counts, seen_ms)
            )
        return Snapshot(
            shard=0,
            kind=RoundKind.REGULAR,
            round_ms=WINDOW_MS,
            ttl_ms=180_000,
            destinations=(Destination(NAME, self.capacity, policy=self.policy),),
            members=tuple(members),
            usage=tuple(usage),
            documents=self.documents,
            current_epoch=epoch,
            epoch_floor=epoch,
        )


def hosts(demands: Sequence[int]) -> dict[str, int]:
    return {f"h{number:03}": demand for number, demand in enumerate(demands)}


def summed(windows: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {host: sum(window[host] for window in windows) for host in windows[0]}


policies = st.builds(
    Policy,
    strategy=st.sampled_from(list(Strategy)),
    shadow=st.none() | st.sampled_from(list(Strategy)),
    weights=st.sampled_from([(), (WeightRule(3, "h00*"), WeightRule(1000, "h01*"))]),
    minimum_points=st.sampled_from([0, 1, POINTS // 100, POINTS // 4]),
    maximum_points=st.sampled_from([POINTS // 4, POINTS // 2, POINTS]),
    head_room_permille=st.sampled_from([0, 100, 10_000]),
    newcomer_reserve_points=st.sampled_from([0, POINTS // 100, POINTS // 2]),
    peak_decay_permille=st.sampled_from([0, 900, 1000]),
    expect_recurring=st.booleans(),
    safe_permille=st.sampled_from([0, 900, 1000]),
)


@settings(max_examples=40)
@given(
    policy=policies,
    capacity=st.sampled_from(CAPACITIES),
    demands=st.lists(
        st.integers(0, 20) | st.sampled_from([10**5, 10**9, 10**12]), min_size=1, max_size=12
    ),
)
def test_no_policy_spends_more_than_the_capacity_or_breaks_an_invariant(
    policy: Policy, capacity: int, demands: list[int]
) -> None:
    fleet = Fleet(capacity, policy, hosts(demands))
    for _ in range(4):
        line = fleet.run()
        held = sum(hold.end - hold.start for hold in line.holds)
        assert sum(fleet.points().values()) + held <= POINTS
        for window in fleet.permits():
            assert sum(window.values()) <= capacity
        assert fleet.last is not None
        for reason in fleet.last.reasons:
            assert reason.share_points == fleet.points()[reason.host]
            assert (reason.shadow_points is None) == (policy.shadow is None)
            assert reason.safe_points <= reason.share_points
            if reason.reserved_points <= policy.maximum_points:
                assert reason.share_points <= policy.maximum_points


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_with_nothing_reserved_all_permits_are_given_at_any_capacity(
    strategy: Strategy, capacity: int
) -> None:
    policy = Policy(strategy=strategy, newcomer_reserve_points=0)
    fleet = Fleet(capacity, policy, hosts([3, 10**12, 0, capacity, 1, 10**6]))
    fleet.run(3)
    for window in fleet.permits():
        assert sum(window.values()) == capacity


def test_a_capacity_below_the_members_goes_round_and_leaves_nobody_out() -> None:
    fleet = Fleet(3, Policy(newcomer_reserve_points=0), hosts([5] * 10))
    windows = []
    for _ in range(5):  # ceil(10 / 3) + 1, and the first document has a window more
        fleet.run()
        windows += fleet.permits()
    assert {sum(window.values()) for window in windows} == {3}
    assert min(summed(windows).values()) >= 1


@pytest.mark.parametrize("demand", [0, 7, 1000])
def test_minima_above_the_capacity_are_cut_alike_and_go_round(demand: int) -> None:
    policy = Policy(minimum_points=POINTS // 100, newcomer_reserve_points=0, safe_permille=0)
    fleet = Fleet(100, policy, hosts([demand, *[1] * 499]))
    windows = []
    for _ in range(5):
        fleet.run()
        points = fleet.points().values()
        assert max(points) - min(points) <= 1
        assert sum(points) == POINTS
        windows += fleet.permits()
    assert {sum(window.values()) for window in windows} == {100}
    assert min(summed(windows).values()) >= 1


def test_a_minimum_is_kept_for_whoever_asks_for_nothing_and_not_for_the_silent() -> None:
    policy = Policy(minimum_points=POINTS // 10, newcomer_reserve_points=0, safe_permille=0)
    fleet = Fleet(1000, policy, hosts([10**6, 0, 0]), silent=frozenset(["h002"]))
    fleet.run(3)
    assert fleet.points() == {"h000": POINTS - POINTS // 10, "h001": POINTS // 10, "h002": 0}


def test_a_maximum_leaves_the_rest_to_others_and_to_nobody_where_all_have_theirs() -> None:
    policy = Policy(maximum_points=POINTS // 5, newcomer_reserve_points=0)
    fleet = Fleet(1000, policy, hosts([10**6, 10**6, 1]))
    fleet.run(3)
    assert set(fleet.points().values()) == {POINTS // 5}


def test_weights_part_what_all_want_and_not_what_is_left() -> None:
    policy = Policy(
        weights=(WeightRule(3, "h000"), WeightRule(2, "h001")),
        newcomer_reserve_points=0,
        safe_permille=0,
    )
    fleet = Fleet(600, policy, hosts([10**6, 10**6, 10**6]))
    fleet.run(3)
    points = fleet.points()
    assert points == pytest.approx({"h000": POINTS / 2, "h001": POINTS / 3, "h002": POINTS / 6})
    fleet = Fleet(600, policy, hosts([10**6, 30, 10**6]))
    fleet.run(3)
    points = fleet.points()
    assert points["h001"] == 600 * POINTS // 12_000
    assert points["h000"] == pytest.approx(3 * points["h002"], abs=3)
