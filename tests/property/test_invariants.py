"""Invariants looked at by columns, beside the same said interval by interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from balancer.core.columns import ints
from balancer.core.invariants import promises_kept, shares_fit, windows_agree
from balancer.core.model import MemberRecord
from balancer.core.rows import Rows
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Hold, Terms
from worker_sdk.wire.shares import POINTS, Interval

HOSTS = "abcd"
TERMS = Terms("db", 100, 60, 30_000_000, 30_000_001)

bounds = st.tuples(st.integers(0, 12), st.integers(1, 4)).map(lambda at: (at[0], at[0] + at[1]))
intervals = st.lists(bounds, max_size=3).map(tuple)
lines = st.dictionaries(st.sampled_from(HOSTS), intervals, max_size=4).map(
    lambda known: tuple(Entry(host, "i", pieces, 0) for host, pieces in known.items())
)


def document(entries: Sequence[Entry], epoch: int = 1, holds: tuple[Hold, ...] = ()) -> Document:
    return Document(0, epoch, 0, 0, (DestinationShares(TERMS, holds, tuple(entries)),))


def meet(one: Interval, other: Interval) -> bool:
    return one[0] < other[1] and other[0] < one[1]


@given(lines, lines, st.sets(st.sampled_from(HOSTS)))
def test_no_point_of_a_window_goes_to_two_members_unless_the_first_has_left(
    before: tuple[Entry, ...], after: tuple[Entry, ...], left: set[str]
) -> None:
    records = {
        (host, "i"): MemberRecord(host, "i", None, 0, 0, left_ms=0 if host in left else None)
        for host in "abc"  # of d nothing is known any more
    }
    contested = sorted(  # what is carried on unchanged was looked at before
        f"db: points of {old.host} given to {new.host} too"
        for new in after
        for old in before
        if before != after and new.host != old.host and old.host not in left & set("abc")
        for ours in new.intervals
        for theirs in old.intervals
        if meet(ours, theirs)
    )
    found = windows_agree(document(after, 2), [document(before)], records)
    assert sorted(found) == contested


@given(lines, st.lists(bounds, max_size=3))
def test_intervals_fit_if_no_two_of_them_meet(
    entries: tuple[Entry, ...], held: list[Interval]
) -> None:
    every = [*held, *(piece for entry in entries for piece in entry.intervals)]
    meets = any(meet(one, other) for n, one in enumerate(every) for other in every[:n])
    holds = tuple(Hold(*piece, 0) for piece in held)
    assert bool(shares_fit(document(entries, holds=holds))) == meets


def test_what_is_no_interval_of_points_is_told() -> None:
    for piece in ((-1, 5), (5, 5), (6, 5), (5, POINTS + 1)):
        assert shares_fit(document([Entry("a", "i", (piece,), 0)]))
    assert shares_fit(document([Entry("a", "i", (), 1)]))
    assert shares_fit(document([Entry("a", "i", (), 0), Entry("a", "i", (), 0)]))
    assert not shares_fit(document([Entry("a", "i", ((0, POINTS),), POINTS)]))


def test_a_promise_is_kept_by_an_unbroken_interval_or_a_hold() -> None:
    live = Rows.of([("a", "i"), ("b", "i")])

    def faults(*pieces: Interval, needs: int, gone: int = 0, held: int = 0) -> list[str]:
        entries = [Entry("a", "i", pieces, 0)] if pieces else []
        holds = (Hold(90, 90 + held, 0),) if held else ()
        line = DestinationShares(TERMS, holds, tuple(entries))
        return promises_kept(line, live, ints([needs, 0]), {("c", "i"): gone})

    assert not faults((0, 10), needs=10)
    assert faults((0, 9), needs=10)
    assert faults((0, 9), (20, 29), needs=10)
    assert faults(needs=10)
    assert not faults(needs=10, held=10)
    assert faults((0, 10), needs=10, gone=5)
    assert not faults((0, 10), needs=10, gone=5, held=5)
    assert faults((0, 10), needs=10, gone=5, held=4)


def test_two_capacities_in_one_window_are_told_also_where_all_shares_stay() -> None:
    before = document([Entry("a", "i", ((0, 10),), 0)])
    (line,) = before.destinations
    lowered = replace(line, terms=replace(TERMS, capacity=50))
    after = replace(before, epoch=2, destinations=(lowered,))
    assert windows_agree(after, [before], {}) == ["db: two capacities in one window"]
