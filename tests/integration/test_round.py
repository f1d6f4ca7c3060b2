"""Rounds on a real PostgreSQL and a real S3, read by engines as workers read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate
from balancer.adapters.s3.objects import S3Config
from balancer.adapters.s3.store import S3DocumentStore
from balancer.app.cycle import Cycle, CycleLimits, ShardState
from balancer.app.view import DistributionView
from balancer.core.learning import IngestView
from balancer.core.model import Destination, Policy, RoundKind
from balancer.embedded import S3Part
from balancer.errors import ConflictError
from balancer.ports import AcceptedBatch, LeaseRecord
from worker_sdk.core.engine import Engine
from worker_sdk.wire.answers import decode_host_answer
from worker_sdk.wire.distribution import Pacing
from worker_sdk.wire.usage import MemberState, UsageBatch

NAME = "orders-db"
ROUND_MS = 10_000
T0 = 1_800_000_000_000


class Manual:
    """A clock that is set, and metrics that are dropped."""

    def __init__(self) -> None:
        self.ms = T0 + 500

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def count(self, name: str, amount: float = 1, labels: Mapping[str, str] | None = None) -> None:
        """Drop a count."""

    def gauge(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Drop a gauge."""

    def observe(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Drop a measure."""

    def forget(self, name: str, labels: Mapping[str, str]) -> None:
        """Drop nothing: nothing was kept."""


class Service:
    """Repository, store and cycle, as the service will join them."""

    def __init__(self, repository: PostgresRepository, config: S3Config, clock: Manual) -> None:
        async def now_ms() -> int:
            return clock.ms

        repository.now_ms = now_ms  # type: ignore[method-assign]  # the database has our time
        self.repository = repository
        self.view = DistributionView(shards=1)
        self.clock = clock
        self.cycle = Cycle(
            repository,
            S3DocumentStore(config),
            self.view,
            clock,
            clock,
            CycleLimits(ROUND_MS, 3 * ROUND_MS),
        )

    async def lease(self, holder: str) -> LeaseRecord:
        (lease,) = await self.repository.acquire_leases(
            holder, [0], now_ms=self.clock.ms, ttl_ms=5_000
        )
        return lease

    async def take(self, batch: UsageBatch) -> None:
        await self.repository.store_batches([AcceptedBatch(batch, self.clock.ms, self.clock.ms)])

    async def round(self, kind: RoundKind, holder: str = "one") -> str:
        state = ShardState.of(await self.lease(holder))
        told = await self.cycle.run(state, kind, IngestView(self.clock.ms, 0, caught_up=True))
        return told.sentence

    def read(self, engine: Engine) -> None:
        answer = self.view.answer(engine.host, engine.instance)
        if answer is not None:
            engine.offer(decode_host_answer(answer.body, engine.instance), self.clock.ms)


@pytest.fixture
def config(s3: S3Part, s3_prefix: str, aws_environment: None) -> S3Config:
    return S3Config(s3.bucket, s3_prefix, s3.endpoint_url, s3.region)


async def open_service(dsn: str, config: S3Config) -> Service:
    service = Service(await PostgresRepository.open(dsn), config, Manual())
    policy = Policy(newcomer_reserve_points=0, guard_ms=0, pacing=Pacing.WINDOW)
    await service.repository.put_destination(Destination(NAME, 1000, 10, policy))
    return service


@pytest.fixture
def dsn(postgres_dsn: str, tmp_path: Path) -> str:
    migrate(postgres_dsn)
    return postgres_dsn


async def test_two_hosts_with_a_fifth_and_four_fifths_come_to_use_all(
    dsn: str, config: S3Config
) -> None:
    service = await open_service(dsn, config)
    clock = service.clock
    wants = {"a": 200, "b": 800}
    engines = {host: Engine(host, "i", [NAME]) for host in wants}
    for engine in engines.values():
        await service.take(engine.hello(clock.ms, clock.ms))
    await service.round(RoundKind.EARLY)
    used: list[int] = []
    for _ in range(6):
        total = 0
        for host, engine in engines.items():
            service.read(engine)
            left = engine.allowance(NAME, clock.ms).left_permits
            spent = min(left, wants[host])
            assert spent == 0 or engine.try_acquire(NAME, spent, clock.ms)
            if spent < wants[host]:
                engine.try_acquire(NAME, wants[host] - spent + left, clock.ms)
            total += spent
        used.append(total)
        assert total <= 1000
        clock.ms += 6_000
        for engine in engines.values():
            batch = engine.drain(clock.ms, clock.ms, MemberState.RUNNING)
            assert batch is not None
            await service.take(batch)
        assert "sound" in await service.round(RoundKind.REGULAR)
        clock.ms += 4_000
    assert used[0] == 700
    assert used[-3:] == [1000, 1000, 1000]
    reasons = await service.repository.load_reasons(NAME, "a")
    assert [reason.rule for _, reason in reasons] == ["asked"]
    await service.repository.close()


async def test_who_lost_the_lease_does_not_publish(dsn: str, config: S3Config) -> None:
    service = await open_service(dsn, config)
    old = await service.lease("one")
    service.clock.ms += 5_000
    assert "sound" in await service.round(RoundKind.REGULAR, holder="two")
    service.clock.ms += ROUND_MS
    view = IngestView(service.clock.ms, 0, caught_up=True)
    with pytest.raises(ConflictError, match="lease"):
        await service.cycle.run(ShardState.of(old), RoundKind.REGULAR, view)
    await service.repository.close()


async def test_lost_documents_are_waited_out(dsn: str, config: S3Config) -> None:
    service = await open_service(dsn, config)
    await service.round(RoundKind.REGULAR)
    elsewhere = S3Config(config.bucket, f"{config.prefix}-empty", config.endpoint_url, "us-east-1")
    other = Service(service.repository, elsewhere, service.clock)
    assert "waits" in await other.round(RoundKind.REGULAR)
    service.clock.ms += 10 * ROUND_MS
    assert "sound" in await other.round(RoundKind.REGULAR)
    await service.repository.close()
