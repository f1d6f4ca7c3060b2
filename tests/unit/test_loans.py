"""When a member says out of turn that it has run out, and what it says."""

from __future__ import annotations

import pytest

from worker_sdk.core.engine import Engine
from worker_sdk.core.loans import Loans
from worker_sdk.wire.distribution import OwnShare, Pacing, Terms
from worker_sdk.wire.shares import POINTS
from worker_sdk.wire.usage import MemberState, UsageBatch, decode_batch, encode_batch

WINDOW_MS = 60_000
WINDOW = 30_000_000
START_MS = WINDOW * WINDOW_MS


class Bench:
    """A member with a tenth of 1,000 permits of a destination that lends."""

    def __init__(self, *, lends: bool = True, pacing: Pacing = Pacing.WINDOW) -> None:
        self.engine = Engine("h", "i", ["db"], group="batch")
        self.loans = Loans(self.engine)
        terms = Terms("db", 1000, 60, WINDOW, WINDOW + 2, pacing=pacing, guard_ms=0, lends=lends)
        until_ms = START_MS + 9 * WINDOW_MS
        share = OwnShare(3, 7, START_MS, until_ms, terms, ((0, POINTS // 10),), 0)
        self.engine.offer([share], START_MS)
        assert self.look(0) is None

    def look(self, at_ms: int) -> UsageBatch | None:
        return self.loans.report(START_MS + at_ms)

    def ask(self, permits: int, at_ms: int, times: int = 1) -> None:
        for _ in range(times):
            self.engine.try_acquire("db", permits, START_MS + at_ms)


def test_whoever_has_enough_says_nothing() -> None:
    bench = Bench()
    bench.ask(1, 1_000, times=100)
    assert bench.look(2_000) is None


def test_whoever_has_run_out_gives_an_account_of_the_present_window() -> None:
    bench = Bench()
    bench.ask(1, 1_000, times=130)
    batch = bench.look(6_000)
    assert batch is not None
    assert (batch.host, batch.instance, batch.group) == ("h", "i", "batch")
    assert batch.state is MemberState.RUNNING
    assert batch.epochs == {3: 7}
    (entry,) = batch.tuples
    assert (entry.from_ms, entry.instant_ms) == (START_MS, START_MS + 6_000)
    assert (entry.epoch, entry.granted, entry.used, entry.denied) == (7, 10, 100, 30)
    assert decode_batch(encode_batch(batch)).batch == batch


def test_its_report_in_turn_says_all_of_it_again() -> None:
    bench = Bench()
    bench.ask(1, 1_000, times=130)
    bench.look(6_000)
    batch = bench.engine.drain(START_MS + 30_000, 30_000, MemberState.RUNNING)
    assert batch is not None
    assert (batch.tuples[0].used, batch.tuples[0].denied) == (100, 30)


def test_a_report_in_turn_at_the_same_instant_is_the_later_one() -> None:
    bench = Bench()
    bench.ask(1, 1_000, times=130)
    bench.look(6_000)
    batch = bench.engine.drain(START_MS + 6_000, 6_000, MemberState.RUNNING)
    assert batch is not None
    assert batch.tuples[0].instant_ms == START_MS + 6_001


def test_who_waits_counts_as_refused() -> None:
    bench = Bench()
    bench.ask(100, 1_000)
    bench.engine.enqueue("db", 40, None, START_MS + 2_000, 2_000)
    batch = bench.look(6_000)
    assert batch is not None
    assert batch.tuples[0].denied == 40


def test_it_says_so_again_only_after_a_while_and_if_something_new_was_refused() -> None:
    bench = Bench()
    bench.ask(1, 1_000, times=130)
    assert bench.look(6_000) is not None
    assert bench.look(20_000) is None
    bench.ask(1, 20_000)
    again = bench.look(20_000)
    assert again is not None
    assert again.tuples[0].denied == 31
    bench.ask(1, 21_000)
    assert bench.look(24_900) is None
    assert bench.look(25_000) is not None


def test_what_was_refused_in_an_earlier_window_is_no_want_of_this_one() -> None:
    bench = Bench()
    bench.ask(1, 50_000, times=130)
    assert bench.look(61_000) is None
    assert bench.look(66_000) is None
    bench.ask(200, 67_000)
    batch = bench.look(68_000)
    assert batch is not None
    assert batch.tuples[0].denied == 200


def test_a_refusal_for_the_pace_alone_is_no_want() -> None:
    """A burst is refused, but what was asked for until now would come to less than the share."""
    bench = Bench(pacing=Pacing.EVEN)
    bench.ask(1, 30_000, times=60)
    assert bench.look(40_000) is None


@pytest.mark.parametrize("times", [1, 130])
def test_where_nothing_is_lent_nothing_is_said(times: int) -> None:
    bench = Bench(lends=False)
    bench.ask(1, 1_000, times=times)
    assert bench.look(6_000) is None


def test_whoever_lives_on_an_old_document_says_nothing() -> None:
    bench = Bench()
    at_ms = 3 * WINDOW_MS
    assert bench.look(at_ms) is None
    bench.ask(1, at_ms + 1_000, times=130)
    assert bench.look(at_ms + 6_000) is None
