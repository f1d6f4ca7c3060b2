"""The HTTP answer: what is written is what a worker reads, the same as from the file."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.golden import examples
from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.answers import (
    decode_host_answer,
    encode_host_answer,
    encode_row_end,
    encode_row_ends,
)
from worker_sdk.wire.distribution import Entry, encode_document, read_own_shares

HOST = "worker-07"
INSTANCE = "5f0c9a52d1e84b7c"


def answer(instance: str | None = None, destinations: list[str] | None = None) -> bytes:
    body = encode_host_answer(
        HOST, examples.SHARDS, [examples.DOCUMENT], destinations, instance=instance
    )
    assert body is not None
    return body


def test_the_answer_is_the_golden_one() -> None:
    assert answer() == (examples.FOLDER / "answer.json").read_bytes()


def test_a_worker_reads_the_same_from_an_answer_as_from_the_file() -> None:
    from_file = read_own_shares(encode_document(examples.DOCUMENT), HOST, INSTANCE)
    names = [share.terms.destination for share in from_file]
    assert set(decode_host_answer(answer(destinations=names), INSTANCE, HOST)) == set(from_file)


def test_a_host_that_no_document_names_has_no_answer() -> None:
    assert encode_host_answer("stranger", 8, [examples.DOCUMENT], None) is None


def test_documents_without_an_entry_of_the_host_are_listed_too() -> None:
    without = tuple(
        dataclasses.replace(shares, entries=()) for shares in examples.DOCUMENT.destinations
    )
    newer = dataclasses.replace(examples.DOCUMENT, epoch=4712, destinations=without)
    body = encode_host_answer(HOST, 8, [newer, examples.DOCUMENT], None)
    assert body is not None
    shares = decode_host_answer(body, INSTANCE)
    assert [(share.epoch, bool(share.intervals)) for share in shares] == [
        (4712, False),
        (4711, True),
    ]


def test_another_instance_of_the_host_has_no_intervals() -> None:
    (share,) = decode_host_answer(answer(), "another")
    assert (share.intervals, share.safe_points) == ((), 0)
    assert json.loads(answer(instance="another"))["destinations"]["orders-db"][0]["percent"] == 20.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda value: value.update(host="another"), RejectReason.INCONSISTENT),
        (lambda value: value.update(destinations=[]), RejectReason.BAD_FIELD),
        (lambda value: row(value).update(epoch=0), RejectReason.BAD_NUMBER),
        (lambda value: row(value).update(capacity=-1), RejectReason.BAD_NUMBER),
        (lambda value: row(value).pop("instances"), RejectReason.BAD_FIELD),
        (lambda value: rows(value).append(row(value)), RejectReason.INCONSISTENT),
    ],
)
def test_a_wrong_answer_is_refused_with_its_reason(change: object, reason: RejectReason) -> None:
    value = json.loads(answer())
    assert callable(change)
    change(value)
    with pytest.raises(WireError) as refused:
        decode_host_answer(json.dumps(value).encode(), INSTANCE, HOST)
    assert refused.value.reason is reason


def rows(value: dict[str, dict[str, list[dict[str, object]]]]) -> list[dict[str, object]]:
    return value["destinations"]["orders-db"]


def row(value: dict[str, dict[str, list[dict[str, object]]]]) -> dict[str, object]:
    return rows(value)[0]


def test_an_answer_cut_anywhere_is_never_taken() -> None:
    body = answer()
    for length in range(len(body)):
        with pytest.raises(WireError):
            decode_host_answer(body[:length], INSTANCE)


@pytest.mark.parametrize("capacity", [0, 7, 10**12])
def test_many_rows_at_once_are_those_of_each_by_itself(capacity: int) -> None:
    shares: list[tuple[tuple[int, int], ...]] = [(), ((0, 1),), ((3, 333_333_333),), ((0, 10**9),)]
    shares.append(((5, 9), (20, 31), (999_999_998, 10**9)))
    names = ("i", 'q"uo\\te', "größer", "\u2028", "0" * 255)
    own = [(name, intervals, 17) for name in names for intervals in shares]
    assert encode_row_ends(capacity, own) == [
        encode_row_end(capacity, [Entry("h", *one)]) for one in own
    ]
