"""Rows and values: the one place that maps the domain to columns and back.

Decides which of several batches in one statement counts (the newest instant; of equal ones the
first), and the order of keys, which is the same in every transaction so that none block each other.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import filterfalse
from typing import Any, Final

import numpy as np

from balancer.adapters.postgres.compact import compact, expanded
from balancer.app.policies import policy_to_values, stored_policy
from balancer.core.columns import SMALL
from balancer.core.memory import Memory
from balancer.core.model import Destination, MemberRecord, Policy
from balancer.core.usage_columns import NUMBERS, UsageColumns, UsageTable
from balancer.ports import AcceptedBatch
from worker_sdk.wire.usage import MemberState, UsageTuple

Member = tuple[str, str]
Rows = list[tuple[Any, ...]]
Columns = list[list[Any]]

POLICIES_KEPT: Final = 10_000

_one_text: Final = str if sys.version_info[:2] == (3, 12) else sys.intern
"""Gives one text for equal names. Python 3.12 keeps for ever what is interned, and names of new
members come without end; there a text is itself, and looked up a little slower."""

_INSTANT: Final = UsageTuple._fields.index("instant_ms")
_HOST: Final = len(UsageTuple._fields)
_INSTANCE: Final = _HOST + 1


def columns(rows: Sequence[Sequence[Any]], width: int) -> Columns:
    """Return rows as columns, ``width`` of them also where there is no row."""
    return (
        [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
    )


def _by_member(batches: Sequence[AcceptedBatch]) -> list[tuple[Member, list[AcceptedBatch]]]:
    """Return each member's batches in the order given, the members sorted."""
    found: dict[Member, list[AcceptedBatch]] = {}
    for accepted in batches:
        found.setdefault((accepted.batch.host, accepted.batch.instance), []).append(accepted)
    return [(member, found[member]) for member in sorted(found)]


def usage_rows(batches: Sequence[AcceptedBatch]) -> tuple[Rows, int]:
    """Return one row a key, sorted by destination and member, and how many accounts were given.

    A row is an account's fields with the host, the instance and the instant of sight behind them.
    """
    found: dict[str, Rows] = {}
    given = 0
    # Members come in their order, so that to sort the names of the destinations is enough.
    for member, theirs in _by_member(batches):
        host, instance = member
        for accepted in theirs:
            behind = (host, instance, accepted.seen_ms)
            given += len(accepted.batch.tuples)
            for entry in accepted.batch.tuples:
                known = found.get(entry[0])
                if known is None:
                    found[entry[0]] = [entry + behind]
                elif known[-1][_HOST] is not host or known[-1][_INSTANCE] is not instance:
                    known.append(entry + behind)
                elif known[-1][_INSTANT] < entry[_INSTANT]:  # the same member's again, and newer
                    known[-1] = entry + behind
    return [row for name in sorted(found) for row in found[name]], given


def _spent_to_json(spent: Mapping[str, tuple[int, int]]) -> str:
    return json.dumps({name: list(account) for name, account in spent.items()})


def member_rows(batches: Sequence[AcceptedBatch], recorded: Mapping[int, int]) -> Rows:
    """Return one row a member, sorted; a goodbye wins over whatever else is there.

    Its last four fields are the texts of arrays, a place a shard: the shards, the epochs believed,
    the instants of their first sight, and the epochs told. Believed is the largest told of those
    that are on record, ``recorded`` being the newest by shard; 0 if none is.
    """
    rows: Rows = []
    for member, theirs in _by_member(batches):
        newest = theirs[0]
        for accepted in theirs[1:]:
            leaves = accepted.batch.state is MemberState.LEAVING
            if newest.batch.state is not MemberState.LEAVING and (
                leaves or newest.batch.sent_at_ms < accepted.batch.sent_at_ms
            ):
                newest = accepted
        batch = newest.batch
        rows.append(
            (
                *member,
                batch.group,
                batch.sent_at_ms,
                newest.seen_ms,
                newest.arrived_ms if batch.state is MemberState.LEAVING else None,
                _spent_to_json(batch.spent) if batch.spent else "{}",
                *map(_array, _epochs(theirs, recorded)),
            )
        )
    return rows


