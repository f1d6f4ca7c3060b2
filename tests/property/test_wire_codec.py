"""Encoding and decoding: nothing is lost on the way, and no bytes raise anything but WireError."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.examples import DOCUMENT, FOLDER, RUNNING, SHARDS
from tests.support.wire_values import documents, names, pointers, usage_batches, usage_tuples
from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.compression import gunzip_bytes, gzip_bytes
from worker_sdk.wire.distribution import (
    Document,
    decode_document,
    encode_document,
    read_own_shares,
)
from worker_sdk.wire.limits import BATCH_MAX_BYTES, SHARDS_MAX
from worker_sdk.wire.pointer import (
    Pointer,
    decode_layout,
    decode_pointer,
    encode_layout,
    encode_pointer,
    shard_of,
)
from worker_sdk.wire.strict import check_name, dump_json
from worker_sdk.wire.usage import (
    UsageBatch,
    UsageTuple,
    decode_batch,
    encode_batch,
    merge_tuples,
)

DECODERS: dict[str, Callable[[bytes], object]] = {
    "batch": decode_batch,
    "compressed batch": lambda body: decode_batch(gunzip_bytes(body, BATCH_MAX_BYTES)),
    "document": decode_document,
    "document text": lambda text: decode_document(gzip_bytes(text, level=1)),
    "own shares": lambda text: read_own_shares(
        gzip_bytes(text, level=1), "worker-07", "5f0c9a52d1e84b7c"
    ),
    "pointer": lambda body: decode_pointer(body, DOCUMENT.shard),
    "layout": decode_layout,
}
SAMPLES = {
    "batch": (FOLDER / "usage-goodbye.json").read_bytes(),
    "compressed batch": (FOLDER / "usage-running.json.gz").read_bytes(),
    "document": (FOLDER / "document.jsonl.gz").read_bytes(),
    "document text": (FOLDER / "document.jsonl").read_bytes(),
    "own shares": (FOLDER / "document.jsonl").read_bytes(),
    "pointer": (FOLDER / "pointer.json").read_bytes(),
    "layout": (FOLDER / "layout.json").read_bytes(),
}
kinds = st.sampled_from(sorted(DECODERS))
ODD_TOKENS = [
    "NaN", "Infinity", "-Infinity", "1e999", "-1", "-5", "0.5", "1.0", "9" * 21, "9" * 5_000,
    "9223372036854775808", "true", "false", "null", '""', '"3"', '"a\\u0000b"', '"\\ud800"',
    '"\\u007f"', '"\\u0085"', '"' + "x" * 256 + '"', '"' + "\u65e5" * 86 + '"', "[]", "{}", "[[]]",
    '[[1,2],[1,2]]', '{"a":{}}', "[" * 2_000 + "]" * 2_000, "1e", "", "\x00",
]  # fmt: skip


def refusal(kind: str, body: bytes) -> WireError | None:
    """Decode; anything but a value or a WireError fails the test by itself."""
    try:
        DECODERS[kind](body)
    except WireError as error:
        return error
    return None


def accepted(kind: str, body: bytes) -> bool:
    error = refusal(kind, body)
    if error is None:
        return True
    assert error.reason in RejectReason
    assert 0 < len(str(error).encode("utf-8")) < 500  # fit for a header of the rejected topic
    return False


@given(usage_batches)
def test_a_batch_survives_the_way(batch: UsageBatch) -> None:
    decoded = decode_batch(encode_batch(batch))
    assert decoded.batch == batch
    assert decoded.rejected == ()


@given(documents())
def test_a_document_survives_the_way_and_equal_documents_give_equal_bytes(
    document: Document,
) -> None:
    body = encode_document(document)
    assert decode_document(body) == document
    assert encode_document(decode_document(body)) == body


@given(documents())
def test_a_member_reads_of_a_document_what_the_whole_says_of_it(document: Document) -> None:
    body = encode_document(document)
    members = {entry.member for part in document.destinations for entry in part.entries}
    for host, instance in [*members, ("nobody", "x")]:
        own = read_own_shares(body, host, instance)
        assert [share.terms for share in own] == [part.terms for part in document.destinations]
        for share, part in zip(own, document.destinations, strict=True):
            entries = [entry for entry in part.entries if entry.member == (host, instance)]
            assert share.intervals == (entries[0].intervals if entries else ())
            assert share.safe_points == (entries[0].safe_points if entries else 0)
            assert (share.shard, share.epoch) == (document.shard, document.epoch)
            assert share.valid_until_ms == document.valid_until_ms


@given(pointers())
def test_a_pointer_survives_the_way(pointed: tuple[int, Pointer]) -> None:
    shard, pointer = pointed
    assert decode_pointer(encode_pointer(pointer), shard) == pointer
    if pointer.documents:
        with pytest.raises(WireError, match="inconsistent"):
            decode_pointer(encode_pointer(pointer), (shard + 1) % SHARDS_MAX)


@given(st.integers(1, SHARDS_MAX), names)
def test_a_layout_survives_the_way_and_every_name_has_one_shard(shards: int, name: str) -> None:
    assert decode_layout(encode_layout(shards)) == shards
    assert 0 <= shard_of(name, shards) < shards


@given(kinds, st.binary(max_size=400))
def test_random_bytes_raise_only_wire_errors(kind: str, body: bytes) -> None:
    accepted(kind, body)


@given(kinds, st.data())
def test_flipped_bits_raise_only_wire_errors(kind: str, data: st.DataObject) -> None:
    body = bytearray(SAMPLES[kind])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    accepted(kind, bytes(body))


@given(kinds, kinds, st.data())
def test_splices_raise_only_wire_errors(kind: str, other: str, data: st.DataObject) -> None:
    head, tail = SAMPLES[kind], SAMPLES[other]
    cut = data.draw(st.integers(0, len(head)))
    accepted(kind, head[:cut] + tail[data.draw(st.integers(0, len(tail))) :])


@given(kinds, st.sampled_from(ODD_TOKENS), st.data())
def test_odd_tokens_anywhere_raise_only_wire_errors(
    kind: str, token: str, data: st.DataObject
) -> None:
    body = SAMPLES[kind]
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(start + 30, len(body))))
    accepted(kind, body[:start] + token.encode() + body[end:])


@pytest.mark.parametrize("kind", sorted(DECODERS))
def test_no_cut_of_a_message_is_accepted(kind: str) -> None:
    body = SAMPLES[kind]
    cuts = [body[:end] for end in range(len(body)) if accepted(kind, body[:end])]
    # A document's text that ends with its header or with a destination's last line is one itself,
    # as text; its file is not, since gzip knows its length and the pointer its digest.
    if kind in ("document text", "own shares"):
        assert all(cut.endswith(b"\n") for cut in cuts)
    else:
        assert cuts == []


def walk(value: object) -> list[tuple[object, object]]:
    """Return every (container, key) inside a JSON value."""
    if isinstance(value, dict):
        keys: list[object] = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    else:
        return []
    found: list[tuple[object, object]] = []
    for key in keys:
        found.append((value, key))
        found.extend(walk(value[key]))  # type: ignore[call-overload]  # key fits its container
    return found


@pytest.mark.parametrize("kind", ["batch", "document text", "own shares", "pointer", "layout"])
def test_a_wrong_value_at_any_key_raises_only_wire_errors(kind: str) -> None:
    lines = SAMPLES[kind].splitlines()
    for number, line in enumerate(lines):
        for place in range(len(walk(json.loads(line)))):
            for token in ODD_TOKENS:
                fresh = json.loads(line)
                container, key = walk(fresh)[place]
                container[key] = "@odd@"  # type: ignore[index]  # a dict or a list
                body = json.dumps(fresh, ensure_ascii=False).replace('"@odd@"', token)
                changed = [*lines[:number], body.encode(), *lines[number + 1 :]]
                accepted(kind, b"\n".join(changed) + (b"\n" if len(lines) > 1 else b""))


def with_unknown_keys(value: object) -> object:
    """Add an unknown key to every object whose keys are fields, deep down."""
    if isinstance(value, list):
        return [with_unknown_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    keyed_by_data = {"epochs", "spent"}
    grown = {
        key: item if key in keyed_by_data else with_unknown_keys(item)
        for key, item in value.items()
    }
    return {"later": {"x": [0.5, None, "é"]}, **grown, "": 1e300}


@pytest.mark.parametrize("kind", ["batch", "document text", "own shares", "pointer", "layout"])
def test_readers_ignore_unknown_keys_at_every_level(kind: str) -> None:
    lines = SAMPLES[kind].splitlines()
    grown = b"\n".join(dump_json(with_unknown_keys(json.loads(line))) for line in lines)
    grown += b"\n" if len(lines) > 1 else b""
    assert DECODERS[kind](grown) == DECODERS[kind](SAMPLES[kind])


@given(usage_tuples(), st.sampled_from(ODD_TOKENS[:19]), st.integers(0, 8), st.integers(0, 2))
def test_one_bad_tuple_of_three_leaves_two(
    entry: UsageTuple, token: str, field: int, place: int
) -> None:
    if field == 0 and token == '"3"':
        return  # a legal name
    rows = [json.loads(encode_batch(RUNNING))["tuples"][0] for _ in range(3)]
    rows[place][field] = "@odd@"
    value = json.loads(encode_batch(RUNNING)) | {"tuples": rows}
    decoded = decode_batch(json.dumps(value).replace('"@odd@"', token).encode())
    assert decoded.batch.tuples == (RUNNING.tuples[0],) * 2
    assert [bad.index for bad in decoded.rejected] == [place]
    assert entry.destination  # any tuple: the good ones do not depend on it


@given(st.lists(usage_tuples(), min_size=1, max_size=5))
def test_merged_tuples_are_always_accepted_again(entries: list[UsageTuple]) -> None:
    total = entries[0]
    for entry in entries[1:]:
        total = merge_tuples(total, entry)
    body = encode_batch(UsageBatch("h", "i", RUNNING.sent_at_ms, RUNNING.state, tuples=(total,)))
    assert decode_batch(body).batch.tuples == (total,)
    assert total.instant_ms == max(entry.instant_ms for entry in entries)


@given(names, names)
def test_names_are_compared_byte_for_byte(one: str, other: str) -> None:
    assert check_name(one, "name") == one
    batch = UsageBatch(one, other, RUNNING.sent_at_ms, RUNNING.state)
    decoded = decode_batch(encode_batch(batch)).batch
    assert decoded.host.encode() == one.encode()
    assert decoded.instance.encode() == other.encode()


@given(st.binary(max_size=2_000), st.integers(1, 4))
def test_joined_gzip_members_are_read_whole_and_torn_ones_refused(body: bytes, parts: int) -> None:
    joined = gzip_bytes(body) * parts
    assert gunzip_bytes(joined, len(body) * parts) == body * parts
    for bad in (joined[:-1], joined + b"JUNK"):
        with pytest.raises(WireError) as caught:
            gunzip_bytes(bad, len(body) * parts + 10)
        assert caught.value.reason is RejectReason.BAD_COMPRESSION
    if body:
        with pytest.raises(WireError) as caught:
            gunzip_bytes(joined, len(body) * parts - 1)
        assert caught.value.reason is RejectReason.TOO_LARGE


def test_a_streamed_gzip_without_sizes_is_read() -> None:
    assert gunzip_bytes(gzip.compress(b"x" * 700_000), 700_000) == b"x" * 700_000


def test_the_sample_layout_is_the_one_of_the_golden_files() -> None:
    assert decode_layout(SAMPLES["layout"]) == SHARDS
