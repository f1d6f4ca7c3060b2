"""One's own clock against the dates of answers: what is certain, and what follows from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.http_face import Served
from tests.support.real_clients import await_condition
from tests.unit.test_view import document
from worker_sdk import Mode, PermitClient
from worker_sdk.core.clockcheck import ClockCheck, Dated
from worker_sdk.core.ledger import Ledger
from worker_sdk.runtime.clocks import SystemClock
from worker_sdk.testing import ManualClock
from worker_sdk.transports.base import Identity, Reading
from worker_sdk.transports.dates import Dates, mono_ms
from worker_sdk.transports.http import HttpSource
from worker_sdk.transports.memory import MemorySink
from worker_sdk.wire.distribution import OwnShare, Pacing, Terms
from worker_sdk.wire.shares import POINTS

GUARD_MS = 250
SAFE = 30
SHARE = 100
NOW_MS = 1_796_000_000_000


def dated(true_ms: int, mono_ms: int, *, took_ms: int = 20) -> Dated:
    """Return what an answer says that was written as it arrived."""
    return Dated(true_ms // 1000 * 1000, mono_ms - took_ms, mono_ms)


@given(
    off_ms=st.integers(-20_000, 20_000),
    phases=st.lists(st.integers(0, 999), min_size=1, max_size=20),
    took_ms=st.integers(0, 400),
)
def test_a_difference_is_never_told_that_is_not_there(
    off_ms: int, phases: list[int], took_ms: int
) -> None:
    check = ClockCheck()
    for number, phase in enumerate(phases):
        at_ms = number * 10_000 + phase
        check.note(dated(NOW_MS + at_ms, at_ms, took_ms=took_ms))
        ahead_ms = check.ahead_ms(NOW_MS + at_ms + off_ms, at_ms)
        assert 0 <= ahead_ms <= off_ms or off_ms <= ahead_ms <= 0


@pytest.mark.parametrize("off_ms", [-2000, -600, 600, 2000, 3_600_000, -7_200_000])
def test_of_some_answers_a_difference_beyond_the_guard_is_found(off_ms: int) -> None:
    check = ClockCheck()
    for number in range(12):
        at_ms = number * 10_000 + number * 170 % 1000
        check.note(dated(NOW_MS + at_ms, at_ms))
    found_ms = check.ahead_ms(NOW_MS + at_ms + off_ms, at_ms)
    assert abs(found_ms) > GUARD_MS
    assert (found_ms > 0) == (off_ms > 0)


def test_a_step_of_ones_own_clock_is_seen_without_another_answer() -> None:
    check = ClockCheck()
    check.note(dated(NOW_MS, 0))
    assert check.ahead_ms(NOW_MS + 60_000, 60_000) == 0
    assert 3_800 < check.ahead_ms(NOW_MS + 65_000, 60_000) <= 5_000
    assert -5_100 < check.ahead_ms(NOW_MS + 55_000, 60_000) <= -4_000


def test_an_answer_that_contradicts_the_others_replaces_them() -> None:
    check = ClockCheck()
    check.note(dated(NOW_MS, 0))
    # The monotonic clock stood still for an hour, as it does while a machine sleeps.
    check.note(dated(NOW_MS + 3_600_000, 1_000))
    assert check.ahead_ms(NOW_MS + 3_600_000, 1_000) == 0


def test_without_answers_nothing_is_certain() -> None:
    assert ClockCheck().ahead_ms(NOW_MS, 0) == 0


@pytest.mark.parametrize(
    ("date", "age", "count"),
    [
        (formatdate(NOW_MS / 1000, usegmt=True), None, 1),
        (formatdate(NOW_MS / 1000, usegmt=True), "0", 1),
        (formatdate(NOW_MS / 1000, usegmt=True), "17", 0),
        (None, None, 0),
        ("yesterday", None, 0),
        ("Mon, 30 Nov 2026 12:00:00", None, 0),
    ],
)
def test_only_a_whole_and_fresh_date_says_something(
    date: str | None, age: str | None, count: int
) -> None:
    dates = Dates()
    dates.note(mono_ms(), date, age)
    found = dates.take()
    assert len(found) == count
    assert all(entry.date_ms == NOW_MS // 1000 * 1000 for entry in found)
    assert dates.take() == ()


class Server:
    """A source of one document, whose answers have the right date."""

    can_wait = False

    def __init__(self, true: ManualClock, own: ManualClock) -> None:
        self._true = true
        self._own = own
        self.reads = 0

    def read(self, held: Mapping[int, int], wait_seconds: float) -> Reading:
        self.reads += 1
        window = NOW_MS // 60_000
        terms = Terms(
            "db", SHARE, 60, window - 1, window + 600, guard_ms=GUARD_MS, pacing=Pacing.WINDOW
        )
        safe_points = POINTS // SHARE * SAFE
        share = OwnShare(0, 1, NOW_MS, NOW_MS + 36_000_000, terms, ((0, POINTS),), safe_points)
        return Reading((share,), dates=(dated(self._true.wall_ms(), self._own.mono_ms()),))

    def interrupt(self) -> None:
        """Do nothing."""


class Apart:
    """A client whose clock can be set apart from the server's."""

    def __init__(self) -> None:
        start_ms = NOW_MS // 60_000 * 60_000 + 20_000
        self.true, self.own = ManualClock(start_ms), ManualClock(start_ms)
        self.server = Server(self.true, self.own)
        self.client = PermitClient(
            destinations=["db"],
            kafka=MemorySink,
            distribution=lambda _: self.server,
            host="web",
            clock=self.own,
        )
        self.db = self.client.destination("db")

    def advance(self, seconds: float) -> None:
        self.true.advance(seconds)
        self.own.advance(seconds)

    def mode_becomes(self, mode: Mode) -> None:
        await_condition(lambda: self.db.state.mode is mode, f"it is {mode}")


