"""How a piece of reports gets into its tables, within a transaction that is the caller's.

Decides by which statements: a small piece is given as arguments, a large one is copied to temporary
tables, and what of it is stored already, which is nearly all, is renewed before the rest is
inserted. What a row may take the place of is decided in the statements, in either way alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from operator import add
from typing import Any, Final, TypeAlias

import asyncpg

from balancer.adapters.postgres import rows
from balancer.adapters.postgres.calls import affected
from balancer.adapters.postgres.statements import STATEMENTS

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"

Kinds = Mapping[str, rows.Rows]
"""Rows by kind, in the order in which all writers store them; each kind's in the order of keys."""

Store = Callable[[Connection, Kinds], Awaitable[int]]
"""Stores, and returns how many accounts were written."""

_RENEWED: Final = frozenset({"acknowledgement", "usage"})
"""Of members there are few, and the rule of what takes whose place is longer."""


async def given(connection: Connection, kinds: Kinds) -> int:
    """Store a small piece, a column an argument."""
    written = dict.fromkeys(kinds, 0)
    for kind, found in kinds.items():
        if found:
            statement = f"{STATEMENTS[f'given_{kind}']}\n{STATEMENTS[f'upsert_{kind}']}"
            arguments = rows.columns(found, len(found[0]))
            written[kind] = affected(await connection.execute(statement, *arguments))
    return written["usage"]


async def copied(connection: Connection, kinds: Kinds) -> int:
    """Store a large piece by COPY."""
    written = dict.fromkeys(kinds, 0)
    await connection.execute(STATEMENTS["create_incoming"])
    for kind, found in kinds.items():
        if not found:
            continue
        records: Iterable[tuple[Any, ...]] = found
        if kind in _RENEWED:
            records = map(add, found, zip(range(len(found)), strict=True))
        await connection.copy_records_to_table(f"incoming_{kind}", records=records)
        if kind in _RENEWED:
            written[kind] = await _renewed(connection, kind, len(found))
        else:
            written[kind] = affected(await connection.execute(STATEMENTS[f"upsert_{kind}"]))
    return written["usage"]


async def _renewed(connection: Connection, kind: str, count: int) -> int:
    """Renew the rows that are stored already, and insert those that are not."""
    places = await connection.fetchval(STATEMENTS[f"renew_{kind}"]) or []
    if len(places) == count:
        return count
    missing = sorted(set(range(count)).difference(places))
    statement = f"{STATEMENTS[f'missing_{kind}']}\n{STATEMENTS[f'upsert_{kind}']}"
    return len(places) + affected(await connection.execute(statement, missing))
