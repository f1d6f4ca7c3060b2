"""History on PostgreSQL: rounds, destinations and members, written at once and read by time.

Decides how members are packed into one row: by columns, a column of equal values as one value, so
that what is the same for all costs nothing, and numbers in as few bytes as hold the largest. Knows
no rule of keeping.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import MISSING, fields
from decimal import Decimal
from typing import Any, Final

import asyncpg
import numpy as np

from balancer.adapters.postgres.calls import CONNECT_SECONDS, Calls, translated
from balancer.adapters.postgres.compact import compact, expanded
from balancer.adapters.postgres.rows import columns
from balancer.adapters.postgres.statements import STATEMENTS
from balancer.core.model import Reason, RoundKind
from balancer.core.packed import packed, unpacked
from balancer.core.reasons import REASON_FIELDS, Column, column_of
from balancer.core.record import (
    DestinationRecord,
    DetailRecord,
    History,
    Recorded,
    RoundRecord,
    SpanRecord,
    reasons_in_force,
)
from balancer.ports import REASONS_MAX
from worker_sdk.wire.limits import EPOCH_MAX

ROUNDS_AT_ONCE: Final = 10
"""So many rounds' members are in memory as text."""

_HOST: Final = REASON_FIELDS.index("host")
_WORDS: Final = frozenset({"host", "instance", "rule", "group"})
"""What of a member is text; all else are numbers, and a text of theirs is a packed column."""

_DEFAULTS: Final = {
    field.name: field.default for field in fields(Reason) if field.default is not MISSING
}
_DESTINATION: Final = tuple(field.name for field in fields(DestinationRecord))


