"""Large values as short JSON texts.

Decides how a value is written that every round stores and hardly anybody reads: where it is large,
as zstandard in base 64. PostgreSQL's own compression of the same would take forty times the
processor time, for twice the bytes. Knows nothing of what a value means.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, Final

import zstandard

PLAIN_MAX_BYTES: Final = 2_000
"""What is smaller stays text that people can read; PostgreSQL leaves it as it is too."""

VALUE_MAX_BYTES: Final = 256 * 1024 * 1024

_COMPRESSED: Final = "zstd"
_LEVEL: Final = 1


def compact(value: object) -> str:
    """Return a value as JSON text, compressed where it is large."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    body = text.encode()
    if len(body) <= PLAIN_MAX_BYTES:
        return text
    compressed = zstandard.ZstdCompressor(level=_LEVEL).compress(body)
    return json.dumps({_COMPRESSED: b64encode(compressed).decode("ascii")})


def expanded(text: str) -> Any:
    """Return the value of a text that `compact` made, or of any other JSON.

    Raises:
        ValueError: where it is none.
    """
    try:
        value = json.loads(text)
        if not isinstance(value, dict) or _COMPRESSED not in value:
            return value
        compressed = b64decode(value[_COMPRESSED], validate=True)
        if not 0 <= zstandard.frame_content_size(compressed) <= VALUE_MAX_BYTES:
            raise ValueError("a stored value does not tell its size, or is too large")
        return json.loads(zstandard.ZstdDecompressor().decompress(compressed))
    except (TypeError, RecursionError, zstandard.ZstdError) as error:
        raise ValueError(f"a stored value is broken: {error}") from error
