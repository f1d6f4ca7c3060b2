"""What the engine reports: used, denied, granted, starved and busy, and that nothing doubles."""

from __future__ import annotations

from collections.abc import Hashable

from tests.unit.test_engine import START_MS, W0, WINDOW_MS, engine, own, take_all
from worker_sdk.core.engine import Engine
from worker_sdk.core.waiters import Delivery, Waiter
from worker_sdk.wire.distribution import Pacing
from worker_sdk.wire.shares import POINTS
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple


def started(capacity: int = 10, **terms: int | Pacing) -> Engine:
    subject = engine()
    subject.hello(START_MS, 0)
    subject.offer([own(capacity=capacity, until_window=W0 + 20, **terms)], START_MS)  # type: ignore[arg-type]  # a few of the keywords
    return subject


def drained(subject: Engine, at_ms: int) -> UsageBatch:
    batch = subject.drain(START_MS + at_ms, at_ms, MemberState.RUNNING)
    assert batch is not None
    return batch


def account(subject: Engine, at_ms: int) -> UsageTuple:
    (entry,) = drained(subject, at_ms).tuples
    return entry


def wait(subject: Engine, at_ms: int, permits: int = 1, caller: Hashable = 1) -> Waiter:
    waiter = subject.enqueue("db", permits, caller, START_MS + at_ms, at_ms)
    assert waiter is not None
    return waiter


def pump(subject: Engine, at_ms: int) -> list[Waiter]:
    return subject.pump("db", START_MS + at_ms, at_ms)


def test_hello_names_every_destination_with_nothing_counted() -> None:
    batch = engine("a", "b").hello(START_MS, 0)
    assert batch.state is MemberState.STARTING
    assert [entry.destination for entry in batch.tuples] == ["a", "b"]
    assert all(entry.from_ms == entry.instant_ms == START_MS for entry in batch.tuples)


def test_a_tuple_spans_the_monotonic_time_since_the_one_before() -> None:
    subject = started()
    first, second = account(subject, 30_000), account(subject, 90_000)
    assert (first.from_ms, first.instant_ms) == (START_MS, START_MS + 30_000)
    assert (second.from_ms, second.instant_ms) == (START_MS + 30_000, START_MS + 90_000)


def test_a_wall_clock_that_steps_leaves_the_time_elapsed_right() -> None:
    subject = started()
    batch = subject.drain(START_MS - 3_600_000, 60_000, MemberState.RUNNING)
    assert batch is not None
    assert batch.tuples[0].instant_ms == START_MS - 3_600_000
    assert batch.tuples[0].from_ms == START_MS - 3_660_000


def test_used_and_denied_are_counted_once() -> None:
    subject = started(capacity=10)
    assert take_all(subject, START_MS + 1000) == 10
    subject.try_acquire("db", 3, START_MS + 2000)
    first = account(subject, 30_000)
    assert (first.used, first.denied) == (10, 4)
    second = account(subject, 31_000)
    assert (second.used, second.denied) == (0, 0)


def test_the_permits_of_each_window_are_granted_once_over_successive_tuples() -> None:
    subject = started(capacity=100, pacing=Pacing.EVEN)
    granted = [account(subject, at_ms).granted for at_ms in range(7_000, 300_001, 7_000)]
    assert sum(granted) == 4 * 100 + granted_at(subject, 294_000)
    assert max(granted) < 40


def granted_at(subject: Engine, at_ms: int) -> int:
    twin = started(capacity=100, pacing=Pacing.EVEN)
    window_ms = at_ms // WINDOW_MS * WINDOW_MS
    return take_all(twin, START_MS + window_ms + at_ms % WINDOW_MS)


def test_permits_granted_grow_by_the_difference_when_a_share_grows_within_a_window() -> None:
    subject = started(capacity=10)
    assert account(subject, 1_000).granted == 10
    subject.offer([own(2, capacity=25)], START_MS + 2_000)
    assert account(subject, 3_000).granted == 15


def test_a_failed_flush_is_merged_into_the_next_and_not_doubled() -> None:
    subject = started(capacity=10)
    take_all(subject, START_MS + 1000)
    waiting = wait(subject, 2_000)
    lost = drained(subject, 30_000)
    assert (lost.tuples[0].used, lost.tuples[0].denied) == (10, 2)
    subject.restore(lost)
    merged = account(subject, 40_000)
    assert (merged.used, merged.denied) == (10, 2)
    assert merged.from_ms == START_MS
    assert not waiting.granted


def test_flushes_that_fail_again_and_again_keep_exact_sums() -> None:
    subject = started(capacity=10)
    for n in range(5):
        take_all(subject, START_MS + n * WINDOW_MS + 1000)
        subject.restore(drained(subject, n * WINDOW_MS + 30_000))
    final = account(subject, 5 * WINDOW_MS)
    assert (final.used, final.denied, final.granted) == (50, 5, 50)
    assert final.from_ms == START_MS


