"""What a message may unpack to: whole frames within the limit, and nothing else."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
import zstandard

from balancer.adapters.kafka.compression import decode_record, unpack, unzstd_bytes
from balancer.ports import UsageRecord
from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.limits import BATCH_COMPRESSED_MAX_BYTES, BATCH_MAX_BYTES
from worker_sdk.wire.usage import (
    CONTENT_TYPE,
    MemberState,
    UsageBatch,
    UsageTuple,
    encode_batch,
)

NOW_MS = 1_790_000_000_000
MIB = 1024 * 1024
BATCH = UsageBatch(
    "web-1",
    "i1",
    NOW_MS,
    MemberState.RUNNING,
    tuples=(UsageTuple("db", NOW_MS - 60_000, NOW_MS, 1, 10, 9, 0, 0, 50),),
)
BODY = encode_batch(BATCH)


def zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(body)


def zstd_streamed(body: bytes) -> bytes:
    """A frame without a content size in its header."""
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(body) + stream.flush()


def record(body: bytes | None, encoding: str | None = None, **headers: str) -> UsageRecord:
    named = {name.replace("_", "-"): value.encode() for name, value in headers.items()}
    if encoding is not None:
        named["content-encoding"] = encoding.encode()
    return UsageRecord(0, 0, body, named, None)


def reason_of(body: bytes | None, encoding: str | None = None, **headers: str) -> RejectReason:
    with pytest.raises(WireError) as caught:
        decode_record(record(body, encoding, **headers))
    return caught.value.reason


@pytest.mark.parametrize(
    ("packed", "encoding"),
    [
        (BODY, None),
        (zstd(BODY), "zstd"),
        (zstd_streamed(BODY), "zstd"),
        (zstd(BODY[:40]) + zstd_streamed(BODY[40:]), "zstd"),
        (gzip.compress(BODY), "gzip"),
        (gzip.compress(BODY[:40]) + gzip.compress(BODY[40:]), "gzip"),
        (b"".join(zstd(BODY[i : i + 1]) for i in range(len(BODY))), "zstd"),
    ],
)
def test_plain_streamed_and_joined_bodies_are_read_whole(
    packed: bytes, encoding: str | None
) -> None:
    decoded = decode_record(record(packed, encoding))
    assert decoded is not None
    assert decoded.batch == BATCH
    assert decoded.rejected == ()


@pytest.mark.parametrize(
    ("packed", "encoding"),
    [
        (zstd(b""), "zstd"),
        (zstd_streamed(b""), "zstd"),
        (gzip.compress(b""), "gzip"),
        (zstd(b"") * 1000, "zstd"),
    ],
)
def test_compressed_empty_text_is_no_tuples_and_no_error(packed: bytes, encoding: str) -> None:
    assert decode_record(record(packed, encoding)) is None


@pytest.mark.parametrize("encoding", [None, "zstd", "gzip"])
@pytest.mark.parametrize("body", [None, b""])
def test_a_tombstone_and_zero_bytes_are_empty(body: bytes | None, encoding: str | None) -> None:
    assert reason_of(body, encoding) is RejectReason.EMPTY


@pytest.mark.parametrize(
    ("packed", "encoding"),
    [
        (zstd(BODY)[:-1], "zstd"),
        (zstd_streamed(BODY)[:-1], "zstd"),
        (zstd(BODY) + b"JUNK", "zstd"),
        (zstd(BODY) + zstd(BODY)[:5], "zstd"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (BODY, "zstd"),
        (gzip.compress(BODY), "zstd"),
        (gzip.compress(BODY)[:-1], "gzip"),
        (gzip.compress(BODY) + b"JUNK", "gzip"),
        (gzip.compress(BODY)[:10], "gzip"),
        (BODY, "gzip"),
    ],
)
def test_cut_bodies_and_junk_behind_them_are_refused(packed: bytes, encoding: str) -> None:
    assert reason_of(packed, encoding) is RejectReason.BAD_COMPRESSION


@pytest.mark.parametrize("cut", range(1, len(zstd_streamed(BODY)), 7))
def test_a_frame_cut_anywhere_is_refused(cut: int) -> None:
    assert reason_of(zstd_streamed(BODY)[:cut], "zstd") is RejectReason.BAD_COMPRESSION


def test_unknown_encodings_and_types_are_refused_by_name() -> None:
    assert reason_of(BODY, "br") is RejectReason.BAD_CONTENT_TYPE
    assert reason_of(BODY, content_type="text/html") is RejectReason.BAD_CONTENT_TYPE
    known = decode_record(record(BODY, content_type=CONTENT_TYPE))
    assert known is not None


def test_gzip_of_gzip_is_unpacked_once_only() -> None:
    inner = gzip.compress(bytes(MIB))
    assert reason_of(gzip.compress(inner), "gzip") is RejectReason.BAD_JSON


def test_the_compressed_size_has_a_limit() -> None:
    assert reason_of(b" " * (BATCH_COMPRESSED_MAX_BYTES + 1)) is RejectReason.TOO_LARGE


def test_content_of_just_the_limit_passes_and_a_byte_more_does_not() -> None:
    for pack in (zstd, zstd_streamed):
        assert len(unzstd_bytes(pack(bytes(BATCH_MAX_BYTES)), BATCH_MAX_BYTES)) == BATCH_MAX_BYTES
        with pytest.raises(WireError) as caught:
            unzstd_bytes(pack(bytes(BATCH_MAX_BYTES + 1)), BATCH_MAX_BYTES)
        assert caught.value.reason is RejectReason.TOO_LARGE


@pytest.mark.parametrize(
    ("pack", "encoding"), [(zstd, "zstd"), (zstd_streamed, "zstd"), (gzip.compress, "gzip")]
)
def test_a_bomb_is_stopped_at_the_limit_with_bounded_memory(pack: object, encoding: str) -> None:
    assert callable(pack)
    bomb: bytes = pack(bytes(64 * MIB))
    tracemalloc.start()
    try:
        assert reason_of(bomb, encoding) is RejectReason.TOO_LARGE
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The buffer that grows by an eighth at a time is held twice while it moves.
    assert peak_bytes < 2 * BATCH_MAX_BYTES + 6 * MIB


def test_many_joined_frames_are_stopped_at_the_limit() -> None:
    frame = zstd(bytes(MIB))
    with pytest.raises(WireError) as caught:
        unpack(frame * 1000, b"zstd", BATCH_MAX_BYTES)
    assert caught.value.reason is RejectReason.TOO_LARGE
    with pytest.raises(WireError) as caught:
        unpack(zstd(b"") * 10_001, b"zstd", BATCH_MAX_BYTES)
    assert caught.value.reason is RejectReason.TOO_MANY


def test_a_frame_that_asks_for_much_memory_is_refused_before_it_gets_it() -> None:
    wide = zstandard.ZstdCompressionParameters(window_log=27, compression_level=1)
    stream = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    frame = stream.compress(b"x") + stream.flush()
    assert reason_of(frame, "zstd") is RejectReason.TOO_LARGE
