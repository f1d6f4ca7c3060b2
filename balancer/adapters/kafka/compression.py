"""From a message as read to the batch in it, without trusting one byte.

Decides which encodings are known and how far anything may grow while it is unpacked. Knows nothing
of offsets, of Kafka's client, or of what becomes of a batch.

A frame of zstandard that says that it is small is unpacked at once, into so much memory and no
more. All others are fed in small pieces: 4 bytes can stand for a block of 128 KiB, and the library
hands out whatever a piece gives at once. So no more than about 2 MiB is ever held beyond the limit.
"""

from __future__ import annotations

import io
import threading
from typing import Final

import zstandard

from balancer.ports import UsageRecord
from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.compression import GZIP, ZSTD, gunzip_bytes
from worker_sdk.wire.limits import (
    BATCH_COMPRESSED_MAX_BYTES,
    BATCH_MAX_BYTES,
    GZIP_MEMBERS_MAX,
)
from worker_sdk.wire.usage import CONTENT_TYPE, DecodedBatch, decode_batch

FRAMES_MAX: Final = GZIP_MEMBERS_MAX
"""Joined frames of zstandard in one body: an empty one passes no other limit."""

WHOLE_MAX_BYTES: Final = 1024 * 1024
"""A frame that states no more than this is unpacked at once."""

_PIECE_BYTES: Final = 64
_HEADER_MAX_BYTES: Final = 18


def decode_record(record: UsageRecord) -> DecodedBatch | None:
    """Return the batch of a message; None where it unpacks to nothing, which is "no tuples".

    Args:
        record: the message; its headers have lower-case names.

    Raises:
        WireError: EMPTY without a body, TOO_LARGE, BAD_CONTENT_TYPE for a type or an encoding that
            is not known, BAD_COMPRESSION for torn or foreign bytes, or as `decode_batch`.
    """
    body = record.body
    if not body:
        raise WireError(RejectReason.EMPTY, "the message has no body")
    if len(body) > BATCH_COMPRESSED_MAX_BYTES:
        raise WireError(
            RejectReason.TOO_LARGE, f"the message is over {BATCH_COMPRESSED_MAX_BYTES} bytes"
        )
    content_type = record.headers.get("content-type")
    if content_type is not None and content_type != CONTENT_TYPE.encode():
        raise WireError(RejectReason.BAD_CONTENT_TYPE, "the content type is not known")
    text = unpack(body, record.headers.get("content-encoding"), BATCH_MAX_BYTES)
    return decode_batch(text) if text else None


def unpack(body: bytes, encoding: bytes | None, limit_bytes: int) -> bytes:
    """Return the content of ``body``; joined frames and members are read whole.

    Args:
        body: as it came.
        encoding: value of the header ``content-encoding``; None for plain bytes.
        limit_bytes: what the content may have at most.

    Raises:
        WireError: BAD_CONTENT_TYPE, BAD_COMPRESSION, TOO_LARGE or TOO_MANY.
    """
    if encoding is None:
        if len(body) > limit_bytes:
            raise WireError(RejectReason.TOO_LARGE, f"content is over {limit_bytes} bytes")
        return body
    if encoding == ZSTD.encode():
        return unzstd_bytes(body, limit_bytes)
    if encoding == GZIP.encode():
        return gunzip_bytes(body, limit_bytes)
    raise WireError(RejectReason.BAD_CONTENT_TYPE, "the content encoding is not known")


def unzstd_bytes(body: bytes, limit_bytes: int) -> bytes:
    """Return the content of one or more joined frames of zstandard.

    Raises:
        WireError: BAD_COMPRESSION where a frame is torn or junk follows, TOO_LARGE where the
            content passes ``limit_bytes`` or a frame asks for more memory than that, TOO_MANY where
            over ``FRAMES_MAX`` are joined.
    """
    whole = _whole_frame(body, min(limit_bytes, WHOLE_MAX_BYTES))
    if whole is not None:
        return whole
    # A frame that says its size may use that as its window, which is a power of two or less.
    window_bytes = max(1 << (limit_bytes - 1).bit_length(), 1 << 23)
    decompressor = zstandard.ZstdDecompressor(max_window_size=window_bytes)
    content = io.BytesIO()
    position = 0
    frames = 0
    while position < len(body):
        frames += 1
        if frames > FRAMES_MAX:
            raise WireError(RejectReason.TOO_MANY, f"over {FRAMES_MAX} frames")
        _check_header(body[position : position + _HEADER_MAX_BYTES], limit_bytes, window_bytes)
        position = _unpack_frame(decompressor, body, position, content, limit_bytes)
    return content.getvalue()


class _ThreadDecompressor(threading.local):
    """What unpacks small frames; made once a thread, since making it takes longer than using it."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=WHOLE_MAX_BYTES)


_of_thread: Final = _ThreadDecompressor()


def _whole_frame(body: bytes, limit_bytes: int) -> bytes | None:
    """Return the content of a body that is one small frame of stated size; None for any other."""
    try:
        stated = zstandard.frame_content_size(body)
        if not 0 < stated <= limit_bytes:
            return None
        return _of_thread.decompressor.decompress(body, allow_extra_data=False)
    except zstandard.ZstdError:  # reading it in pieces says what is wrong with it
        return None


def _check_header(header: bytes, limit_bytes: int, window_bytes: int) -> None:
    try:
        frame = zstandard.get_frame_parameters(header)
    except zstandard.ZstdError as error:
        raise WireError(RejectReason.BAD_COMPRESSION, "not zstd") from error
    stated = frame.content_size
    if stated != zstandard.CONTENTSIZE_UNKNOWN and stated > limit_bytes:
        raise WireError(RejectReason.TOO_LARGE, f"content is over {limit_bytes} bytes")
    if frame.window_size > window_bytes:
        raise WireError(RejectReason.TOO_LARGE, f"a frame needs over {window_bytes} bytes")


def _unpack_frame(
    decompressor: zstandard.ZstdDecompressor,
    body: bytes,
    position: int,
    content: io.BytesIO,
    limit_bytes: int,
) -> int:
    """Append the frame that begins at ``position``; return where it ends."""
    unpacking = decompressor.decompressobj()
    while not unpacking.eof:
        piece = body[position : position + _PIECE_BYTES]
        if not piece:
            raise WireError(RejectReason.BAD_COMPRESSION, "zstd data is cut short")
        position += len(piece)
        try:
            chunk = unpacking.decompress(piece)
        except zstandard.ZstdError as error:
            raise WireError(RejectReason.BAD_COMPRESSION, "not zstd") from error
        if content.tell() + len(chunk) > limit_bytes:
            raise WireError(RejectReason.TOO_LARGE, f"content is over {limit_bytes} bytes")
        content.write(chunk)
    return position - len(unpacking.unused_data)