def test_a_waiter_that_is_served_after_a_failed_flush_was_not_denied() -> None:
    subject = started(capacity=1)
    assert wait(subject, 1_000).granted
    second = wait(subject, 2_000)
    subject.restore(drained(subject, 30_000))
    assert pump(subject, WINDOW_MS + 1_000) == [second]
    merged = account(subject, WINDOW_MS + 2_000)
    assert (merged.used, merged.denied) == (2, 0)


def test_a_waiter_that_gives_up_is_denied_once() -> None:
    subject = started(capacity=1)
    wait(subject, 1_000)
    waiter = wait(subject, 2_000, permits=1)
    assert account(subject, 30_000).denied == 1
    assert subject.give_up(waiter, 31_000)
    assert account(subject, 40_000).denied == 0
    later = wait(subject, 41_000)
    assert subject.give_up(later, 42_000)
    assert account(subject, 43_000).denied == 1


def test_waiters_are_served_in_order_and_nobody_passes_them() -> None:
    subject = started(capacity=4)
    take_all(subject, START_MS + 1000)
    waiters = [wait(subject, 2_000 + n, permits, n) for n, permits in enumerate((3, 1, 1))]
    next_ms = WINDOW_MS + 1_000
    assert not subject.try_acquire("db", 1, START_MS + next_ms)
    assert pump(subject, next_ms) == waiters[:2]
    assert pump(subject, 2 * WINDOW_MS + 1_000) == waiters[2:]
    assert subject.try_acquire("db", 1, START_MS + 2 * WINDOW_MS + 1_000)


def test_a_blocking_worker_shows_its_hunger_by_starved_time() -> None:
    subject = started(capacity=2)
    assert wait(subject, 1_000).granted
    assert wait(subject, 11_000).granted  # ten seconds of delivery, then it asks again
    assert not wait(subject, 21_000).granted
    assert account(subject, 41_000).starved_ms == 20_000
    pump(subject, WINDOW_MS + 250)
    assert account(subject, WINDOW_MS + 10_000).starved_ms == WINDOW_MS + 250 - 41_000


def test_time_is_not_starved_while_something_is_in_delivery() -> None:
    subject = started(capacity=1)
    first = Delivery()
    assert wait(subject, 1_000, caller=first).granted
    wait(subject, 2_000, caller=Delivery())
    assert account(subject, 12_000).starved_ms == 0
    subject.end_delivery("db", first, 15_000)
    assert account(subject, 20_000).starved_ms == 5_000


def test_more_waiters_than_ever_delivered_at_once_speak_by_denials_alone() -> None:
    subject = started(capacity=1)
    first = Delivery()
    assert wait(subject, 1_000, caller=first).granted
    subject.end_delivery("db", first, 1_500)
    for n in range(5):
        wait(subject, 2_000 + n, caller=Delivery())
    entry = account(subject, 30_000)
    assert entry.starved_ms < 10
    assert entry.denied == 5


def test_busy_time_adds_up_over_deliveries_at_the_same_time() -> None:
    subject = started(capacity=10)
    first, second = Delivery(), Delivery()
    wait(subject, 1_000, caller=first)
    wait(subject, 2_000, caller=second)
    subject.end_delivery("db", first, 5_000)
    subject.end_delivery("db", first, 6_000)  # once is enough
    subject.end_delivery("db", second, 7_000)
    assert account(subject, 10_000).busy_ms == 4_000 + 5_000


def test_a_member_that_starves_from_its_first_moment_says_so() -> None:
    subject = engine()
    subject.hello(START_MS, 0)
    wait(subject, 0)
    entry = account(subject, 60_000)
    assert (entry.used, entry.denied, entry.starved_ms, entry.epoch) == (0, 1, 60_000, 0)


def test_a_goodbye_says_what_was_spent_and_ends_all_granting() -> None:
    subject = started(capacity=10)
    handle = subject.account("db")
    assert subject.try_acquire("db", 7, START_MS + 1000)
    batch = subject.goodbye(START_MS + 5_000, 5_000)
    assert batch.state is MemberState.LEAVING
    assert batch.spent == {"db": (W0, 7)}
    assert batch.tuples[0].used == 7
    assert not subject.try_acquire("db", 1, START_MS + 6_000)
    assert not handle.try_acquire(1, START_MS + WINDOW_MS + 1_000)
    subject.offer([own(9, capacity=50)], START_MS + 6_000)
    assert not handle.try_acquire(1, START_MS + 7_000)


def test_reports_name_the_epoch_in_force_and_acknowledge_the_newest_held() -> None:
    subject = started()
    subject.offer([own(5, from_window=W0 + 30, until_window=W0 + 31)], START_MS)
    batch = drained(subject, 10_000)
    assert batch.epochs == {0: 5}
    assert batch.tuples[0].epoch == 1


def test_memory_is_bounded_by_destinations_in_a_long_outage() -> None:
    subject = started(capacity=POINTS)
    for n in range(200):
        take_all(subject, START_MS + n * 1000 + 300, most=50)
        subject.restore(drained(subject, n * 1000 + 400))
    assert len(drained(subject, 300_000).tuples) == 1
