"""Entries kept as columns: to whoever looks, the same as the tuple of them."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.core.columns import ints
from balancer.core.entry_columns import EntryColumns
from tests.support.wire_values import documents, entries
from worker_sdk.wire.distribution import (
    Document,
    Entry,
    Member,
    decode_document,
    encode_document,
)
from worker_sdk.wire.shares import share_points

members = st.lists(entries, max_size=6, unique_by=lambda entry: entry.member).map(tuple)


def kept_as_columns(document: Document) -> Document:
    lines = [replace(line, entries=EntryColumns.of(line.entries)) for line in document.destinations]
    return replace(document, destinations=tuple(lines))


@given(members)
def test_they_are_equal_to_the_tuple_and_give_the_same_values(
    given_entries: tuple[Entry, ...],
) -> None:
    columns = EntryColumns.of(given_entries)
    assert columns == given_entries
    assert given_entries == columns
    assert hash(columns) == hash(given_entries)
    assert columns == EntryColumns.of(list(given_entries))
    assert columns != (*given_entries, Entry("other", "i", (), 0))
    assert list(columns) == list(given_entries)
    assert [columns[place] for place in range(len(columns))] == list(given_entries)
    assert columns[1:] == given_entries[1:]
    assert columns.intervals.points().tolist() == [
        share_points(entry.intervals) for entry in given_entries
    ]


def test_what_differs_in_one_number_is_not_equal() -> None:
    entry = Entry("h", "i", ((0, 10),), 5)
    others = [
        replace(entry, host="g"),
        replace(entry, instance="j"),
        replace(entry, intervals=((0, 11),)),
        replace(entry, intervals=((1, 10),)),
        replace(entry, intervals=()),
        replace(entry, safe_points=4),
    ]
    assert all(EntryColumns.of([entry]) != EntryColumns.of([other]) for other in others)
    assert EntryColumns.of([entry]) != [entry]


def test_a_row_that_is_not_there_is_an_error_as_in_any_sequence() -> None:
    columns = EntryColumns.of([Entry("h", "i", ((0, 10),), 5)])
    assert columns[-1].host == "h"
    with pytest.raises(IndexError):
        columns[1]


@given(documents())
def test_a_document_of_columns_is_the_same_file(document: Document) -> None:
    columnar = kept_as_columns(document)
    assert columnar == document
    assert encode_document(columnar) == encode_document(document)


@given(documents())
def test_a_members_line_is_compact_json_of_its_entry(document: Document) -> None:
    lines = iter(gzip.decompress(encode_document(kept_as_columns(document))).splitlines()[1:])
    for part, _ in zip(document.destinations, lines, strict=False):
        for entry in part.entries:
            row = [entry.host, entry.instance, entry.intervals, entry.safe_points]
            text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
            assert next(lines).decode() == text


@given(documents())
def test_a_document_is_read_into_columns_with_each_member_once(document: Document) -> None:
    known: dict[Member, Member] = {}
    read = decode_document(encode_document(document), gather=partial(EntryColumns.of, known=known))
    assert read == document
    for line in read.destinations:
        assert isinstance(line.entries, EntryColumns)
        assert all(known[member] is member for member in line.entries.members)


@given(members, members, st.data())
def test_rows_are_changed_taken_out_and_added(
    before: tuple[Entry, ...], more: tuple[Entry], data: st.DataObject
) -> None:
    rows = data.draw(st.sets(st.integers(0, len(before) - 1))) if before else set()
    changes = {row: data.draw(st.none() | entries) for row in rows}
    expected = [changes.get(row, entry) for row, entry in enumerate(before)]
    found = EntryColumns.of(before).changed(changes, more)
    assert list(found) == [entry for entry in (*expected, *more) if entry is not None]


@given(members, st.randoms(use_true_random=False))
def test_rows_are_picked_in_any_order(before: tuple[Entry, ...], chance: Random) -> None:
    rows = list(range(len(before)))
    chance.shuffle(rows)
    picked = EntryColumns.of(before).picked(ints(rows))
    assert picked == tuple(before[row] for row in rows)