def _array(numbers: Sequence[int]) -> str:
    return f"{{{str(numbers)[1:-1]}}}"


def _epochs(theirs: Sequence[AcceptedBatch], recorded: Mapping[int, int]) -> Columns:
    """Return shards, the epochs believed of each, their first sights, and the epochs told."""
    if len(theirs) == 1:  # as nearly always
        at_ms, epochs = theirs[0].arrived_ms, theirs[0].batch.epochs
        told = list(epochs.values())
        believed = [
            epoch if epoch <= recorded.get(shard, 0) else 0 for shard, epoch in epochs.items()
        ]
        return [list(epochs), believed, [at_ms if epoch else 0 for epoch in believed], told]
    reported: dict[int, list[tuple[int, int]]] = {}
    for accepted in theirs:
        for shard, epoch in accepted.batch.epochs.items():
            reported.setdefault(shard, []).append((epoch, accepted.arrived_ms))
    found = [_believed(reported[shard], recorded.get(shard, 0)) for shard in reported]
    return [list(reported), *columns(found, 3)]


def _believed(told: Sequence[tuple[int, int]], recorded: int) -> tuple[int, int, int]:
    """Return the epoch believed of those told with their instants, its first sight, the largest."""
    first = {0: 0}
    for epoch, arrived_ms in told:
        first.setdefault(epoch, arrived_ms)
    believed = max(epoch for epoch in first if epoch <= recorded)
    return believed, first[believed], max(first)


def to_member(row: Iterable[Any]) -> MemberRecord:
    """Return a member from its row: the fields of `MemberRecord`, with ``spent`` as JSON text."""
    host, instance, group, instant_ms, seen_ms, left_ms, epoch, acknowledged_ms, spent = row
    accounts = {} if spent == "{}" else json.loads(spent)  # nearly nobody has said goodbye
    return MemberRecord(
        host=_one_text(host),
        instance=_one_text(instance),
        group=group,
        instant_ms=instant_ms,
        seen_ms=seen_ms,
        left_ms=left_ms,
        acknowledged_epoch=epoch,
        acknowledged_ms=acknowledged_ms,
        spent={name: (account[0], account[1]) for name, account in accounts.items()},
    )


def to_usages(rows: Iterable[tuple[Any, ...]]) -> UsageTable:
    """Return accounts from a row a destination: its name, hosts and instances in lines, numbers.

    A member is one value in all of them, and its names are those of the round before: what is
    planned looks members up time and again, and the same name is found sooner than an equal one.
    """
    known: dict[Member, Member] = {}
    parts = {}
    for name, hosts, instances, packed in rows:
        pairs = list(zip(hosts.split("\n"), instances.split("\n"), strict=True))
        try:
            members = list(map(known.__getitem__, pairs))
        except KeyError:
            for host, instance in filterfalse(known.__contains__, pairs):
                known[host, instance] = _one_text(host), _one_text(instance)
            members = list(map(known.__getitem__, pairs))
        numbers = np.frombuffer(packed, dtype=">i8").reshape(len(members), len(NUMBERS))
        parts[name] = UsageColumns(name, members, numbers.T.astype(SMALL, order="C"))
    return UsageTable(parts)


def policy_to_json(policy: Policy) -> str:
    """Return a policy as JSON text."""
    return json.dumps(policy_to_values(policy))


@lru_cache(POLICIES_KEPT)
def policy_from_json(text: str) -> Policy:
    """Return a policy from JSON text; an older or newer version may have written it.

    The same texts are read for each shard in each round, and most destinations have the same.

    Raises:
        PolicyError: where a value is out of bounds.
    """
    return stored_policy(json.loads(text))


def memory_to_json(memory: Memory) -> str:
    """Return the planner's memory as JSON text."""
    return compact(memory.to_json())


def memory_from_json(text: str) -> Memory:
    """Return the memory of a text; an empty one where it is none, since no safety rests on it."""
    try:
        return Memory.from_json(expanded(text))
    except ValueError:
        return Memory()


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
