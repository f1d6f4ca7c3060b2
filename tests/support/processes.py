"""Processes of the service on stores in memory that they share, by a clock that runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from balancer.adapters.kafka.compression import decode_record
from balancer.app import catalogue
from balancer.app.clocks import SteadyClock
from balancer.app.cycle import Cycle, CycleLimits
from balancer.app.ingest import Ingest
from balancer.app.supervisor import Options, Supervisor
from balancer.app.view import DistributionView, destination_answer
from balancer.errors import BalancerError
from balancer.ports import LeaseRecord, UsageRecord
from tests.support.fakes_repository import FakeRepository
from tests.support.fakes_store import MemoryDocumentStore, Objects
from tests.support.fakes_usage_log import FakeTopic, FakeUsageLog
from tests.support.service_doubles import CountingMetrics
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple, encode_batch

NAME = "orders-db"
ROUND_MS = 60_000  # long, so that a test decides which rounds run
START_MS = 30_000_000 * ROUND_MS + 5_000


class EarlyInTheRound:
    """A clock that runs, begun five seconds into a round, whatever the time is."""

    def __init__(self) -> None:
        self._start_ms = time.monotonic_ns() // 10**6

    def now_ms(self) -> int:
        return START_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 10**6 - self._start_ms


class PatientLog(FakeUsageLog):
    """Waits where there is nothing, as a real one does."""

    async def read(self, *, max_records: int, wait_ms: int) -> Sequence[UsageRecord]:
        await asyncio.sleep(0.005)
        return await super().read(max_records=max_records, wait_ms=wait_ms)


class Repository(FakeRepository):
    """Remembers what was let go of; can refuse to renew leases."""

    def __init__(self) -> None:
        super().__init__()
        self.released: list[str] = []
        self.lease_fault: BalancerError | None = None
        self.renewals = 0
        self.memories_read = 0

    async def acquire_leases(
        self,
        holder: str,
        shards: Sequence[int],
        *,
        now_ms: int,
        ttl_ms: int,
        most: int | None = None,
        known: Mapping[int, int] | None = None,
    ) -> Sequence[LeaseRecord]:
        if self.lease_fault is not None:
            raise self.lease_fault
        found = await super().acquire_leases(
            holder, shards, now_ms=now_ms, ttl_ms=ttl_ms, most=most, known=known
        )
        self.renewals += 1
        self.memories_read += sum(bool(record.memory.trails) for record in found)
        return found

    async def release_leases(self, holder: str, shards: Collection[int] | None = None) -> None:
        self.released.append(holder)
        await super().release_leases(holder, shards)


@dataclass
class Shared:
    """What processes have in common."""

    repository: Repository = field(default_factory=Repository)
    objects: Objects = field(default_factory=Objects)
    topic: FakeTopic = field(default_factory=lambda: FakeTopic(clock_ms=START_MS))
    clock: EarlyInTheRound = field(default_factory=EarlyInTheRound)

    def __post_init__(self) -> None:
        self.repository.clock_ms = self.clock.now_ms


class Process:
    """One supervisor with its parts."""

    def __init__(
        self, shared: Shared, holder: str, *, lease_ms: int = 3_000, follows: bool = True
    ) -> None:
        self.shared = shared
        self.store = MemoryDocumentStore(shared.objects)
        self.view = DistributionView(1, follows=follows)
        self.metrics = CountingMetrics()
        clock, limits = SteadyClock(shared.clock), CycleLimits(ROUND_MS, 3 * ROUND_MS)
        repository = shared.repository
        self.cycle = Cycle(repository, self.store, self.view, clock, self.metrics, limits)
        self.ingest = Ingest(
            PatientLog(shared.topic),
            repository,
            clock.shared,
            self.metrics,
            decode_record,
            ttl_ms=limits.ttl_ms,
            on_change=self.note_change,
        )
        self.supervisor = Supervisor(
            cycle=self.cycle,
            ingest=self.ingest,
            repository=repository,
            board=repository,
            store=self.store,
            view=self.view,
            clock=clock,
            metrics=self.metrics,
            limits=limits,
            options=Options(holder=holder, lease_ms=lease_ms, keep_files_ms=86_400_000),
        )

    def note_change(self, names: Collection[str]) -> None:
        self.supervisor.note_change(names)

    def leads(self) -> bool:
        return self.metrics.gauges.get((catalogue.LEADING,)) == 1

    def epoch(self) -> int:
        documents = self.view.documents_of(0)
        return documents[0].epoch if documents else 0

    def has_share(self, host: str) -> bool:
        return self.view.answer(host) is not None

    def tells_of(self, name: str) -> bool:
        return destination_answer(name, 0, self.view.documents_of(0)) is not None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        stop = asyncio.Event()
        task = asyncio.create_task(self.supervisor.run(stop))
        try:
            yield self
        finally:
            stop.set()
            await asyncio.wait_for(task, 10)


def send(shared: Shared, host: str, state: MemberState = MemberState.STARTING) -> None:
    now_ms = shared.clock.now_ms()
    entry = UsageTuple(NAME, now_ms, now_ms, 0, 0, 0, 0, 0, 0)
    spent = {NAME: (now_ms // 60_000, 0)} if state is MemberState.LEAVING else {}
    batch = UsageBatch(host, "i", now_ms, state, tuples=(entry,), spent=spent)
    shared.topic.clock_ms = now_ms
    shared.topic.append(encode_batch(batch), key=host.encode())