@pytest.fixture
def apart() -> Iterator[Apart]:
    made = Apart()
    with made.client:
        made.mode_becomes(Mode.FRESH)
        yield made


@pytest.mark.parametrize("step_seconds", [5.0, -5.0])
def test_beyond_the_guard_only_safe_permits_are_given_until_the_clock_is_right(
    apart: Apart, step_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    assert apart.client.state.clock_ahead_seconds == 0
    with caplog.at_level(logging.WARNING, "worker_sdk"):
        apart.own.step_wall(step_seconds)
        apart.mode_becomes(Mode.SKEWED)
        await_condition(lambda: "clock: it is" in caplog.text, "it is told")
    assert 3.5 < abs(apart.client.state.clock_ahead_seconds) <= 5
    assert apart.db.try_acquire(SAFE)
    assert not apart.db.try_acquire()
    assert apart.db.state.used_by_mode["skewed"] == SAFE
    apart.own.step_wall(-step_seconds)
    apart.mode_becomes(Mode.FRESH)
    assert apart.db.try_acquire(SHARE - SAFE)
    assert not apart.db.try_acquire()  # what was spent before counts


def test_what_was_spent_before_the_clock_stepped_counts_against_the_safe_permits(
    apart: Apart,
) -> None:
    assert apart.db.try_acquire(SAFE + 1)
    apart.own.step_wall(5)
    apart.mode_becomes(Mode.SKEWED)
    assert not apart.db.try_acquire()


def test_the_guard_of_each_destination_is_the_limit(apart: Apart) -> None:
    (share,) = apart.server.read({}, 0).shares
    ledger = Ledger()
    now_ms = apart.own.now_ms
    ledger.offer(share, now_ms)
    assert not ledger.mind_skew(GUARD_MS, now_ms)
    assert ledger.allowance(now_ms).mode is Mode.FRESH
    assert ledger.mind_skew(GUARD_MS + 1, now_ms)
    assert ledger.allowance(now_ms).mode is Mode.SKEWED
    assert ledger.take_up_to(SHARE, now_ms) == SAFE
    assert ledger.opens_at_ms(SAFE + 1, now_ms) is None  # no window gives more, for so long
    assert not ledger.mind_skew(0, now_ms)
    assert ledger.take_up_to(SHARE, now_ms) == SHARE - SAFE


def test_a_step_back_an_hour_and_then_forward_two_gives_safe_permits_at_most(
    apart: Apart,
) -> None:
    for step_seconds in (-3600, 7200):
        apart.own.step_wall(step_seconds)
        taken = sum(apart.db.try_acquire() for _ in range(SHARE + 10))
        apart.advance(60)
        apart.mode_becomes(Mode.SKEWED if step_seconds > 0 else Mode.STARTING)
        assert taken <= SHARE
        assert sum(apart.db.try_acquire() for _ in range(SHARE + 10)) <= SAFE
    apart.own.step_wall(-3600)
    apart.mode_becomes(Mode.FRESH)


async def test_every_answer_of_a_balancer_has_its_date(served: Served) -> None:
    check = ClockCheck()
    source = HttpSource(Identity("a", "i", ("orders-db",)), served.url)
    for has_document in (False, True, True):  # nothing yet, a document, and nothing new
        if has_document:
            served.view.publish(0, [document(1, "a")])
        reading = await asyncio.to_thread(source.read, {}, 0.0)
        (found,) = reading.dates
        check.note(found)
    clock = SystemClock()
    assert check.ahead_ms(clock.wall_ms(), clock.mono_ms()) == 0
    assert check.ahead_ms(clock.wall_ms() + 3_000, clock.mono_ms()) > 1_000
