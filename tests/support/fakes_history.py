"""The history in memory: the contract suite holds it to what the real one does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from balancer.core.model import Reason
from balancer.core.record import (
    SPAN_MS,
    DestinationRecord,
    DetailRecord,
    History,
    Recorded,
    RoundRecord,
    SpanRecord,
    in_force,
    reasons_in_force,
)
from balancer.ports import REASONS_MAX

Key = TypeVar("Key")
Row = TypeVar("Row")


class FakeHistory:
    """Rows in dictionaries by key."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[int, int, int], RoundRecord] = {}
        self._past: dict[tuple[str, int, int], DestinationRecord] = {}
        self._spans: dict[tuple[str, int], SpanRecord] = {}
        self._details: dict[tuple[str, int, int], DetailRecord] = {}

    async def store_round(self, record: Recorded) -> None:
        whole = record.round
        self._rounds.setdefault((whole.shard, whole.planned_at_ms, whole.epoch), whole)
        for entry in record.destinations:
            self._past.setdefault((entry.destination, entry.planned_at_ms, entry.epoch), entry)
        for detail in record.details:
            key = (detail.destination, detail.planned_at_ms, detail.epoch)
            self._details.setdefault(key, detail)

    async def load_in_force(
        self, destination: str, *, host: str | None = None, at_ms: int | None = None
    ) -> Sequence[DetailRecord]:
        own = [detail for key, detail in self._details.items() if key[0] == destination]
        return [_of_host(detail, host) for detail in in_force(own, at_ms)]

    async def load_reasons(
        self,
        destination: str,
        host: str | None = None,
        *,
        limit: int = REASONS_MAX,
        at_ms: int | None = None,
    ) -> Sequence[tuple[int, Reason]]:
        return reasons_in_force(await self.load_in_force(destination, at_ms=at_ms), host, limit)

    async def load_details(
        self,
        destination: str,
        *,
        from_ms: int,
        until_ms: int,
        limit: int,
        host: str | None = None,
    ) -> Sequence[DetailRecord]:
        return [
            _of_host(detail, host)
            for key, detail in sorted(self._details.items())
            if key[0] == destination and from_ms <= key[1] < until_ms
        ][:limit]

    async def load_history(
        self, destination: str, *, from_ms: int, until_ms: int, limit: int
    ) -> History:
        spans = [
            span
            for key, span in sorted(self._spans.items())
            if key[0] == destination and key[1] + SPAN_MS > from_ms and key[1] < until_ms
        ]
        found = [
            entry
            for key, entry in sorted(self._past.items())
            if key[0] == destination and from_ms <= key[1] < until_ms
        ]
        shard = self._shard_of(destination)
        rounds = [
            entry
            for key, entry in sorted(self._rounds.items())
            if key[0] == shard and from_ms <= key[1] < until_ms
        ]
        return History(
            spans[:limit],
            found[:limit],
            rounds[:limit],
            max(len(spans), len(found), len(rounds)) > limit,
        )

    def _shard_of(self, destination: str) -> int | None:
        for rows in (sorted(self._past.items()), sorted(self._spans.items())):
            shards = [row.shard for key, row in rows if key[0] == destination]
            if shards:
                return shards[-1]
        return None

    async def load_history_at(
        self, destination: str, at_ms: int
    ) -> DestinationRecord | SpanRecord | None:
        begun = [
            entry
            for key, entry in sorted(self._past.items())
            if key[0] == destination and key[1] <= at_ms and entry.from_ms <= at_ms
        ]
        spans = [
            span
            for key, span in sorted(self._spans.items())
            if key[0] == destination and key[1] <= at_ms
        ]
        return begun[-1] if begun else spans[-1] if spans else None

    async def clean_history(
        self, *, roll_up_before_ms: int, before_ms: int, details_before_ms: int, limit: int
    ) -> int:
        by_age = sorted(self._past.items(), key=lambda item: item[0][1])
        old = [item for item in by_age if item[0][1] < roll_up_before_ms][:limit]
        for key, entry in old:
            del self._past[key]
            span = (entry.destination, entry.planned_at_ms // SPAN_MS * SPAN_MS)
            self._spans[span] = _added(self._spans.get(span), entry, span[1])
        gone = len(old)
        gone += _removed(self._spans, lambda row: row.from_ms < before_ms, limit)
        gone += _removed(self._rounds, lambda row: row.planned_at_ms < before_ms, limit)
        return gone + _removed(self._details, lambda row: row.until_ms < details_before_ms, limit)


def _of_host(detail: DetailRecord, host: str | None) -> DetailRecord:
    own = [row for row, reason in enumerate(detail.reasons) if host in (None, reason.host)]
    return replace(
        detail,
        reasons=tuple(detail.reasons[row] for row in own),
        groups=tuple(detail.groups[row] for row in own) if detail.groups else (),
    )


def _removed(rows: dict[Key, Row], is_old: Callable[[Row], bool], limit: int) -> int:
    old = [key for key, row in rows.items() if is_old(row)][:limit]
    for key in old:
        del rows[key]
    return len(old)


def _added(span: SpanRecord | None, entry: DestinationRecord, from_ms: int) -> SpanRecord:
    known: Iterable[SpanRecord] = () if span is None else (span,)

    def least(old: str, new: int | None) -> int | None:
        values = [*(getattr(row, old) for row in known), new]
        return min((value for value in values if value is not None), default=None)

    def most(old: str, new: int | None) -> int | None:
        values = [*(getattr(row, old) for row in known), new]
        return max((value for value in values if value is not None), default=None)

    def total(name: str, new: int | None) -> int:
        return int(sum(getattr(row, name) for row in known)) + (new or 0)

    return SpanRecord(
        destination=entry.destination,
        shard=entry.shard,
        from_ms=from_ms,
        rounds=total("rounds", 1),
        planned_rounds=total("planned_rounds", int(entry.asked_permits is not None)),
        capacity_least=least("capacity_least", entry.capacity) or 0,
        capacity_most=most("capacity_most", entry.capacity) or 0,
        members_least=least("members_least", entry.members) or 0,
        members_most=most("members_most", entry.members) or 0,
        asked_permits=total("asked_permits", entry.asked_permits),
        asked_most=most("asked_most", entry.asked_permits),
        wanted_permits=total("wanted_permits", entry.wanted_permits),
        used_permits=total("used_permits", entry.used_permits),
        denied_permits=total("denied_permits", entry.denied_permits),
        denied_most=most("denied_most", entry.denied_permits),
        level_least=least("level_least", entry.level_permits),
        level_most=most("level_most", entry.level_permits),
        given_points=total("given_points", entry.given_points),
        held_points=total("held_points", entry.held_points),
        held_most=most("held_most", entry.held_points) or 0,
        free_points=total("free_points", entry.free_points),
        shadow_moved_most=most("shadow_moved_most", entry.shadow_moved_points),
    )
