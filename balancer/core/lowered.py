"""The last shares repeated at a lower capacity, while nothing may be planned from reports.

Decides what each member keeps when a destination's capacity was lowered, or it was removed, while
its shard learns: its share in points, less what earlier documents promise beyond that at the new
capacity (rules 8 and 10 of docs/explanation/safety.md). Knows no demand, and gives nobody more
permits than before. A capacity that was raised waits: points that nobody reports on may be idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from balancer.core.columns import Ints, total, zeros
from balancer.core.destination_plan import Promised, line_of, promised_points
from balancer.core.entry_columns import EntryColumns
from balancer.core.layout import PreviousLayout, lay_out
from balancer.core.reservations import Promises
from balancer.core.rows import Rows
from worker_sdk.wire.distribution import DestinationShares, Member, Terms
from worker_sdk.wire.shares import POINTS


def lowered(
    before: DestinationShares,
    terms: Terms,
    promises: Sequence[Promises],
    oldest: Mapping[Member, int],
) -> tuple[DestinationShares, list[str]]:
    """Return the line for the windows of ``terms``, and what of it must not be.

    Args:
        before: the line to repeat, of a larger capacity.
        terms: of the new line.
        promises: of every unexpired document, for this destination.
        oldest: the oldest epoch that each may still go by, from the start of these windows on.
    """
    entries = EntryColumns.of(before.entries)
    rows = Rows.of(entries.members)
    previous = PreviousLayout.of(rows, entries)
    promised = promised_points(terms, promises, oldest, rows)
    points = _points(previous.points, promised)
    layout = lay_out(
        previous.order(),
        points,
        capacity=terms.capacity,
        windows=range(terms.from_window, terms.until_window),
        served_window=zeros(len(points)),
    )
    safe = zeros(len(points)) if promised.is_full else np.minimum(entries.safe_points, points)
    line = line_of(terms, previous, layout, safe, promised)
    return line, promised.faults(line, rows)


def _points(shares: Ints, promised: Promised) -> Ints:
    """Return what is promised, and of the rest of each share as much as there is room for."""
    kept = promised.kept
    if promised.is_full:
        return kept
    free = POINTS - total(kept) - sum(points for points, _ in promised.gone.values())
    rest = np.maximum(shares - kept, 0)
    wanted = total(rest)
    if wanted > free:
        rest = rest * free // wanted
    return np.asarray(kept + rest)
