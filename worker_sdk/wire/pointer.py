"""The pointer to a shard's current documents, and the layout of shards.

Decides which shard a destination belongs to, and how ``current.json`` and ``layout.json`` look.
Knows nothing of stores or of what the documents say.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.limits import (
    DOCUMENT_COMPRESSED_MAX_BYTES,
    EPOCH_MAX,
    LAYOUT_MAX_BYTES,
    POINTER_DOCUMENTS_MAX,
    POINTER_MAX_BYTES,
    SHARDS_MAX,
    WIRE_VERSION,
)
from worker_sdk.wire.strict import (
    as_instant_ms,
    as_int,
    as_list,
    as_object,
    check_version,
    dump_json,
    parse_json,
)

LAYOUT_KEY: Final = "layout.json"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def shard_of(destination: str, shards: int) -> int:
    """Return the shard of a destination: the first 8 bytes of sha256(name), big-endian, mod n."""
    digest = hashlib.sha256(destination.encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") % shards


def pointer_key(shard: int) -> str:
    """Return the key of a shard's pointer, relative to the prefix."""
    return f"shards/{shard}/current.json"


def document_key(shard: int, epoch: int) -> str:
    """Return the key of a document's file, relative to the prefix."""
    return f"shards/{shard}/{epoch:012d}.jsonl.gz"


def sha256_hex(body: bytes) -> str:
    """Return the digest by which a pointer names a document's bytes."""
    return hashlib.sha256(body).hexdigest()


@dataclass(frozen=True, slots=True)
class PointedDocument:
    """A document as its pointer names it; ``size_bytes`` and ``sha256`` are of the file."""

    epoch: int
    key: str
    sha256: str
    size_bytes: int
    published_at_ms: int
    valid_until_ms: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """The documents of a shard that count now, newest first."""

    documents: tuple[PointedDocument, ...]


def encode_pointer(pointer: Pointer) -> bytes:
    """Return the pointer as the bytes of ``current.json``."""
    return dump_json(
        {
            "v": WIRE_VERSION,
            "documents": [
                {
                    "epoch": document.epoch,
                    "key": document.key,
                    "sha256": document.sha256,
                    "bytes": document.size_bytes,
                    "published_at_ms": document.published_at_ms,
                    "valid_until_ms": document.valid_until_ms,
                }
                for document in pointer.documents
            ],
        }
    )


def decode_pointer(body: bytes, shard: int) -> Pointer:
    """Return the pointer of ``shard`` in ``body``.

    Raises:
        WireError: where the bytes are no pointer, or name a file that is none of this shard's.
    """
    if len(body) > POINTER_MAX_BYTES:
        raise WireError(RejectReason.TOO_LARGE, f"a pointer is over {POINTER_MAX_BYTES} bytes")
    value = as_object(parse_json(body), "a pointer")
    check_version(value, "a pointer", WIRE_VERSION)
    documents: list[PointedDocument] = []
    for item in as_list(value.get("documents"), "documents", most=POINTER_DOCUMENTS_MAX):
        line = as_object(item, "a pointed document")
        epoch = as_int(line.get("epoch"), "epoch", least=1, most=EPOCH_MAX)
        if documents and epoch >= documents[-1].epoch:
            raise WireError(RejectReason.INCONSISTENT, "documents are not newest first")
        if line.get("key") != document_key(shard, epoch):
            raise WireError(RejectReason.INCONSISTENT, "a key is not of this shard and epoch")
        digest = line.get("sha256")
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise WireError(RejectReason.BAD_FIELD, "sha256 is not 64 hexadecimal digits")
        documents.append(
            PointedDocument(
                epoch=epoch,
                key=document_key(shard, epoch),
                sha256=digest,
                size_bytes=as_int(
                    line.get("bytes"), "bytes", least=1, most=DOCUMENT_COMPRESSED_MAX_BYTES
                ),
                published_at_ms=as_instant_ms(line.get("published_at_ms"), "published_at_ms"),
                valid_until_ms=as_instant_ms(line.get("valid_until_ms"), "valid_until_ms"),
            )
        )
    return Pointer(tuple(documents))


def encode_layout(shards: int) -> bytes:
    """Return the layout as the bytes of ``layout.json``."""
    return dump_json({"v": WIRE_VERSION, "shards": shards})


def decode_layout(body: bytes) -> int:
    """Return the number of shards in ``body``.

    Raises:
        WireError: where the bytes are no layout.
    """
    if len(body) > LAYOUT_MAX_BYTES:
        raise WireError(RejectReason.TOO_LARGE, f"a layout is over {LAYOUT_MAX_BYTES} bytes")
    value = as_object(parse_json(body), "a layout")
    check_version(value, "a layout", WIRE_VERSION)
    return as_int(value.get("shards"), "shards", least=1, most=SHARDS_MAX)