class PostgresHistory(Calls):
    """The part of the repository that keeps what happened."""

    async def store_round(self, record: Recorded) -> None:
        """See the port."""
        details = await asyncio.to_thread(_detail_rows, record.details)
        async with (
            translated("keep a round"),
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
            connection.transaction(),
        ):
            await connection.execute(STATEMENTS["insert_history_round"], *_round_row(record.round))
            if record.destinations:
                await connection.execute(
                    STATEMENTS["insert_history_destinations"],
                    *columns([_destination_row(entry) for entry in record.destinations], 19),
                )
            if details:
                await connection.execute(
                    STATEMENTS["insert_history_details"], *columns(details, 10)
                )

    async def load_in_force(
        self, destination: str, *, host: str | None = None, at_ms: int | None = None
    ) -> Sequence[DetailRecord]:
        """See the port."""
        found = await self._rows("tell shares", "load_history_in_force", destination, at_ms)
        return await asyncio.to_thread(_to_details, found, host)

    async def load_reasons(
        self,
        destination: str,
        host: str | None = None,
        *,
        limit: int = REASONS_MAX,
        at_ms: int | None = None,
    ) -> Sequence[tuple[int, Reason]]:
        """See the port."""
        found = await self.load_in_force(destination, host=host, at_ms=at_ms)
        return reasons_in_force(found, host, limit)

    async def load_details(
        self,
        destination: str,
        *,
        from_ms: int,
        until_ms: int,
        limit: int,
        host: str | None = None,
    ) -> Sequence[DetailRecord]:
        """See the port."""
        details: list[DetailRecord] = []
        behind = (from_ms - 1, EPOCH_MAX)
        while len(details) < limit:
            few = min(ROUNDS_AT_ONCE, limit - len(details))
            asked = (destination, *behind, until_ms, few)
            found = await self._rows("tell members", "load_history_details", *asked)
            details += await asyncio.to_thread(_to_details, found, host)
            if len(found) < few:
                break
            behind = (details[-1].planned_at_ms, details[-1].epoch)
        return details

    async def load_history(
        self, destination: str, *, from_ms: int, until_ms: int, limit: int
    ) -> History:
        """See the port."""
        asked = (destination, from_ms, until_ms, limit + 1)
        async with (
            translated("tell the past"),
            self._pool.acquire(timeout=CONNECT_SECONDS) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            spans = await connection.fetch(STATEMENTS["load_history_spans"], *asked)
            found = await connection.fetch(STATEMENTS["load_history_destinations"], *asked)
            rounds = await connection.fetch(STATEMENTS["load_history_rounds"], *asked)
        return History(
            spans=[_to_span(row) for row in spans[:limit]],
            destinations=[_to_destination(row) for row in found[:limit]],
            rounds=[_to_round(row) for row in rounds[:limit]],
            more=max(len(spans), len(found), len(rounds)) > limit,
        )

    async def load_history_at(
        self, destination: str, at_ms: int
    ) -> DestinationRecord | SpanRecord | None:
        """See the port."""
        found = await self._rows("tell the past", "load_history_at", destination, at_ms)
        if found:
            return _to_destination(found[0])
        found = await self._rows("tell the past", "load_history_span_at", destination, at_ms)
        return _to_span(found[0]) if found else None

    async def clean_history(
        self, *, roll_up_before_ms: int, before_ms: int, details_before_ms: int, limit: int
    ) -> int:
        """See the port."""
        gone = await self._value("sum up history", "roll_up_history", roll_up_before_ms, limit)
        for name, instant_ms in (
            ("remove_history_spans", before_ms),
            ("remove_history_rounds", before_ms),
            ("remove_history_details", details_before_ms),
        ):
            gone += await self._execute("remove history", name, instant_ms, limit)
        return int(gone)


def pack(detail: DetailRecord) -> str:
    """Return the members of one destination as JSON text, by columns."""
    stored: dict[str, Any] = {"n": len(detail.reasons)}
    for name in REASON_FIELDS:
        stored[name] = _stored(column_of(detail.reasons, name))
    if detail.groups:
        stored["group"] = _stored(list(detail.groups))
    return compact(stored)


def _stored(column: Column) -> Any:
    if column is None or isinstance(column, int) or not len(column):
        return [] if isinstance(column, np.ndarray) else column
    first = column[0]
    if isinstance(column, np.ndarray):
        return int(first) if bool((column == first).all()) else packed(column)
    return first if column.count(first) == len(column) else column


def unpack(
    destination: str, text: str, host: str | None = None
) -> tuple[tuple[Reason, ...], tuple[str | None, ...]]:
    """Return the reasons of one destination, and their members' groups where anybody has one.

    What a newer version wrote beside is left out.

    Args:
        destination: its name.
        text: as `pack` made it.
        host: whose members; None for all. A reason is made only of what was asked for.
    """
    stored: dict[str, Any] = expanded(text)
    count: int = stored["n"]
    table: list[list[Any]] = []
    for name in (*REASON_FIELDS, "group"):
        value = stored.get(name, _DEFAULTS.get(name))
        if isinstance(value, str) and name not in _WORDS:
            value = unpacked(value).tolist()
        table.append(value if isinstance(value, list) else [value] * count)
    if host is not None:
        own = [row for row, name in enumerate(table[_HOST]) if name == host]
        table = [[column[row] for row in own] for column in table]
    groups = table.pop()
    reasons = tuple(Reason(destination, *values) for values in zip(*table, strict=True))
    return reasons, tuple(groups) if "group" in stored else ()


def _round_row(record: RoundRecord) -> tuple[Any, ...]:
    return (
        *(record.shard, record.planned_at_ms, record.epoch, record.kind.value, record.outcome),
        *(record.took_ms, record.destinations, record.entries, record.holds, record.held_points),
        record.sentence.replace("\0", ""),
    )


def _destination_row(record: DestinationRecord) -> tuple[Any, ...]:
    return tuple(
        record.kind.value if name == "kind" else getattr(record, name) for name in _DESTINATION
    )


def _detail_rows(details: Sequence[DetailRecord]) -> list[tuple[Any, ...]]:
    return [
        (
            *(detail.destination, detail.epoch, detail.planned_at_ms, detail.from_ms),
            *(detail.until_ms, detail.window_seconds, detail.capacity, detail.whole),
            *(detail.left_out, pack(detail)),
        )
        for detail in details
    ]


def _to_details(found: Sequence[asyncpg.Record], host: str | None) -> list[DetailRecord]:
    details = []
    for row in found:
        values = dict(row)
        reasons, groups = unpack(values["destination"], values.pop("members"), host)
        details.append(DetailRecord(**values, reasons=reasons, groups=groups))
    return details


def _to_destination(row: asyncpg.Record) -> DestinationRecord:
    return DestinationRecord(**{**dict(row), "kind": RoundKind(row["kind"])})


def _to_round(row: asyncpg.Record) -> RoundRecord:
    return RoundRecord(**{**dict(row), "kind": RoundKind(row["kind"])})


def _to_span(row: asyncpg.Record) -> SpanRecord:
    # Sums are of a type without bound, and come as decimals.
    values: dict[str, Any] = {
        name: int(value) if isinstance(value, Decimal) else value
        for name, value in dict(row).items()
    }
    return SpanRecord(**values)
