"""Gzip with a cap on what comes out, and the names of the encodings.

Decides when compressed bytes are torn, have junk behind them or would grow beyond a limit. Knows
nothing of what is inside. Zstandard needs a package outside the standard library, so its code
stands with the drivers that use it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import Final

from worker_sdk.errors import RejectReason, WireError

GZIP: Final = "gzip"
ZSTD: Final = "zstd"

_CHUNK_BYTES: Final = 256 * 1024
_GZIP_WBITS: Final = 31


def gzip_bytes(body: bytes, *, level: int = 6) -> bytes:
    """Return ``body`` as one gzip member; it has no time stamp: equal input gives equal bytes."""
    return gzip.compress(body, compresslevel=level, mtime=0)


def gunzip_chunks(body: bytes, limit_bytes: int) -> Iterator[bytes]:
    """Yield the content of one or more joined gzip members in chunks.

    At no time is more than one chunk (256 KiB) held beyond what was yielded.

    Raises:
        WireError: BAD_COMPRESSION where a member is torn or junk follows, TOO_LARGE where the
            content passes ``limit_bytes``.
    """
    total = 0
    rest = body
    while rest:
        inflater = zlib.decompressobj(wbits=_GZIP_WBITS)
        while True:
            try:
                chunk = inflater.decompress(rest, _CHUNK_BYTES)
            except zlib.error as error:
                raise WireError(RejectReason.BAD_COMPRESSION, "not gzip") from error
            total += len(chunk)
            if total > limit_bytes:
                raise WireError(RejectReason.TOO_LARGE, f"content is over {limit_bytes} bytes")
            if chunk:
                yield chunk
            if inflater.eof:
                rest = inflater.unused_data
                break
            rest = inflater.unconsumed_tail
            if not chunk and not rest:
                raise WireError(RejectReason.BAD_COMPRESSION, "gzip data is cut short")


def gunzip_bytes(body: bytes, limit_bytes: int) -> bytes:
    """Return the content of one or more joined gzip members.

    Raises:
        WireError: as `gunzip_chunks`.
    """
    return b"".join(gunzip_chunks(body, limit_bytes))
