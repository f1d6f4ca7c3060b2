"""Gzip with a cap on what comes out, and the names of the encodings.

Decides when compressed bytes are torn, have junk behind them or would grow beyond a limit. Knows
nothing of what is inside. Zstandard needs a package outside the standard library, so its code
stands with the drivers that use it.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import Final

from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.limits import GZIP_MEMBERS_MAX

GZIP: Final = "gzip"
ZSTD: Final = "zstd"

_CHUNK_BYTES: Final = 256 * 1024
_PIECE_BYTES: Final = 32 * 1024
_GZIP_WBITS: Final = 31


def gzip_bytes(body: bytes, *, level: int = 6) -> bytes:
    """Return ``body`` as one gzip member; it has no time stamp: equal input gives equal bytes."""
    return zlib.compress(body, level, wbits=_GZIP_WBITS)


def gunzip_chunks(body: bytes, limit_bytes: int) -> Iterator[bytes]:
    """Yield the content of one or more joined gzip members in chunks.

    At no time is more than one chunk (256 KiB) held beyond what was yielded.

    Raises:
        WireError: BAD_COMPRESSION where a member is torn or junk follows, TOO_LARGE where the
            content passes ``limit_bytes``, TOO_MANY where over ``GZIP_MEMBERS_MAX`` are joined.
    """
    total = 0
    members = 0
    # The input goes in by pieces, since zlib copies whatever it has not yet consumed.
    position = 0
    rest = b""
    while rest or position < len(body):
        members += 1
        if members > GZIP_MEMBERS_MAX:
            raise WireError(RejectReason.TOO_MANY, f"over {GZIP_MEMBERS_MAX} gzip members")
        inflater = zlib.decompressobj(wbits=_GZIP_WBITS)
        while not inflater.eof:
            if not rest:
                rest = body[position : position + _PIECE_BYTES]
                position += len(rest)
            try:
                chunk = inflater.decompress(rest, _CHUNK_BYTES)
            except zlib.error as error:
                raise WireError(RejectReason.BAD_COMPRESSION, "not gzip") from error
            if not chunk and not rest:
                raise WireError(RejectReason.BAD_COMPRESSION, "gzip data is cut short")
            rest = inflater.unconsumed_tail
            total += len(chunk)
            if total > limit_bytes:
                raise WireError(RejectReason.TOO_LARGE, f"content is over {limit_bytes} bytes")
            if chunk:
                yield chunk
        rest = inflater.unused_data


def gunzip_bytes(body: bytes, limit_bytes: int) -> bytes:
    """Return the content of one or more joined gzip members.

    Raises:
        WireError: as `gunzip_chunks`.
    """
    content = io.BytesIO()
    for chunk in gunzip_chunks(body, limit_bytes):
        content.write(chunk)
    return content.getvalue()
