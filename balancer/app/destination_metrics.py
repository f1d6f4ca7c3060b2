"""Metrics by destination: what is held back or lent, and what a shadow strategy would change.

Decides how many destinations have metrics of their own, and when they end: with the destination,
with the shadow, and when another process plans the shard. Knows no way of counting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from balancer.app import catalogue
from balancer.app.holds import held_of
from balancer.core.columns import total
from balancer.core.entry_columns import EntryColumns
from balancer.core.model import Destination, Policy, Reason
from balancer.ports import Metrics
from worker_sdk.wire.distribution import DestinationShares, Document
from worker_sdk.wire.shares import POINTS

_HELD: Final = (catalogue.HELD_POINTS, catalogue.HOLDS)
_LENT: Final = (catalogue.LENT_POINTS,)
_SHADOW: Final = (catalogue.SHADOW_MOVED, catalogue.SHADOW_LARGEST)


@dataclass(frozen=True, slots=True)
class ShadowDifference:
    """How a shadow strategy divides a destination otherwise.

    Attributes:
        moved_points: what it would give to other members: the sum of what they gain.
        largest_points: the largest difference of one member, up or down.
    """

    moved_points: int
    largest_points: int


def shadow_differences(
    reasons: Iterable[Reason], names: Collection[str]
) -> dict[str, ShadowDifference]:
    """Return what the shadow would do otherwise, for those of the names that have one."""
    found: dict[str, ShadowDifference] = {}
    for reason in reasons:
        if reason.shadow_points is None or reason.destination not in names:
            continue
        more = reason.shadow_points - reason.share_points
        known = found.get(reason.destination, ShadowDifference(0, 0))
        found[reason.destination] = ShadowDifference(
            known.moved_points + max(0, more), max(known.largest_points, abs(more))
        )
    return found


def lent_points(line: DestinationShares, policy: Policy) -> int:
    """Return how many of the points that a policy lends are lent: not free any more.

    Of what is not planned all is lent but the reserve for newcomers.
    """
    given = total(EntryColumns.of(line.entries).intervals.points())
    free_points = POINTS - given - held_of(line).points
    return min(max(0, policy.unplanned_points - free_points), policy.lend_points)


class DestinationMetrics:
    """Sets the gauges by destination, for a bounded number of destinations.

    Args:
        metrics: set.
        most: so many destinations at once, those that came first.
    """

    def __init__(self, metrics: Metrics, *, most: int = catalogue.BY_DESTINATION_MAX) -> None:
        self._metrics = metrics
        self._most = most
        self._measured: dict[int, set[str]] = {}
        self._left_out: dict[int, int] = {}

    async def show(
        self,
        shard: int,
        document: Document,
        destinations: Iterable[Destination],
        reasons: Collection[Reason],
    ) -> None:
        """Take what was published of a shard, and the reasons of what was planned of it."""
        held = {line.terms.destination: held_of(line) for line in document.destinations}
        known = self._measured.setdefault(shard, set())
        for name in known - held.keys():
            self._forget(name, (*_HELD, *_LENT, *_SHADOW))
        known.intersection_update(held)
        room = self._most - sum(len(names) for names in self._measured.values())
        new = sorted(held.keys() - known)
        known.update(new[: max(0, room)])
        self._left_out[shard] = len(held) - len(known)
        self._metrics.gauge(catalogue.UNMEASURED, sum(self._left_out.values()))
        for name in known:
            labels = {"destination": name}
            self._metrics.gauge(catalogue.HELD_POINTS, held[name].points, labels)
            self._metrics.gauge(catalogue.HOLDS, held[name].count, labels)
        policies = {entry.name: entry.policy for entry in destinations}
        self._show_lent(document, policies, known)
        shadowed = {name for name, policy in policies.items() if policy.shadow is not None}
        for name in known - shadowed:
            self._forget(name, _SHADOW)
        if known & shadowed:
            # Each reason is made when it is looked at: many thousands take their time.
            found = await asyncio.to_thread(shadow_differences, reasons, known & shadowed)
            if self._measured.get(shard) is known:
                self._set(found)

    def _show_lent(
        self, document: Document, policies: Mapping[str, Policy], known: Collection[str]
    ) -> None:
        for line in document.destinations:
            name = line.terms.destination
            if name not in known:
                continue
            policy = policies.get(name)
            if policy is None or not policy.lend_points:
                self._forget(name, _LENT)
                continue
            self._metrics.gauge(
                catalogue.LENT_POINTS, lent_points(line, policy), {"destination": name}
            )

    def forget(self, shard: int) -> None:
        """Take away the measures of a shard."""
        for name in self._measured.pop(shard, set()):
            self._forget(name, (*_HELD, *_LENT, *_SHADOW))
        self._left_out.pop(shard, None)
        self._metrics.gauge(catalogue.UNMEASURED, sum(self._left_out.values()))

    def _set(self, differences: Mapping[str, ShadowDifference]) -> None:
        for name, found in differences.items():
            labels = {"destination": name}
            self._metrics.gauge(catalogue.SHADOW_MOVED, found.moved_points / POINTS, labels)
            self._metrics.gauge(catalogue.SHADOW_LARGEST, found.largest_points / POINTS, labels)

    def _forget(self, name: str, metrics: Iterable[str]) -> None:
        for metric in metrics:
            self._metrics.forget(metric, {"destination": name})
