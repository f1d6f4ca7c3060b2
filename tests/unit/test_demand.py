"""What a member's account says of its demand."""

from __future__ import annotations

import pytest

from balancer.core.columns import ints
from balancer.core.demand import Accounts, demands, enough_after, waits_as_a_pool
from balancer.core.model import Usage

T0 = 1_800_000_000_000
WINDOW_MS = 60_000


def account(
    used: int, granted: int, *, denied: int = 0, starved_ms: int = 0, busy_ms: int = 0
) -> Usage:
    return Usage(
        "h", "i", "d", T0, T0 + WINDOW_MS, 1, granted, used, denied, starved_ms, busy_ms, T0
    )


def demand_permits(usage: Usage, window_ms: int, even: int, enough: int = 0) -> int:
    return int(demands(Accounts.of([usage], window_ms), even, ints([enough]))[0])


def enough_permits(usage: Usage, asked: int, enough: int) -> int:
    accounts = Accounts.of([usage], WINDOW_MS)
    return int(enough_after(accounts, ints([asked]), ints([enough]))[0])


@pytest.mark.parametrize("share", [20, 50])
def test_a_blocking_worker_shows_what_it_would_have_used(share: int) -> None:
    """True demand 80: each piece takes a 80th of the window, the rest of the time it waits."""
    worked_ms = share * WINDOW_MS // 80
    usage = account(share, share, starved_ms=WINDOW_MS - worked_ms, busy_ms=worked_ms)
    assert demand_permits(usage, WINDOW_MS, 10) == 80


def test_unused_permits_show_the_demand() -> None:
    assert demand_permits(account(30, 50), WINDOW_MS, 10) == 30


def test_who_got_nothing_and_always_waited_wants_the_even_share() -> None:
    assert demand_permits(account(0, 0, starved_ms=WINDOW_MS), WINDOW_MS, 10) == 10


def test_waiting_for_the_pace_of_a_share_that_is_enough_is_no_want() -> None:
    first = account(100, 140)
    enough = enough_permits(first, demand_permits(first, WINDOW_MS, 10), 0)
    paced = account(99, 100, denied=1, starved_ms=WINDOW_MS * 55 // 100, busy_ms=1_600)
    assert demand_permits(paced, WINDOW_MS, 10) > 200
    assert demand_permits(paced, WINDOW_MS, 10, enough) == 100
    assert enough_permits(paced, 100, enough) == enough


def test_a_member_that_outgrew_its_share_is_heard_in_the_second_round() -> None:
    full = account(100, 100, starved_ms=WINDOW_MS * 96 // 100, busy_ms=1_600)
    assert demand_permits(full, WINDOW_MS, 10, 100) == 110
    once = enough_permits(full, 110, 100)
    assert demand_permits(full, WINDOW_MS, 10, once) >= 400
    assert enough_permits(full, 400, once) == 0


def test_a_share_one_permit_short_moves_little() -> None:
    short = account(99, 99, denied=1, starved_ms=WINDOW_MS * 97 // 100, busy_ms=1_600)
    assert demand_permits(short, WINDOW_MS, 10, 100) == 110
    relaxed = account(100, 110, starved_ms=1_000, busy_ms=1_600)
    assert enough_permits(relaxed, 100, enough_permits(short, 110, 100)) == 100


def test_who_was_idle_is_heard_at_once() -> None:
    idle = account(0, 100)
    woken = account(100, 100, starved_ms=WINDOW_MS * 96 // 100, busy_ms=1_600)
    assert demand_permits(woken, WINDOW_MS, 10, enough_permits(idle, 0, 0)) >= 400


@pytest.mark.parametrize("short_ms", [-2, -1, 0, 1, 2])
def test_a_stretch_a_little_off_claims_no_other_number(short_ms: int) -> None:
    whole = account(100, 150)
    usage = Usage(
        "h", "i", "d", T0 + short_ms, T0 + WINDOW_MS, 1, whole.granted, whole.used, 0, 0, 0, T0
    )
    assert demand_permits(usage, WINDOW_MS, 10) == 100


def test_whoever_used_one_permit_in_a_long_time_wants_one() -> None:
    usage = Usage("h", "i", "d", T0, T0 + 5 * WINDOW_MS, 1, 9, 1, 0, 0, 0, T0)
    assert demand_permits(usage, WINDOW_MS, 10) == 1


def test_a_blocking_worker_with_next_to_nothing_wants_the_even_share_at_once() -> None:
    """By extrapolation alone a share of one permit would take rounds to grow."""
    tiny = account(1, 1, denied=1, starved_ms=WINDOW_MS * 97 // 100, busy_ms=2)
    assert demand_permits(tiny, WINDOW_MS, 250) == 250
    nothing = account(0, 0, denied=1, starved_ms=WINDOW_MS // 10)
    assert demand_permits(nothing, WINDOW_MS, 250) == 250


def test_what_was_refused_is_believed_of_a_worker_that_asks_for_all_it_wants() -> None:
    assert demand_permits(account(0, 0, denied=3), WINDOW_MS, 250) == 3


def test_a_pool_that_always_waits_is_heard_though_it_shows_no_more_waiters_than_tasks() -> None:
    """16 tasks, a share of 60 that was asked for and got; true demand 400."""
    pool = Accounts.of([account(60, 60, denied=16), account(60, 60, denied=15)], WINDOW_MS)
    said = waits_as_a_pool(pool, ints([60, 60]), ints([16, 16]), ints([0, 0]))
    assert said.tolist() == [True, True]


def test_who_is_not_served_what_it_asked_or_asks_for_all_it_wants_is_no_pool() -> None:
    cases = Accounts.of(
        [
            account(60, 60, denied=16),  # limited: it had asked for 76
            account(60, 60, denied=40),  # refused another number
            account(50, 60, denied=16),  # not at its limit
            account(60, 60, denied=16),  # 66 are known to be enough
        ],
        WINDOW_MS,
    )
    said = waits_as_a_pool(cases, ints([76, 60, 60, 60]), ints([16] * 4), ints([0, 0, 0, 66]))
    assert said.tolist() == [False] * 4


def test_what_was_asked_for_last_is_compared_exactly_however_much_it_is() -> None:
    week_ms = 7 * 86_400_000
    usage = Usage("h", "i", "d", T0 - week_ms, T0, 1, 60, 60, 16, 0, 0, T0)
    cases = Accounts.of([usage], WINDOW_MS)
    assert waits_as_a_pool(cases, ints([10**12]), ints([16]), ints([0])).tolist() == [False]
    assert waits_as_a_pool(Accounts.of([], WINDOW_MS), ints([]), ints([]), ints([])).tolist() == []
