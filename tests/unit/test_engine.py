"""The engine's rules 1 to 5, pacing, and what clocks may do, through its public face."""

from __future__ import annotations

import dataclasses

import pytest

from worker_sdk.core.engine import Engine
from worker_sdk.core.ladder import Mode
from worker_sdk.wire.distribution import CLOSED, OnExpiry, OwnShare, Pacing, Terms
from worker_sdk.wire.shares import POINTS, Interval, share_permits
from worker_sdk.wire.usage import MemberState

W0 = 1_000_000
WINDOW_MS = 60_000
START_MS = W0 * WINDOW_MS
ALL: tuple[Interval, ...] = ((0, POINTS),)


def own(
    epoch: int = 1,
    *,
    capacity: int = 100,
    intervals: tuple[Interval, ...] = ALL,
    safe_points: int = 0,
    from_window: int = W0,
    until_window: int = W0 + 1,
    window_seconds: int = 60,
    valid_windows: int = 3,
    pacing: Pacing = Pacing.WINDOW,
    guard_ms: int = 250,
    on_expiry: OnExpiry = CLOSED,
    enforce: bool = True,
    destination: str = "db",
    shard: int = 0,
) -> OwnShare:
    start_ms = from_window * window_seconds * 1000
    return OwnShare(
        shard=shard,
        epoch=epoch,
        published_at_ms=start_ms - 10_000,
        valid_until_ms=start_ms + valid_windows * window_seconds * 1000,
        terms=Terms(
            destination=destination,
            capacity=capacity,
            window_seconds=window_seconds,
            from_window=from_window,
            until_window=until_window,
            on_expiry=on_expiry,
            guard_ms=guard_ms,
            pacing=pacing,
            enforce=enforce,
        ),
        intervals=intervals,
        safe_points=safe_points,
    )


def engine(*destinations: str) -> Engine:
    return Engine("host", "instance", destinations or ("db",))


def take_all(subject: Engine, now_ms: int, most: int = 10_000) -> int:
    taken = 0
    while taken < most and subject.try_acquire("db", 1, now_ms):
        taken += 1
    return taken


def test_without_a_document_nothing_is_granted_and_the_mode_is_starting() -> None:
    subject = engine()
    assert not subject.try_acquire("db", 1, START_MS + 1000)
    allowance = subject.allowance("db", START_MS + 1000)
    assert allowance.mode is Mode.STARTING
    assert allowance.opens_at_ms is None


def test_a_covered_window_gives_exactly_the_share() -> None:
    subject = engine()
    intervals = ((123_456_789, 456_789_123),)
    subject.offer([own(intervals=intervals)], START_MS)
    assert take_all(subject, START_MS + 1000) == share_permits(100, intervals, W0)
    assert subject.allowance("db", START_MS + 1000).mode is Mode.FRESH


def test_no_entry_in_the_newest_covering_document_means_nothing() -> None:
    subject = engine()
    subject.offer([own(1, safe_points=POINTS), own(2, intervals=())], START_MS)
    assert take_all(subject, START_MS + 1000) == 0


def test_an_older_epoch_is_ignored_and_a_whole_pointer_is_taken_at_once() -> None:
    subject = engine()
    later = own(7, from_window=W0 + 1, until_window=W0 + 2, capacity=5)
    assert subject.offer([later, own(6, capacity=8)], START_MS)
    assert not subject.offer([own(5, capacity=50)], START_MS)
    assert subject.epochs() == {0: 7}
    assert take_all(subject, START_MS + 1000) == 8
    assert take_all(subject, START_MS + WINDOW_MS + 1000) == 5


def test_an_epoch_is_acknowledged_even_without_an_entry_or_a_destination_of_ours() -> None:
    subject = engine()
    subject.offer([own(4, intervals=()), own(9, destination="other", shard=3)], START_MS)
    assert subject.epochs() == {0: 4, 3: 9}


