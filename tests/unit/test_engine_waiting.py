"""Many waiters: their order, who is woken, and whether the time that they are told is right."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from tests.unit.test_engine import START_MS, W0, WINDOW_MS, engine, own
from worker_sdk import DestinationHandle
from worker_sdk.core.engine import Engine
from worker_sdk.testing import InMemoryBalancer, ManualClock, wait_until_ready
from worker_sdk.wire.distribution import Pacing
from worker_sdk.wire.shares import POINTS, Interval

WAIT_SECONDS = 60.0
ORDER_TOLERANCE = 0.05


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.001)


def furthest(order: list[int]) -> int:
    """How far anybody stands from the place in which it asked."""
    return max(abs(place - number) for place, number in enumerate(order))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def db(clock: ManualClock) -> Iterator[DestinationHandle]:
    with InMemoryBalancer({"db": 1_000}).client(clock=clock) as client:
        wait_until_ready(client)
        handle = client.destination("db")
        assert handle.try_acquire(1_000)
        yield handle


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


async def test_five_thousand_tasks_are_served_in_their_order_and_woken_once_each(
    db: DestinationHandle, clock: ManualClock
) -> None:
    waiters = 5_000
    order: list[int] = []
    loop = asyncio.get_running_loop()
    woken = 0
    real = loop.call_soon_threadsafe

    def counted(*given: object, **more: object) -> object:
        nonlocal woken
        woken += 1
        return real(*given, **more)  # type: ignore[arg-type]  # passed on as it came

    async def work(number: int) -> None:
        await db.acquire_async()
        order.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(waiters)]
    await until(lambda: db.state.waiting == waiters)
    loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]  # to count
    given_up = range(7, waiters, 10)
    for number in given_up:
        tasks[number].cancel()
    await until(lambda: db.state.waiting == waiters - len(given_up))
    served = 0
    while served < 3_000:
        clock.advance(60)
        served += 1_000
        await until(lambda: len(order) == served)  # noqa: B023 - awaited at once
        assert woken == served, "a permit wakes one, and nobody in vain"
    stayed = [number for number in range(waiters) if number not in given_up][:served]
    assert order == stayed
    assert db.state.used == 1_000 + served, "who gave up took nothing"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_background_is_called_for_who_is_next_and_for_nobody_else(
    db: DestinationHandle,
) -> None:
    member = db._lives.present()
    calls: list[str] = []
    member.on_waiting = lambda: calls.append("called")
    tasks = [asyncio.create_task(db.acquire_async()) for _ in range(100)]
    await until(lambda: db.state.waiting == 100)
    assert len(calls) == 1
    tasks[50].cancel()
    await until(lambda: db.state.waiting == 99)
    assert len(calls) == 1
    tasks[0].cancel()
    await until(lambda: db.state.waiting == 98)
    assert len(calls) == 2, "who is next now may want less than who gave up"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_hundreds_of_threads_are_served_in_their_order(
    db: DestinationHandle, clock: ManualClock
) -> None:
    waiters = 300
    order: list[int] = []

    def work(number: int) -> None:
        db.acquire(100, timeout=WAIT_SECONDS)
        order.append(number)

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(waiters)]
    for number, thread in enumerate(threads):
        thread.start()
        eventually(lambda count=number + 1: db.state.waiting == count, "it queues up")  # type: ignore[misc]  # a default binds it
    for served in range(10, waiters + 1, 10):
        clock.advance(60)
        eventually(lambda count=served: len(order) == count, "ten more are served")  # type: ignore[misc]  # a default binds it
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert furthest(order) <= waiters * ORDER_TOLERANCE
    assert sorted(order) == list(range(waiters))


def test_a_pump_grants_to_no_more_than_there_are_permits_for() -> None:
    subject = engine()
    subject.offer([own(capacity=10, until_window=W0 + 3)], START_MS)
    costs = [3, 3, 3, 3, 1, 1]
    waiters = [subject.enqueue("db", n, n, START_MS, 0) for n in costs]
    granted = subject.pump("db", START_MS + 1_000, 1_000)
    assert granted == waiters[:3], "the fourth wants more than is left, and nobody passes it"
    assert subject.pump("db", START_MS + WINDOW_MS + 1_000, WINDOW_MS) == waiters[3:]


# -- the instant that is promised


class Case:
    """A member whose document is renewed each window, as a balancer does, spending at random."""

    def __init__(self, dice: random.Random) -> None:
        self.capacity = dice.choice([1, 2, 7, 100, 1_000, 100_000])
        members = dice.choice([1, 1, 3, 5, 50])
        number = dice.randrange(members)
        bounds = (POINTS * number // members, POINTS * (number + 1) // members)
        self.intervals: tuple[Interval, ...] = (bounds,)
        self.pacing = dice.choice(list(Pacing))
        self.guard_ms = dice.choice([0, 250, 1_000])
        self.safe_points = dice.choice([0, (bounds[1] - bounds[0]) // 2])
        self.subject: Engine = engine()
        self.published = W0 - 1
        self.now_ms = START_MS
        self.renew()

    def renew(self) -> None:
        """Read what was published by now: each window's document at 48 of 60 seconds before it."""
        while W0 + (self.now_ms + 12_000 - START_MS) // WINDOW_MS > self.published:
            self.published += 1
            share = own(
                self.published,
                capacity=self.capacity,
                intervals=self.intervals,
                safe_points=self.safe_points,
                from_window=self.published,
                until_window=self.published + 1,
                pacing=self.pacing,
                guard_ms=self.guard_ms,
            )
            self.subject.offer([share], self.now_ms)

    def advance(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.now_ms = min(until_ms, self.now_ms + 10_000)
            self.renew()

    def spend(self, dice: random.Random) -> None:
        for _ in range(dice.choice([1, 5, 40])):
            self.advance(dice.randrange(4_000))
            left = self.subject.allowance("db", self.now_ms).left_permits
            for _ in range(dice.choice([1, 3])):
                self.subject.try_acquire("db", dice.randint(1, max(1, left)), self.now_ms)


def test_after_the_time_that_is_told_an_acquire_succeeds() -> None:
    cases, kept, in_vain = 1_000, 0, 0
    for seed in range(cases):
        dice = random.Random(seed)
        case = Case(dice)
        case.spend(dice)
        most = sum(-(-case.capacity * (end - start) // POINTS) for start, end in case.intervals)
        permits = dice.choice([1, 1, max(1, most // 2), max(1, most)])
        while case.subject.try_acquire("db", permits, case.now_ms):
            pass
        opens_ms = case.subject.opens_at_ms("db", permits, case.now_ms)
        if opens_ms is None:
            in_vain += 1
            continue
        case.advance(opens_ms - case.now_ms)
        kept += case.subject.try_acquire("db", permits, case.now_ms)
    assert in_vain <= cases // 100, "of all that is asked for there is an end in sight"
    assert kept >= 0.99 * (cases - in_vain)


def test_a_permit_is_not_told_later_than_it_comes() -> None:
    for seed in range(200):
        dice = random.Random(seed)
        case = Case(dice)
        case.spend(dice)
        while case.subject.try_acquire("db", 1, case.now_ms):
            pass
        opens_ms = case.subject.opens_at_ms("db", 1, case.now_ms)
        assert opens_ms is not None
        case.advance(opens_ms - 1 - case.now_ms)
        assert case.now_ms < opens_ms
        assert not case.subject.try_acquire("db", 1, case.now_ms)


def test_who_comes_later_is_told_when_those_before_it_have_theirs() -> None:
    subject = engine()
    subject.offer([own(capacity=10, until_window=W0 + 9)], START_MS)
    now_ms = START_MS + 1_000
    for caller in range(25):
        assert subject.enqueue("db", 1, caller, now_ms, 0) is not None
    assert subject.waiting("db") == 15, "ten were granted at once"
    assert subject.opens_at_ms("db", 1, now_ms) == START_MS + WINDOW_MS + 250
    assert subject.retry_at_ms("db", 5, now_ms) == START_MS + 2 * WINDOW_MS + 250
    assert subject.retry_at_ms("db", 6, now_ms) == START_MS + 3 * WINDOW_MS + 250
    assert subject.allowance("db", now_ms).opens_at_ms == START_MS + 2 * WINDOW_MS + 250


def test_the_time_that_is_told_is_right_with_others_waiting_too() -> None:
    cases, told, kept = 300, 0, 0
    for seed in range(cases):
        dice = random.Random(seed)
        case = Case(dice)
        case.spend(dice)
        points = sum(end - start for start, end in case.intervals)
        fewest = max(1, case.capacity * points // POINTS)
        for caller in range(dice.randrange(20)):
            costs = dice.randint(1, max(1, fewest // 3))
            case.subject.enqueue("db", costs, caller, case.now_ms, 0)
        permits = dice.choice([1, max(1, fewest // 2)])
        opens_ms = case.subject.retry_at_ms("db", permits, case.now_ms)
        if opens_ms is None:
            continue
        told += 1
        while case.now_ms < opens_ms:
            case.advance(min(opens_ms - case.now_ms, 500))
            case.subject.pump("db", case.now_ms, 0)
        kept += case.subject.account("db").take(permits, -1, case.now_ms, 0)
    assert told >= 0.85 * cases, "the others would wait for more than an hour"
    assert kept >= 0.99 * told


def test_of_a_long_queue_only_a_part_is_looked_at_one_by_one() -> None:
    subject = engine()
    subject.offer([own(capacity=1_000, until_window=W0 + 9)], START_MS)
    assert subject.try_acquire("db", 1_000, START_MS + 1_000)
    for caller in range(2_500):
        subject.enqueue("db", 1, caller, START_MS + 1_000, 0)
    third = START_MS + 3 * WINDOW_MS + 250
    assert subject.retry_at_ms("db", 500, START_MS + 1_000) == third
    assert subject.retry_at_ms("db", 501, START_MS + 1_000) == third + WINDOW_MS


def test_shares_of_a_fifth_of_a_permit_take_turns() -> None:
    members, windows = 5, 100
    bounds = [(POINTS * n // members, POINTS * (n + 1) // members) for n in range(members)]
    fleet = [engine() for _ in range(members)]
    turns: list[list[int]] = [[] for _ in range(members)]
    for subject, bound in zip(fleet, bounds, strict=True):
        share = own(capacity=1, intervals=(bound,), until_window=W0 + windows, pacing=Pacing.EVEN)
        subject.offer([share], START_MS)
    for window in range(windows):
        now_ms = START_MS + window * WINDOW_MS + 30_000
        served = [n for n, subject in enumerate(fleet) if subject.try_acquire("db", 1, now_ms)]
        assert len(served) == 1, "exactly the capacity, in each window"
        turns[served[0]].append(window)
    for own_turns in turns:
        assert abs(len(own_turns) - windows / members) <= 1
        gaps = [after - before for before, after in pairwise(own_turns)]
        assert max(gaps) <= 2 * members
