"""What small input may cost, and bad input that people have met: refused by cause, alone."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable

import pytest

from tests.golden.examples import DOCUMENT, NOW_MS, RUNNING
from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire import distribution
from worker_sdk.wire.compression import gunzip_bytes, gunzip_chunks, gzip_bytes
from worker_sdk.wire.distribution import decode_document, encode_document, read_own_shares
from worker_sdk.wire.limits import (
    BATCH_MAX_BYTES,
    BATCH_TUPLES_MAX,
    ENTRY_INTERVALS_MAX,
    GZIP_MEMBERS_MAX,
)
from worker_sdk.wire.pointer import decode_layout, decode_pointer
from worker_sdk.wire.strict import check_name
from worker_sdk.wire.usage import decode_batch, encode_batch

MIB = 1024 * 1024


def refused(action: Callable[[], object]) -> RejectReason:
    with pytest.raises(WireError) as caught:
        action()
    return caught.value.reason


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def batch_of(rows: str) -> bytes:
    return b'{"v":1,"host":"h","instance":"i","state":"running","sent_at_ms":%d,"tuples":[%s]}' % (
        NOW_MS,
        rows.encode(),
    )


def test_a_bomb_is_stopped_at_the_cap() -> None:
    bomb = gzip.compress(bytes(64 * MIB))
    peak = peak_bytes(lambda: refused(lambda: gunzip_bytes(bomb, 16 * MIB)))
    assert refused(lambda: gunzip_bytes(bomb, 16 * MIB)) is RejectReason.TOO_LARGE
    assert peak < 24 * MIB


def test_gzip_of_gzip_is_no_batch() -> None:
    inner = gunzip_bytes(gzip_bytes(gzip_bytes(encode_batch(RUNNING))), BATCH_MAX_BYTES)
    assert refused(lambda: decode_batch(inner)) is RejectReason.BAD_JSON


def test_a_thousand_joined_members_are_read_and_stopped_at_the_cap() -> None:
    joined = gzip_bytes(bytes(20_000)) * 1_000
    assert len(gunzip_bytes(joined, 20_000_000)) == 20_000_000
    assert refused(lambda: gunzip_bytes(joined, 16 * MIB)) is RejectReason.TOO_LARGE


def test_empty_members_have_a_limit_of_their_own() -> None:
    empty = gzip_bytes(b"")
    assert gunzip_bytes(empty * GZIP_MEMBERS_MAX, 0) == b""
    too_many = empty * (GZIP_MEMBERS_MAX + 1)
    assert refused(lambda: gunzip_bytes(too_many, 0)) is RejectReason.TOO_MANY


def test_chunks_stay_small() -> None:
    assert max(map(len, gunzip_chunks(gzip.compress(bytes(8 * MIB)), 8 * MIB))) <= 256 * 1024


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x1f\x8b", RejectReason.BAD_COMPRESSION),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", RejectReason.BAD_COMPRESSION),
        (b"\x28\xb5\x2f\xfd", RejectReason.BAD_COMPRESSION),
        (gzip_bytes(b"{}")[:-1], RejectReason.BAD_COMPRESSION),
        (gzip_bytes(b"{}") + b"JUNK", RejectReason.BAD_COMPRESSION),
        (gzip_bytes(b""), RejectReason.EMPTY),
        (gzip_bytes(b"[]"), RejectReason.BAD_FIELD),
        (gzip_bytes(b'{"v":99}'), RejectReason.BAD_VERSION),
        (gzip_bytes(b'{"v":true}'), RejectReason.BAD_VERSION),
        (gzip_bytes(b"hello"), RejectReason.BAD_JSON),
        (gzip_bytes(b"\xef\xbb\xbf{}"), RejectReason.BAD_JSON),
        (gzip_bytes(b"\xff\xfe{}"), RejectReason.BAD_JSON),
        (gzip_bytes(b"[" * 1_000_000), RejectReason.TOO_MANY),
        (gzip_bytes(b"[" * 400_000), RejectReason.BAD_JSON),
    ],
)
def test_a_poisoned_message_has_its_cause(body: bytes, reason: RejectReason) -> None:
    assert refused(lambda: decode_batch(gunzip_bytes(body, BATCH_MAX_BYTES))) is reason


@pytest.mark.parametrize("item", ["[]", "{}", '"ab"', "1000", '{"ab":1}'])
def test_a_batch_of_small_items_is_refused_before_it_takes_memory(item: str) -> None:
    body = batch_of(",".join([item] * (15 * MIB // (len(item) + 1))))
    reasons: list[RejectReason] = []
    peak = peak_bytes(lambda: reasons.append(refused(lambda: decode_batch(body))))
    assert reasons == [RejectReason.TOO_MANY]
    assert peak < 4 * MIB


def test_a_document_of_empty_lines_is_refused_before_it_takes_memory() -> None:
    body = gzip.compress(gzip.decompress(encode_document(DOCUMENT)) + b"\n" * (32 * MIB))
    assert peak_bytes(lambda: refused(lambda: decode_document(body))) < 48 * MIB


@pytest.mark.parametrize("name", ["DOCUMENT_MAX_BYTES", "DOCUMENT_COMPRESSED_MAX_BYTES"])
def test_a_document_that_readers_refuse_for_its_size_is_not_written(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = encode_document(DOCUMENT)
    size = len(body) if "COMPRESSED" in name else len(gunzip_bytes(body, 1_000_000))
    monkeypatch.setattr(distribution, name, size)
    assert encode_document(DOCUMENT) == body
    monkeypatch.setattr(distribution, name, size - 1)
    assert refused(lambda: encode_document(DOCUMENT)) is RejectReason.TOO_LARGE
    assert refused(lambda: decode_document(body)) is RejectReason.TOO_LARGE


def test_a_member_line_has_a_longest_length() -> None:
    text = gzip.decompress(encode_document(DOCUMENT))
    long = text.replace(b",180000000]", b',180000000,"' + b"x" * 20_000 + b'"]')
    for read in (decode_document, lambda body: read_own_shares(body, "h", "i")):
        assert refused(lambda: read(gzip_bytes(long))) is RejectReason.TOO_LARGE  # noqa: B023


def test_the_largest_batch_is_accepted_and_one_tuple_more_is_not() -> None:
    row = json.dumps(["d" * 255, NOW_MS, NOW_MS, 1, *[10**12] * 5])
    whole = batch_of(",".join([row] * BATCH_TUPLES_MAX))
    assert len(decode_batch(whole).batch.tuples) == BATCH_TUPLES_MAX
    more = batch_of(",".join([row] * (BATCH_TUPLES_MAX + 1)))
    assert refused(lambda: decode_batch(more)) is RejectReason.TOO_MANY


def test_of_five_hundred_tuples_four_bad_ones_are_left_out_by_cause() -> None:
    def row(name: str, used: str) -> str:
        return f'["{name}",{NOW_MS},{NOW_MS},1,0,{used},0,0,0]'

    rows = [row(f"d{number}", "5") for number in range(500)]
    rows[7], rows[99] = row(r"a\u0000b", "5"), row(r"\ud800", "5")
    rows[200], rows[499] = row("d", str(2**63)), row("d", "NaN")
    decoded = decode_batch(batch_of(",".join(rows)))
    assert len(decoded.batch.tuples) == 496
    assert [bad.index for bad in decoded.rejected] == [7, 99, 200, 499]
    reasons = Counter(bad.reason for bad in decoded.rejected)
    assert reasons == {RejectReason.BAD_NAME: 2, RejectReason.BAD_NUMBER: 2}


@pytest.mark.parametrize(
    "amount",
    ["NaN", "Infinity", "-Infinity", "1e999", "-5", "true", '"3"', "null", "1.0", "9" * 5_000],
)
def test_an_amount_that_is_none_is_a_bad_number(amount: str) -> None:
    decoded = decode_batch(batch_of(f'["d",{NOW_MS},{NOW_MS},1,0,{amount},0,0,0]'))
    assert decoded.batch.tuples == ()
    assert [bad.reason for bad in decoded.rejected] == [RejectReason.BAD_NUMBER]


@pytest.mark.parametrize(
    "instant",
    [
        str(NOW_MS // 1000),
        str(NOW_MS * 1000),
        str(NOW_MS * 1_000_000),
        '"2026-11-30T00:00:00"',
        '"2026-11-30T00:00:00Z"',
        "-62135596800000",
        "253402300799000",
        '"infinity"',
    ],
)
def test_an_instant_in_another_form_or_unit_is_a_bad_number(instant: str) -> None:
    decoded = decode_batch(batch_of(f'["d",{instant},{instant},1,0,0,0,0,0]'))
    assert [bad.reason for bad in decoded.rejected] == [RejectReason.BAD_NUMBER]


@pytest.mark.parametrize("from_ms", [NOW_MS + 1, NOW_MS - 7 * 86_400_000 - 1])
def test_a_stretch_that_ends_before_it_begins_or_is_too_long_is_a_bad_span(from_ms: int) -> None:
    decoded = decode_batch(batch_of(f'["d",{from_ms},{NOW_MS},1,0,0,0,0,0]'))
    assert [bad.reason for bad in decoded.rejected] == [RejectReason.BAD_SPAN]


@pytest.mark.parametrize(
    "name", ["", "a\x00", "\t", "a\n", "\x7f", "é\x85", "x" * 256, "日" * 86, "\ud800", "é\udfff"]
)
def test_an_illegal_name_is_refused(name: str) -> None:
    assert refused(lambda: check_name(name, "name")) is RejectReason.BAD_NAME


def test_of_equal_keys_the_last_counts() -> None:
    assert decode_layout(b'{"v":1,"shards":9,"shards":2}') == 2


@pytest.mark.parametrize(
    "intervals",
    ["[[5,5]]", "[[6,5]]", "[[0,5],[4,9]]", "[[5,9],[0,1]]", "[[0,1000000001]]", "[[-1,5]]",
     "[[0]]", "[[0,1,2]]", "[0,1]", "[[0,true]]", "[[0,NaN]]", "{}"],
)  # fmt: skip
def test_intervals_are_ascending_disjoint_and_within_the_points(intervals: str) -> None:
    text = gzip.decompress(encode_document(DOCUMENT))
    body = gzip_bytes(text.replace(b"[[0,200000000]]", intervals.encode()))
    refused(lambda: decode_document(body))
    refused(lambda: read_own_shares(body, "worker-07", "5f0c9a52d1e84b7c"))
    assert read_own_shares(body, "worker-07", "another")[1].intervals == ()


def test_a_member_has_a_largest_number_of_intervals() -> None:
    text = gzip.decompress(encode_document(DOCUMENT))
    many = json.dumps([[2 * n, 2 * n + 1] for n in range(ENTRY_INTERVALS_MAX + 1)])
    body = gzip_bytes(text.replace(b"[[0,200000000]]", many.encode()))
    assert refused(lambda: decode_document(body)) is RejectReason.TOO_MANY


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"members":2', b'"members":1'),
        (b'"members":2', b'"members":3'),
        (b'"billing"', b'"zebra"'),
        (b'"billing"', b'"orders-db"'),
        (b'"pacing":"even"', b'"pacing":["even"]'),
        (b'"enforce":true', b'"enforce":1'),
        (b'"until_window":29933335', b'"until_window":29933333'),
        (b'"on_expiry":"closed"', b'"on_expiry":"open"'),
        (b'"permille":500', b'"permille":1001'),
        (b"1000000000,1796", b"1000000001,1796"),
    ],
)
def test_a_document_that_contradicts_itself_is_refused(old: bytes, new: bytes) -> None:
    text = gzip.decompress(encode_document(DOCUMENT))
    assert old in text
    refused(lambda: decode_document(gzip_bytes(text.replace(old, new))))


@pytest.mark.parametrize("key", ["shards/6/000000000001.jsonl.gz", "../../x", "", 5, None])
def test_a_pointer_to_a_foreign_file_is_refused(key: object) -> None:
    line = {"epoch": 1, "key": key, "sha256": "0" * 64, "bytes": 1}
    dates = {"published_at_ms": NOW_MS, "valid_until_ms": NOW_MS}
    body = json.dumps({"v": 1, "documents": [line | dates]}).encode()
    assert refused(lambda: decode_pointer(body, 7)) is RejectReason.INCONSISTENT


def test_a_pointer_is_newest_first() -> None:
    def line(epoch: int) -> dict[str, object]:
        key = f"shards/7/{epoch:012d}.jsonl.gz"
        dates = {"published_at_ms": NOW_MS, "valid_until_ms": NOW_MS}
        return {"epoch": epoch, "key": key, "sha256": "0" * 64, "bytes": 1} | dates

    body = json.dumps({"v": 1, "documents": [line(1), line(2)]}).encode()
    assert refused(lambda: decode_pointer(body, 7)) is RejectReason.INCONSISTENT
