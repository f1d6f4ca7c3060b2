"""The golden files: what is on the wire today must be read and written alike for ever.

Compressed bytes differ between versions of zlib, so of compressed files the content is compared.
"""

from __future__ import annotations

import gzip

import pytest

from tests.golden.examples import (
    BATCHES,
    DOCUMENT,
    FOLDER,
    RUNNING,
    SHARDS,
    golden_files,
    pointer_for,
)
from worker_sdk.wire.compression import gunzip_bytes, gzip_bytes
from worker_sdk.wire.distribution import decode_document, encode_document, read_own_shares
from worker_sdk.wire.limits import BATCH_MAX_BYTES
from worker_sdk.wire.pointer import decode_layout, decode_pointer, encode_layout, encode_pointer
from worker_sdk.wire.usage import decode_batch, encode_batch


@pytest.mark.parametrize("name", sorted(BATCHES))
def test_a_golden_batch_is_read_and_written_alike(name: str) -> None:
    body = (FOLDER / f"usage-{name}.json").read_bytes()
    decoded = decode_batch(body)
    assert decoded.batch == BATCHES[name]
    assert decoded.rejected == ()
    assert encode_batch(decoded.batch) == body


def test_the_compressed_golden_batch_is_read_and_its_content_written_alike() -> None:
    packed = (FOLDER / "usage-running.json.gz").read_bytes()
    body = gunzip_bytes(packed, BATCH_MAX_BYTES)
    assert decode_batch(body).batch == RUNNING
    assert gzip.decompress(gzip_bytes(encode_batch(RUNNING))) == body


def test_the_golden_document_is_read_and_its_content_written_alike() -> None:
    packed = (FOLDER / "document.jsonl.gz").read_bytes()
    assert decode_document(packed) == DOCUMENT
    assert gzip.decompress(packed) == (FOLDER / "document.jsonl").read_bytes()
    assert gzip.decompress(encode_document(DOCUMENT)) == (FOLDER / "document.jsonl").read_bytes()


def test_a_member_finds_itself_in_the_golden_document() -> None:
    packed = (FOLDER / "document.jsonl.gz").read_bytes()
    billing, orders = read_own_shares(packed, "日本/01", "a1")
    assert (billing.intervals, billing.terms.capacity) == ((), 0)
    assert orders.intervals == ((200_000_000, 800_000_000), (810_000_000, 990_000_000))
    assert read_own_shares(packed, "日本/0", "a1")[1].intervals == ()


def test_the_golden_pointer_is_read_and_written_alike() -> None:
    body = (FOLDER / "pointer.json").read_bytes()
    pointer = decode_pointer(body, DOCUMENT.shard)
    assert pointer == pointer_for((FOLDER / "document.jsonl.gz").read_bytes())
    assert encode_pointer(pointer) == body


def test_the_golden_layout_is_read_and_written_alike() -> None:
    body = (FOLDER / "layout.json").read_bytes()
    assert decode_layout(body) == SHARDS
    assert encode_layout(SHARDS) == body


def test_every_golden_file_is_written_by_this_version() -> None:
    for name, content in golden_files().items():
        stored = (FOLDER / name).read_bytes()
        if name.endswith(".gz"):
            assert gzip.decompress(content) == gzip.decompress(stored)
        else:
            assert content == stored
