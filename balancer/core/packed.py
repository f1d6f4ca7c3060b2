"""Columns as short texts, for storing many of them.

Decides how a column of whole numbers is written and which texts are none. Each number takes the
same count of bytes, the fewest that hold the largest. Knows nothing of what the numbers mean.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Final

import numpy as np

from balancer.core.columns import SMALL, Ints
from worker_sdk.wire.limits import PERMITS_MAX

_TYPES: Final = {str(size): np.dtype(f"<i{size}") for size in (1, 2, 4, 8)}


def packed(column: Ints) -> str:
    """Return a column as text: the bytes that a number takes, and the numbers in base 64."""
    largest = int(np.abs(column).max(initial=0))
    size = next(size for size, kind in _TYPES.items() if largest <= np.iinfo(kind).max)
    return size + b64encode(column.astype(_TYPES[size]).tobytes()).decode("ascii")


def unpacked(text: object) -> Ints:
    """Return the column of a text.

    Raises:
        ValueError: where it is none, or a number passes `PERMITS_MAX`.
    """
    if not isinstance(text, str) or text[:1] not in _TYPES:
        raise ValueError("this is no column")
    column: Ints = np.frombuffer(b64decode(text[1:], validate=True), _TYPES[text[0]]).astype(SMALL)
    if len(column) and not -PERMITS_MAX <= column.min() <= column.max() <= PERMITS_MAX:
        raise ValueError("a number of a column is out of bounds")
    return column
