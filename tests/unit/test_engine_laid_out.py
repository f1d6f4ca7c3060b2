"""Permits laid out to be taken without the lock: each is spent once or comes back, and counts."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable

import pytest

from tests.unit.test_engine import START_MS, W0, WINDOW_MS, engine, own
from worker_sdk import DestinationHandle
from worker_sdk.core.account import Account
from worker_sdk.core.engine import Engine
from worker_sdk.core.purse import PURSE_PERMITS
from worker_sdk.runtime.birthmark import NOBODYS, present_birthmark
from worker_sdk.testing import InMemoryBalancer, ManualClock, wait_until_ready
from worker_sdk.wire.distribution import Pacing
from worker_sdk.wire.usage import MemberState

NOW_MS = START_MS + 1_000
MONO_MS = 1_000
NS = 1_000_000


def laying_out(capacity: int = 100, pacing: Pacing = Pacing.WINDOW) -> tuple[Engine, Account]:
    subject = engine()
    subject.hello(START_MS, 0)
    subject.offer([own(capacity=capacity, until_window=W0 + 5, pacing=pacing)], START_MS)
    account = subject.account("db")
    account.lays_out = True
    return subject, account


def take_laid_out(account: Account, most: int, now_ms: int = NOW_MS, caller: int = 1) -> int:
    """Take as a handle does: look at the time, take, note."""
    purse, taken = account.ledger.purse, 0
    while taken < most and purse.from_ns <= now_ms * NS < purse.until_ns:
        for _ in purse.permits:
            purse.takers[caller] = now_ms * NS
            taken += 1
            break
        else:
            break
    return taken


def drained_used(subject: Engine, at_ms: int) -> int:
    batch = subject.drain(START_MS + at_ms, at_ms, MemberState.RUNNING)
    assert batch is not None
    return batch.tuples[0].used


def test_what_is_taken_of_them_is_spent_and_the_rest_comes_back() -> None:
    subject, account = laying_out(capacity=100)
    assert account.take(1, 1, NOW_MS, MONO_MS)
    assert take_laid_out(account, 7) == 7
    assert subject.allowance("db", NOW_MS).left_permits == 92
    assert take_laid_out(account, 1) == 0, "taken back"
    assert drained_used(subject, 2_000) == 8


def test_only_a_part_is_laid_out_and_nothing_where_that_is_not_allowed() -> None:
    _, account = laying_out(capacity=3 * PURSE_PERMITS)
    assert account.take(1, 1, NOW_MS, MONO_MS)
    assert take_laid_out(account, 2 * PURSE_PERMITS) == PURSE_PERMITS
    _, other = laying_out()
    other.lays_out = False
    assert other.take(1, 1, NOW_MS, MONO_MS)
    assert take_laid_out(other, 1) == 0


@pytest.mark.parametrize("permits", [1, 10, 100])
def test_who_asks_under_the_lock_finds_what_is_laid_out(permits: int) -> None:
    subject, account = laying_out(capacity=101)
    assert account.take(1, 1, NOW_MS, MONO_MS)
    assert subject.try_acquire("db", permits, NOW_MS)
    assert take_laid_out(account, 200) == 0
    assert subject.allowance("db", NOW_MS).left_permits == 100 - permits


def test_nobody_passes_a_waiter() -> None:
    subject, account = laying_out(capacity=10)
    assert account.take(1, 1, NOW_MS, MONO_MS)
    waiter = subject.enqueue("db", 10, 2, NOW_MS, MONO_MS)
    assert waiter is not None
    assert not waiter.granted
    assert take_laid_out(account, 1) == 0
    account.lay_out(NOW_MS, MONO_MS)
    assert take_laid_out(account, 1) == 0
    assert not account.take(1, 3, NOW_MS, MONO_MS)


def ends_by_offer(subject: Engine) -> None:
    subject.offer([own(2, capacity=40, until_window=W0 + 5)], NOW_MS)


def ends_by_a_document_without_us(subject: Engine) -> None:
    subject.offer([own(2, destination="other")], NOW_MS)


def ends_by_refund(subject: Engine) -> None:
    subject.refund("db", 1, NOW_MS)


def ends_by_goodbye(subject: Engine) -> None:
    assert subject.goodbye(NOW_MS, MONO_MS).spent == {"db": (W0, 6)}


def ends_by_a_later_window(subject: Engine) -> None:
    assert subject.try_acquire("db", 1, NOW_MS + WINDOW_MS)
    assert subject.allowance("db", NOW_MS).spent_permits == 6


def ends_by_a_clock_that_steps_back(subject: Engine) -> None:
    assert subject.try_acquire("db", 1, NOW_MS - 500)


@pytest.mark.parametrize(
    "change",
    [
        ends_by_offer,
        ends_by_a_document_without_us,
        ends_by_refund,
        ends_by_goodbye,
        ends_by_a_later_window,
        ends_by_a_clock_that_steps_back,
    ],
)
def test_every_change_takes_them_back_first(change: Callable[[Engine], None]) -> None:
    subject, account = laying_out(capacity=50)
    assert account.take(1, 1, NOW_MS, MONO_MS)
    assert take_laid_out(account, 5) == 5
    seen = account.ledger.purse.permits
    change(subject)
    assert list(seen) == [], "whoever still looks at them finds none"
    assert take_laid_out(account, 1) == 0


def test_they_are_good_for_the_time_of_their_window_only() -> None:
    _, account = laying_out()
    assert account.take(1, 1, NOW_MS, MONO_MS)
    closes_ms = START_MS + WINDOW_MS - 250
    assert take_laid_out(account, 1, closes_ms) == 0
    assert take_laid_out(account, 1, NOW_MS - 1) == 0
    assert take_laid_out(account, 1, closes_ms - 1) == 1


def test_under_even_pacing_what_is_not_released_yet_is_not_laid_out() -> None:
    _, account = laying_out(capacity=100, pacing=Pacing.EVEN)
    opens_ms = START_MS + 250
    assert account.take(1, 1, opens_ms, 250)
    assert take_laid_out(account, 100, opens_ms + 30_000) == 9, "the rest of the first tenth"
    assert account.take(1, 1, opens_ms + 30_000, 30_250)
    assert take_laid_out(account, 100, opens_ms + 30_000) > 30


def test_a_delivery_whose_permit_was_laid_out_is_known_as_under_way() -> None:
    subject, account = laying_out(capacity=2)
    assert account.take(1, 1, NOW_MS, 1_000)
    assert take_laid_out(account, 1, NOW_MS + 4_000, caller=1) == 1
    waiter = subject.enqueue("db", 1, 2, NOW_MS + 9_000, 10_000)
    assert waiter is not None
    assert not waiter.granted
    batch = subject.drain(START_MS + 20_000, 20_000, MemberState.RUNNING)
    assert batch is not None
    assert batch.tuples[0].starved_ms == 0, "caller 1 delivers, as far as anybody knows"
    assert not subject.account("db").take(1, 1, START_MS + 21_000, 21_000)
    batch = subject.drain(START_MS + 31_000, 31_000, MemberState.RUNNING)
    assert batch is not None
    assert batch.tuples[0].starved_ms == 10_000, "it asked again, so it has delivered"


def test_a_delivery_is_forgotten_a_minute_after_its_permit_was_taken() -> None:
    subject, account = laying_out(capacity=2)
    assert account.take(1, 1, NOW_MS, MONO_MS)
    assert take_laid_out(account, 1, NOW_MS + 1_000, caller=1) == 1
    assert subject.enqueue("db", 1, 2, NOW_MS + 50_000, MONO_MS + 50_000) is not None
    for second in range(60):
        account.advance(MONO_MS + 50_000 + second * 1_000)
    at_ms = MONO_MS + 110_000
    batch = subject.drain(START_MS + at_ms, at_ms, MemberState.RUNNING)
    assert batch is not None
    assert 47_000 <= batch.tuples[0].starved_ms <= 50_000


def test_many_tasks_that_take_one_each_leave_no_more_notes_than_permits_were_laid_out() -> None:
    _, account = laying_out(capacity=100_000)
    for caller in range(5 * PURSE_PERMITS):
        if not take_laid_out(account, 1, caller=caller):
            assert account.take(1, caller, NOW_MS, MONO_MS)
        assert len(account.ledger.purse.takers) <= PURSE_PERMITS


@pytest.fixture
def hasty_threads() -> object:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def take_until_refused(handle: DestinationHandle, *, at_once: int) -> int:
    """Take as long as there are permits; return how many, less what was given back."""
    taken = 0
    while handle.try_acquire(at_once):
        taken += at_once
        if at_once > 1 and taken % 100 == 0:
            taken -= handle.refund()
    return taken


@pytest.mark.usefixtures("hasty_threads")
def test_threads_get_exactly_the_share_while_others_look_report_and_refund() -> None:
    capacity, threads = 60_000, 8
    with InMemoryBalancer({"db": capacity}).client(clock=ManualClock()) as client:
        wait_until_ready(client)
        handle = client.destination("db")
        taken = [0] * threads

        def work(number: int) -> None:
            taken[number] = take_until_refused(handle, at_once=1 if number % 2 else 3)

        running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        while any(thread.is_alive() for thread in running):
            assert handle.state.left_permits >= 0
        for thread in running:
            thread.join(30)
        assert sum(taken) + take_until_refused(handle, at_once=1) == capacity
        assert handle.state.spent_permits == capacity


def test_a_finaliser_amid_another_call_may_take_what_is_laid_out() -> None:
    class Interrupting(ManualClock):
        interrupt: Callable[[], object] | None = None

        def wall_ms(self) -> int:
            interrupt, self.interrupt = self.interrupt, None
            if interrupt is not None:
                interrupt()
            return super().wall_ms()

    clock = Interrupting()
    with InMemoryBalancer({"db": 10}).client(clock=clock) as client:
        wait_until_ready(client)
        handle = client.destination("db")
        assert handle.try_acquire()
        heard: list[bool] = []
        clock.interrupt = lambda: heard.append(handle.try_acquire())
        assert handle.try_acquire(2)
        assert heard == [True]
        assert handle.state.used == 4


@pytest.mark.skipif(sys.platform != "linux", reason="a C library's fork by its Linux name")
def test_the_mark_of_a_process_is_not_its_childs_whatever_way_it_was_forked() -> None:
    mark = present_birthmark()
    assert (mark[0], NOBODYS[0], present_birthmark() is mark) == (1, 0, True)
    child = ctypes.CDLL(None).fork()
    if child == 0:
        os._exit(10 + mark[0] + 2 * present_birthmark()[0])
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 12
    assert mark[0] == 1
