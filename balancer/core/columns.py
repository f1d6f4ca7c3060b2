"""Columns of whole numbers: one value a member, exact.

Decides which type of number a column has. Numbers of 64 bits wherever no product can pass them;
else Python's own, slower and without bound, so that no capacity and no count is ever wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from worker_sdk.wire.shares import POINTS

Ints = NDArray[Any]
"""Whole numbers, of 64 bits or Python's own."""

Flags = NDArray[np.bool_]
Kind = np.dtype[Any]

_LARGEST: Final = 2**62
SMALL: Final[Kind] = np.dtype(np.int64)
LARGE: Final[Kind] = np.dtype(object)


def kind_for(largest: int) -> Kind:
    """Return the type of a column whose products reach at most ``largest``."""
    return SMALL if largest < _LARGEST else LARGE


def ints(values: Iterable[int], kind: Kind = SMALL) -> Ints:
    """Return a column of ``values``."""
    return np.fromiter(values, dtype=kind)


def zeros(count: int, kind: Kind = SMALL) -> Ints:
    """Return a column of nothing."""
    return np.zeros(count, dtype=kind)


def total(column: Ints) -> int:
    """Return the exact sum of a column."""
    return int(column.sum()) if len(column) else 0


def picked(column: Ints, rows: Ints) -> Ints:
    """Return the rows of a column; nothing for row -1."""
    if not len(column):
        return zeros(len(rows))
    return np.where(rows >= 0, column[rows], 0)


def points_of(permits: Ints, capacity: int) -> Ints:
    """Return the fewest points that always give so many permits, at most a whole.

    ``ceil(permits · 10^9 / capacity)``; nothing of a closed destination.
    """
    if capacity <= 0:
        return zeros(len(permits))
    kind = kind_for((capacity + 1) * POINTS)
    within = np.minimum(permits, capacity).astype(kind)
    return np.asarray(-(-within * POINTS // capacity)).astype(SMALL)