def test_an_uncovered_window_gives_the_safe_points_while_it_ends_in_time() -> None:
    subject = engine()
    subject.offer([own(safe_points=POINTS // 4, valid_windows=3)], START_MS)
    given = [take_all(subject, START_MS + n * WINDOW_MS + 1000) for n in range(4)]
    assert given == [100, 25, 25, 0]
    modes = [subject.allowance("db", START_MS + n * WINDOW_MS + 1000).mode for n in range(4)]
    assert modes == [Mode.FRESH, Mode.STALE, Mode.STALE, Mode.EXPIRED]


def test_a_window_that_ends_after_the_validity_gives_no_safe_points() -> None:
    subject = engine()
    share = dataclasses.replace(
        own(safe_points=POINTS), valid_until_ms=START_MS + 2 * WINDOW_MS - 1
    )
    subject.offer([share], START_MS)
    assert take_all(subject, START_MS + WINDOW_MS + 1000) == 0


def test_on_expiry_gives_its_fraction_for_its_time() -> None:
    subject = engine()
    on_expiry = OnExpiry(permille=500, for_ms=WINDOW_MS)
    subject.offer([own(safe_points=POINTS // 4, valid_windows=2, on_expiry=on_expiry)], START_MS)
    given = [take_all(subject, START_MS + n * WINDOW_MS + 1000) for n in range(4)]
    assert given == [100, 25, 12, 0]


def test_a_document_that_begins_later_gives_nothing_before() -> None:
    subject = engine()
    subject.offer([own(from_window=W0 + 1, until_window=W0 + 2, safe_points=POINTS)], START_MS)
    assert take_all(subject, START_MS + 1000) == 0
    assert subject.allowance("db", START_MS + 1000).opens_at_ms == START_MS + WINDOW_MS + 250
    assert take_all(subject, START_MS + WINDOW_MS + 1000) == 100


def test_a_new_epoch_in_the_same_window_does_not_give_spent_permits_again() -> None:
    subject = engine()
    subject.offer([own(1, capacity=10)], START_MS)
    assert take_all(subject, START_MS + 1000) == 10
    subject.offer([own(2, capacity=15)], START_MS + 2000)
    assert take_all(subject, START_MS + 3000) == 5
    subject.offer([own(3, capacity=5)], START_MS + 4000)
    assert take_all(subject, START_MS + 5000) == 0


def test_nothing_is_granted_within_the_guard_of_an_edge() -> None:
    subject = engine()
    subject.offer([own(1), own(2, from_window=W0 + 1, until_window=W0 + 2)], START_MS)
    edge = START_MS + WINDOW_MS
    assert not subject.try_acquire("db", 1, START_MS + 249)
    assert subject.try_acquire("db", 1, START_MS + 250)
    assert subject.try_acquire("db", 1, edge - 251)
    assert not subject.try_acquire("db", 1, edge - 250)
    assert not subject.try_acquire("db", 1, edge + 249)
    assert subject.try_acquire("db", 1, edge + 250)


def test_a_clock_that_steps_back_gives_no_permit_twice() -> None:
    subject = engine()
    subject.offer([own(until_window=W0 + 40, capacity=10)], START_MS)
    for n in range(20):
        assert take_all(subject, START_MS + n * WINDOW_MS + 1000) == 10
    for n in range(20):
        assert take_all(subject, START_MS + n * WINDOW_MS + 2000) == 0
    assert take_all(subject, START_MS + 20 * WINDOW_MS + 1000) == 10


def test_a_clock_that_leaps_ahead_and_back_does_not_stop_the_member_for_good() -> None:
    subject = engine()
    subject.offer([own(until_window=W0 + 200, capacity=10)], START_MS)
    assert take_all(subject, START_MS + 1000) == 10
    assert take_all(subject, START_MS + 120 * WINDOW_MS + 1000) == 10
    for n in range(1, 30):
        assert take_all(subject, START_MS + n * WINDOW_MS + 1000) == 10
    assert take_all(subject, START_MS + 120 * WINDOW_MS + 2000) == 0


@pytest.mark.parametrize("window_seconds", [1, 2, 5, 60])
@pytest.mark.parametrize("capacity", [1, 2, 7, 100, 999])
def test_even_pacing_gives_every_whole_permit_to_a_worker_that_keeps_asking(
    window_seconds: int, capacity: int
) -> None:
    subject = engine()
    start_ms = START_MS
    window = start_ms // (window_seconds * 1000)
    share = own(
        capacity=capacity,
        from_window=window,
        until_window=window + 1,
        window_seconds=window_seconds,
        pacing=Pacing.EVEN,
        guard_ms=100,
    )
    subject.offer([share], start_ms)
    taken = 0
    half_ms = window_seconds * 500
    by_half = 0
    step_ms = max(1, window_seconds * 2)
    for now_ms in range(start_ms, start_ms + window_seconds * 1000, step_ms):
        while subject.try_acquire("db", 1, now_ms):
            taken += 1
        if now_ms <= start_ms + half_ms:
            by_half = taken
    assert taken == capacity
    if capacity >= 7:
        assert 0.4 * capacity <= by_half <= 0.75 * capacity


def test_under_even_pacing_the_next_permit_is_there_exactly_when_it_was_promised() -> None:
    subject = engine()
    subject.offer([own(capacity=37, pacing=Pacing.EVEN)], START_MS)
    now_ms = START_MS + 250
    take_all(subject, now_ms)
    for _ in range(20):
        opens_at_ms = subject.allowance("db", now_ms).opens_at_ms
        assert opens_at_ms is not None
        assert not subject.try_acquire("db", 1, opens_at_ms - 1)
        assert subject.try_acquire("db", 1, opens_at_ms)
        now_ms = opens_at_ms


def test_a_share_below_one_permit_is_served_when_its_turn_comes() -> None:
    subject = engine()
    intervals = ((0, POINTS // 5),)
    subject.offer([own(capacity=1, intervals=intervals, until_window=W0 + 50)], START_MS)
    given = 0
    now_ms = START_MS
    for _ in range(10):
        opens_at_ms = subject.allowance("db", now_ms).opens_at_ms
        assert opens_at_ms is not None
        assert opens_at_ms < START_MS + 50 * WINDOW_MS
        assert subject.try_acquire("db", 1, opens_at_ms)
        given += 1
        now_ms = opens_at_ms
    assert given == 10


def test_a_trial_lets_everything_pass_and_counts_it() -> None:
    subject = engine()
    subject.hello(START_MS, 0)
    subject.offer([own(capacity=3, enforce=False)], START_MS)
    assert take_all(subject, START_MS + 10, most=50) == 50
    batch = subject.drain(START_MS + 5000, 5000, MemberState.RUNNING)
    assert batch is not None
    assert batch.tuples[0].used == 50


def test_a_refund_gives_back_at_most_what_was_spent_in_the_window() -> None:
    subject = engine()
    subject.offer([own(capacity=10, until_window=W0 + 2)], START_MS)
    assert take_all(subject, START_MS + 1000) == 10
    assert subject.refund("db", 4, START_MS + 2000) == 4
    assert subject.refund("db", 50, START_MS + 2000) == 6
    assert take_all(subject, START_MS + 3000) == 10
    assert subject.refund("db", 3, START_MS + WINDOW_MS + 1000) == 0
    assert take_all(subject, START_MS + WINDOW_MS + 1000) == 10


def test_a_refund_lowers_the_use_reported_and_never_below_zero() -> None:
    subject = engine()
    subject.hello(START_MS, 0)
    subject.offer([own(capacity=10)], START_MS)
    take_all(subject, START_MS + 1000)
    first = subject.drain(START_MS + 2000, 2000, MemberState.RUNNING)
    assert first is not None
    assert first.tuples[0].used == 10
    subject.refund("db", 10, START_MS + 3000)
    assert subject.try_acquire("db", 3, START_MS + 4000)
    second = subject.drain(START_MS + 5000, 5000, MemberState.RUNNING)
    assert second is not None
    assert second.tuples[0].used == 0
    assert take_all(subject, START_MS + 6000) == 7
    third = subject.drain(START_MS + 7000, 7000, MemberState.RUNNING)
    assert third is not None
    assert third.tuples[0].used == 0  # less the 7 by which the second account was not lowered


def test_more_than_any_window_can_give_is_known_as_impossible() -> None:
    subject = engine()
    assert subject.can_ever_give("db", 1000)
    subject.offer([own(1, intervals=())], START_MS)
    assert subject.can_ever_give("db", 1000)
    subject.offer([own(2, intervals=((0, POINTS // 2),))], START_MS)
    assert subject.can_ever_give("db", 50)
    assert not subject.can_ever_give("db", 51)


def test_safe_points_end_when_a_newer_document_no_longer_names_the_destination() -> None:
    subject = engine("db", "other")
    subject.offer(
        [own(1, safe_points=POINTS), own(1, safe_points=POINTS, destination="other")], START_MS
    )
    later = START_MS + WINDOW_MS
    document = own(2, destination="other", from_window=W0 + 1, until_window=W0 + 2)
    subject.offer([document], later)
    assert subject.epochs() == {0: 2}
    assert take_all(subject, later + 1000) == 0
    assert subject.try_acquire("other", 100, later + 1000)


def test_shares_of_one_document_may_come_in_several_calls() -> None:
    subject = engine("db", "other")
    subject.offer([own(3)], START_MS)
    assert subject.offer([own(3, destination="other")], START_MS)
    assert subject.try_acquire("other", 100, START_MS + 1000)


def test_asking_for_less_than_one_permit_is_an_error() -> None:
    subject = engine()
    subject.offer([own()], START_MS)
    for permits in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            subject.try_acquire("db", permits, START_MS + 1000)


def test_a_changed_window_length_never_forgets_what_was_spent() -> None:
    subject = engine()
    subject.offer([own(1, capacity=10)], START_MS)
    assert take_all(subject, START_MS + 1000) == 10
    window = (START_MS + 30_000) // 30_000
    newer = own(2, capacity=12, from_window=window - 1, until_window=window + 1, window_seconds=30)
    subject.offer([newer], START_MS + 2000)
    assert take_all(subject, START_MS + 3000) == 2


def test_taking_as_many_as_there_are_takes_no_more_and_refuses_nothing() -> None:
    subject = engine()
    subject.offer([own(capacity=100)], START_MS)
    ledger = subject.account("db").ledger
    now_ms = START_MS + 1_000
    assert [ledger.take_up_to(asked, now_ms) for asked in (30, 100, 1)] == [30, 70, 0]
    assert (ledger.drain(now_ms).used, ledger.refused_total) == (100, 0)
    with pytest.raises(ValueError, match="at least 1"):
        ledger.take_up_to(0, now_ms)


def test_a_document_for_later_leaves_the_present_window_as_it_is() -> None:
    subject = engine()
    subject.offer([own(capacity=100)], START_MS)
    assert subject.allowance("db", START_MS + 1_000).granted_permits == 100
    subject.offer([own(2, capacity=40, from_window=W0 + 1, until_window=W0 + 2)], START_MS + 2_000)
    assert subject.allowance("db", START_MS + 3_000).granted_permits == 100
    assert subject.allowance("db", START_MS + WINDOW_MS + 1_000).granted_permits == 40
    assert subject.allowance("db", START_MS + 4_000).granted_permits == 100
    subject.offer([own(3, capacity=60, until_window=W0 + 2)], START_MS + 5_000)
    assert subject.allowance("db", START_MS + 6_000).granted_permits == 60
