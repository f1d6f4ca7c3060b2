"""A batch looked at by columns and one looked at tuple by tuple: the same in, the same out."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from worker_sdk.errors import RejectReason
from worker_sdk.wire.limits import (
    EPOCH_MAX,
    INSTANT_MAX_MS,
    INSTANT_MIN_MS,
    PERMITS_MAX,
    SPAN_MAX_MS,
)
from worker_sdk.wire.strict import parse_json
from worker_sdk.wire.usage import DecodedBatch, decode_batch

NOW_MS = 1_790_000_000_000
GOOD: list[object] = ["db", NOW_MS - 60_000, NOW_MS, 7, 10, 9, 2, 0, 50]
edges = [
    -1, 0, 1, EPOCH_MAX, EPOCH_MAX + 1, PERMITS_MAX, PERMITS_MAX + 1, 2**63, 10**19, 10**20, 10**21,
    INSTANT_MIN_MS, INSTANT_MIN_MS - 1, INSTANT_MAX_MS, INSTANT_MAX_MS + 1, NOW_MS + 1,
    NOW_MS - SPAN_MAX_MS, NOW_MS - SPAN_MAX_MS - 1,
]  # fmt: skip
odd = st.one_of(
    st.sampled_from(edges),
    st.sampled_from([0.0, 1.5, float("nan"), float("inf"), -float("inf"), True, False, None]),
    st.sampled_from(["", "a", "3", "x" * 255, "x" * 256, "é" * 127, "é" * 128, "\x1f", "\x7f"]),
    st.sampled_from(["\x85", "a\x00b", "\ud800", "日本", "1" * 30, [], [1], {}, {"a": 1}]),
)
good_rows = st.builds(
    lambda name, instant_ms, span_ms, epoch, counts: [
        name,
        instant_ms - span_ms,
        instant_ms,
        epoch,
        *counts,
    ],
    st.sampled_from(["a", "orders-db", "x" * 255]) | st.text(max_size=12),
    st.integers(NOW_MS - 200_000, NOW_MS) | st.integers(INSTANT_MIN_MS, INSTANT_MAX_MS),
    st.integers(0, SPAN_MAX_MS),
    st.integers(0, EPOCH_MAX),
    st.lists(st.integers(0, PERMITS_MAX), min_size=5, max_size=5),
)


@st.composite
def rows(draw: st.DrawFn) -> object:
    """Draw a row: as it should be, with a wrong value, of another length, or no row at all."""
    row: list[object] = draw(good_rows)
    kind = draw(st.integers(0, 9))
    if kind < 3:
        row[draw(st.integers(0, 8))] = draw(odd)
    elif kind == 3:
        return draw(st.one_of(odd, st.just("ninechars"), st.just({str(i): i for i in range(9)})))
    elif kind == 4:
        return (row + [draw(odd)] * 2)[: draw(st.integers(0, 11))]
    return row


def decode(given_rows: list[object]) -> DecodedBatch:
    body = {"v": 1, "host": "h", "instance": "i", "sent_at_ms": NOW_MS, "state": "running"}
    return decode_batch(json.dumps(body | {"tuples": given_rows}).encode())


@given(st.lists(rows(), max_size=5))
@example([GOOD, [*GOOD[:3], True, *GOOD[4:]]])
@example([GOOD, [*GOOD[:4], 10.0, *GOOD[5:]]])
@example([["a", *GOOD[1:]], ["b", NOW_MS + 1, NOW_MS, *GOOD[3:]]])
@example([GOOD, ["", *GOOD[1:]]])
@example([["a", 10**20, *GOOD[2:]], GOOD])
def test_a_tuple_fares_the_same_whatever_stands_beside_it(given_rows: list[object]) -> None:
    # One bad row more, and nobody can pass over the others by a look at the columns.
    alone, beside = decode(given_rows), decode([*given_rows, []])
    assert alone.batch.tuples == beside.batch.tuples
    assert alone.rejected == beside.rejected[:-1]
    assert beside.rejected[-1].reason is RejectReason.BAD_FIELD
    singly = [decode([row]) for row in given_rows]
    assert alone.batch.tuples == tuple(entry for one in singly for entry in one.batch.tuples)
    assert [(bad.reason, bad.message) for bad in alone.rejected] == [
        (bad.reason, bad.message) for one in singly for bad in one.rejected
    ]


@given(st.lists(st.integers(-(10**40), 10**40) | st.integers(-(10**21), 10**21), max_size=4))
def test_a_number_reads_the_same_beside_one_of_absurd_length(numbers: list[int]) -> None:
    alone = parse_json(json.dumps(numbers).encode())
    beside = parse_json(json.dumps([*numbers, 10**30]).encode())
    assert isinstance(beside, list)
    assert repr(alone) == repr(beside[:-1])
