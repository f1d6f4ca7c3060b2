"""The usage log in memory: the contract suite holds it to what the real one does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from balancer.errors import UnavailableError
from balancer.ports import LogPosition, UsageRecord
from worker_sdk.errors import RejectReason


@dataclass
class FakeTopic:
    """Partitions, what is committed of them, and the topic of what was refused.

    ``clock_ms`` stamps what is appended; None for a topic that does not tell.
    """

    partitions: int = 1
    clock_ms: int | None = None
    records: dict[int, list[UsageRecord]] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    rejected: list[tuple[UsageRecord, RejectReason, str]] = field(default_factory=list)

    def append(
        self,
        body: bytes | None,
        *,
        headers: Mapping[str, bytes] | None = None,
        key: bytes | None = None,
        partition: int = 0,
    ) -> None:
        held = self.records.setdefault(partition, [])
        held.append(UsageRecord(partition, len(held), body, headers or {}, self.clock_ms, key))


class FakeUsageLog:
    """One reader of a `FakeTopic`; it is given every partition that ``revoke`` has not taken."""

    def __init__(self, topic: FakeTopic) -> None:
        self.topic = topic
        self.reads = 0
        self.rejecting_fails = False
        self.is_assigned = True
        self._assigned: set[int] = set()
        self._positions: dict[int, int] = {}
        self._backlog_ends: dict[int, int] = {}
        self._started = False

    async def start(self) -> None:
        self._assigned = set(range(self.topic.partitions))
        self._positions = {
            partition: self.topic.committed.get(partition, 0) for partition in self._assigned
        }
        self._backlog_ends = {
            partition: len(self.topic.records.get(partition, [])) for partition in self._assigned
        }
        self._started = True

    def revoke(self, partition: int) -> None:
        self._assigned.discard(partition)

    async def read(self, *, max_records: int, wait_ms: int) -> Sequence[UsageRecord]:
        self._check()
        self.reads += 1
        await asyncio.sleep(0)  # as any reader, it lets others have a turn
        found: list[UsageRecord] = []
        for partition in sorted(self._assigned):
            position = self._positions[partition]
            held = self.topic.records.get(partition, [])
            more = held[position : position + max_records - len(found)]
            self._positions[partition] = position + len(more)
            end = self._backlog_ends[partition]
            found += [replace(record, backlog=record.offset < end) for record in more]
        return found

    async def commit(self, records: Sequence[UsageRecord]) -> None:
        self._check()
        for record in records:
            if record.partition in self._assigned:
                known = self.topic.committed.get(record.partition, 0)
                self.topic.committed[record.partition] = max(known, record.offset + 1)

    async def position(self) -> LogPosition:
        self._check()
        lag = sum(
            len(self.topic.records.get(partition, [])) - self._positions[partition]
            for partition in self._assigned
        )
        partitions = tuple(sorted(self._assigned))
        return LogPosition(partitions, lag, is_assigned=self.is_assigned)

    async def reject(self, record: UsageRecord, reason: RejectReason, detail: str) -> None:
        self._check()
        if self.rejecting_fails:
            raise UnavailableError("the rejected topic is away")
        self.topic.rejected.append((record, reason, detail))

    async def stop(self) -> None:
        self._started = False

    def _check(self) -> None:
        if not self._started:
            raise UnavailableError("the usage log is not started")
