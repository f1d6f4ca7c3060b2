"""The report buffer: what was counted and has not reached the balancer.

Decides how stretches that could not be delivered are merged into the next report. Knows nothing of
sending. Bounded by the number of destinations, not by calls or by the length of an outage.
"""

from __future__ import annotations

from collections.abc import Iterable

from worker_sdk.wire.limits import PERMITS_MAX, SPAN_MAX_MS
from worker_sdk.wire.usage import UsageTuple, merge_tuples


class ReportBuffer:
    """Undelivered tuples, one a destination at most."""

    def __init__(self) -> None:
        self._undelivered: dict[str, UsageTuple] = {}

    def __len__(self) -> int:
        return len(self._undelivered)

    def restore(self, tuples: Iterable[UsageTuple]) -> None:
        """Keep tuples that were not delivered, merged with what is kept already."""
        for entry in tuples:
            kept = self._undelivered.get(entry.destination)
            self._undelivered[entry.destination] = _limited(
                entry if kept is None else merge_tuples(entry, kept)
            )

    def merged(self, newer: UsageTuple) -> UsageTuple:
        """Return ``newer`` with what is kept of its destination, which is kept no longer."""
        kept = self._undelivered.pop(newer.destination, None)
        return _limited(newer if kept is None else merge_tuples(kept, newer))


def _limited(entry: UsageTuple) -> UsageTuple:
    """Return the tuple within the limits of the wire, saturated."""
    most = max(entry.granted, entry.used, entry.denied, entry.starved_ms, entry.busy_ms)
    if most <= PERMITS_MAX and 0 <= entry.instant_ms - entry.from_ms <= SPAN_MAX_MS:
        return entry
    return UsageTuple(
        destination=entry.destination,
        from_ms=min(entry.instant_ms, max(entry.from_ms, entry.instant_ms - SPAN_MAX_MS)),
        instant_ms=entry.instant_ms,
        epoch=entry.epoch,
        granted=min(entry.granted, PERMITS_MAX),
        used=min(entry.used, PERMITS_MAX),
        denied=min(entry.denied, PERMITS_MAX),
        starved_ms=min(entry.starved_ms, PERMITS_MAX),
        busy_ms=min(entry.busy_ms, PERMITS_MAX),
    )
