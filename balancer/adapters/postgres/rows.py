"""Rows and values: the one place that maps the domain to columns and back.

Decides which of several batches in one statement counts (the newest instant; of equal ones the
first), and the order of keys, which is the same in every transaction so that none block each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from balancer.app.policies import policy_to_values, stored_policy
from balancer.core.model import Destination, MemberRecord, Policy, Usage
from balancer.ports import AcceptedBatch
from worker_sdk.wire.usage import MemberState

Rows = list[tuple[Any, ...]]
Columns = list[list[Any]]


def columns(rows: Sequence[Sequence[Any]], width: int) -> Columns:
    """Return rows as columns, ``width`` of them also where there is no row."""
    return (
        [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
    )


def usage_rows(batches: Sequence[AcceptedBatch]) -> tuple[list[tuple[Any, ...]], int]:
    """Return one row a key, sorted, and how many accounts were given."""
    newest: dict[tuple[str, str, str], tuple[Any, ...]] = {}
    given = 0
    for accepted in batches:
        batch = accepted.batch
        for entry in batch.tuples:
            given += 1
            key = (entry.destination, batch.host, batch.instance)
            row = (
                *key,
                entry.from_ms,
                entry.instant_ms,
                entry.epoch,
                entry.granted,
                entry.used,
                entry.denied,
                entry.starved_ms,
                entry.busy_ms,
                accepted.seen_ms,
            )
            known = newest.get(key)
            if known is None or known[4] < entry.instant_ms:
                newest[key] = row
    return [newest[key] for key in sorted(newest)], given


def member_rows(batches: Sequence[AcceptedBatch]) -> list[tuple[Any, ...]]:
    """Return one row a member, sorted; a goodbye wins over whatever else is there."""
    newest: dict[tuple[str, str], tuple[Any, ...]] = {}
    for accepted in batches:
        batch = accepted.batch
        leaves = batch.state is MemberState.LEAVING
        key = (batch.host, batch.instance)
        row = (
            *key,
            batch.group,
            batch.sent_at_ms,
            accepted.seen_ms,
            accepted.arrived_ms if leaves else None,
            json.dumps({name: list(account) for name, account in batch.spent.items()}),
        )
        known = newest.get(key)
        if known is None or (known[5] is None and (leaves or known[3] < batch.sent_at_ms)):
            newest[key] = row
    return [newest[key] for key in sorted(newest)]


def acknowledgement_rows(batches: Sequence[AcceptedBatch]) -> list[tuple[Any, ...]]:
    """Return one row a (member, shard, epoch) reported, sorted: when it was first seen."""
    first: dict[tuple[str, str, int, int], int] = {}
    for accepted in batches:
        batch = accepted.batch
        for shard, epoch in batch.epochs.items():
            first.setdefault((batch.host, batch.instance, shard, epoch), accepted.arrived_ms)
    return [(*key, arrived_ms) for key, arrived_ms in sorted(first.items())]


def to_member(row: Mapping[str, Any]) -> MemberRecord:
    """Return a member from its row."""
    return MemberRecord(
        host=row["host"],
        instance=row["instance"],
        group=row["group_name"],
        instant_ms=row["instant_ms"],
        seen_ms=row["seen_ms"],
        left_ms=row["left_ms"],
        acknowledged_epoch=row["epoch"],
        acknowledged_ms=row["acknowledged_ms"],
        spent={
            name: (account[0], account[1]) for name, account in json.loads(row["spent"]).items()
        },
    )


def to_usage(row: Sequence[Any]) -> Usage:
    """Return an account from its row; columns are in the order of the fields."""
    return Usage(*row)


def policy_to_json(policy: Policy) -> str:
    """Return a policy as JSON text."""
    return json.dumps(policy_to_values(policy))


def policy_from_json(text: str) -> Policy:
    """Return a policy from JSON text; an older or newer version may have written it.

    Raises:
        PolicyError: where a value is out of bounds.
    """
    return stored_policy(json.loads(text))


def to_destination(row: Mapping[str, Any]) -> Destination:
    """Return a destination from its row."""
    return Destination(
        name=row["name"],
        capacity=row["capacity"],
        window_seconds=row["window_seconds"],
        policy=policy_from_json(row["policy"]),
        changed_at_ms=row["changed_at_ms"],
        removed=row["removed"],
    )
