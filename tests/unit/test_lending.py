"""What early rounds lend within a window, through the planner's face."""

from __future__ import annotations

from dataclasses import replace

import pytest

from balancer.core.columns import ints
from balancer.core.demand import Accounts, demands, demands_with_loans
from balancer.core.memory import Memory
from balancer.core.model import Destination, MemberRecord, Policy, RoundKind, Snapshot, Usage
from balancer.core.planner import plan
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Terms
from worker_sdk.wire.shares import POINTS, Interval, share_points

WINDOW_MS = 60_000
WINDOW = 30_000_000
START_MS = WINDOW * WINDOW_MS
PERCENT = POINTS // 100
POLICY = Policy(newcomer_reserve_points=0, lend_points=90 * PERCENT)
HOSTS = ("a", "b", "c", "d")


def usage(host: str, used: int, denied: int, *, from_ms: int = START_MS) -> Usage:
    instant_ms = START_MS + 6_000
    return Usage(host, "i", "db", from_ms, instant_ms, 1, used, used, denied, 0, 0, instant_ms)


def lent(
    *accounts: Usage,
    policy: Policy = POLICY,
    capacity: int = 1000,
    from_window: int = WINDOW,
    own: int = PERCENT,
    intervals: int = 1,
    is_learning: bool = False,
) -> tuple[int, ...]:
    """Return the points that an early round gives a, b, c and d beside the one percent each has."""
    now_ms = START_MS + 6_500
    terms = Terms("db", capacity, 60, from_window, from_window + 1, lends=True)
    piece = own // intervals
    entries = []
    for number, host in enumerate(HOSTS):
        pieces: list[Interval] = [
            (start := number * 2 * own + 2 * piece * part, start + piece)
            for part in range(intervals)
        ]
        entries.append(Entry(host, "i", tuple(pieces), 0))
    line = DestinationShares(terms, (), tuple(entries))
    document = Document(0, 1, START_MS - 20_000, START_MS + 3 * WINDOW_MS, (line,))
    snapshot = Snapshot(
        shard=0,
        kind=RoundKind.EARLY,
        round_ms=WINDOW_MS,
        ttl_ms=3 * WINDOW_MS,
        destinations=(Destination("db", capacity, 60, policy),),
        members=tuple(MemberRecord(host, "i", None, now_ms, now_ms) for host in HOSTS),
        usage=accounts,
        documents=(document,),
        current_epoch=1,
        epoch_floor=1,
        learning=is_learning,
        pointed_epochs=(1,),
    )
    outcome = plan(snapshot, Memory(), now_ms)
    assert outcome.broken == ()
    if outcome.document is None:
        return (0, 0, 0, 0)
    after = {entry.member: entry for entry in outcome.document.destinations[0].entries}
    return tuple(
        share_points(after[host, "i"].intervals) - share_points(entry.intervals)
        for host, entry in zip(HOSTS, entries, strict=True)
    )


def test_half_of_what_nobody_has_is_lent_to_the_one_that_ran_out() -> None:
    assert lent(usage("a", 10, 990)) == (48 * PERCENT, 0, 0, 0)


def test_no_more_is_lent_than_the_window_comes_to_if_it_goes_on() -> None:
    """20 permits in a tenth of the window are 200 in all of it: a fifth, of which it has 1 %."""
    assert lent(usage("a", 10, 10)) == (19 * PERCENT, 0, 0, 0)


def test_what_was_asked_for_already_goes_before_what_may_come() -> None:
    """A wants 440 at once; b's 100 may become 1,000 by the end of the window."""
    assert lent(usage("a", 10, 430), usage("b", 10, 90)) == (39 * PERCENT, 9 * PERCENT, 0, 0)


def test_those_that_ask_for_more_than_there_is_come_to_one_level() -> None:
    points = lent(usage("a", 10, 990), usage("b", 10, 990), usage("c", 10, 40))
    assert points == (22 * PERCENT, 22 * PERCENT, 4 * PERCENT, 0)


def test_an_account_of_an_earlier_window_borrows_nothing() -> None:
    assert lent(usage("a", 10, 990, from_ms=START_MS - 1)) == (0, 0, 0, 0)


def test_nothing_is_lent_of_a_window_to_come() -> None:
    assert lent(usage("a", 10, 990), from_window=WINDOW + 1) == (0, 0, 0, 0)


def test_nothing_is_lent_where_the_policy_does_not_say_so() -> None:
    """What an early round gives then is as before: all that is left, once."""
    points = lent(usage("a", 10, 990), policy=replace(POLICY, lend_points=0))
    assert points == (93 * PERCENT, 0, 0, 0)


def test_nothing_is_lent_while_the_balancer_learns() -> None:
    assert lent(usage("a", 10, 990), is_learning=True) == (0, 0, 0, 0)


def test_newcomers_points_are_not_lent() -> None:
    policy = replace(POLICY, newcomer_reserve_points=50 * PERCENT)
    assert lent(usage("a", 10, 990), policy=policy) == (23 * PERCENT, 0, 0, 0)


def test_a_member_borrows_only_so_often_in_a_window() -> None:
    assert lent(usage("a", 10, 990), own=8 * PERCENT // 10, intervals=7)[0] > 0
    assert lent(usage("a", 10, 990), own=8 * PERCENT // 10, intervals=8)[0] == 0


def test_where_not_all_can_have_a_permit_some_get_a_whole_one() -> None:
    points = lent(*(usage(host, 0, 5) for host in HOSTS), capacity=4)
    assert sorted(points) == [0, 0, 0, 25 * PERCENT]


def test_huge_numbers_do_not_overflow() -> None:
    most = 10**12
    assert lent(usage("a", most, most), capacity=most) == (48 * PERCENT, 0, 0, 0)


def test_a_closed_destination_lends_nothing() -> None:
    assert lent(usage("a", 0, 5), capacity=0) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("used", "denied", "known", "planned"),
    [
        (100, 20, 0, 120),  # a burst at the window's start is no more than it was
        (100, 20, 400, 400),  # steady work goes on as it did before
        (10, 2, 400, 102),  # or as it does now
    ],
)
def test_the_account_of_a_borrower_is_blown_up_only_to_what_was_known_before(
    used: int, denied: int, known: int, planned: int
) -> None:
    account = usage("a", used, denied)
    accounts = Accounts.of([account], WINDOW_MS)
    asked = demands(accounts, 0, ints([0]))
    assert demands_with_loans(accounts, asked, ints([known])).tolist() == [planned]


def test_other_accounts_are_taken_as_they_are() -> None:
    accounts = Accounts.of([usage("a", 100, 20, from_ms=START_MS - 1)], WINDOW_MS)
    asked = demands(accounts, 0, ints([0]))
    assert demands_with_loans(accounts, asked, ints([0])).tolist() == asked.tolist()
