"""What a repository promises, for the one in memory and the one on PostgreSQL alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from typing import cast

import pytest

from balancer.adapters.postgres import repository as real_repository
from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate
from balancer.app.agenda import largest_epoch_by
from balancer.core.memory import Memory
from balancer.core.model import Destination, MemberRecord, Policy, Strategy, Usage, WeightRule
from balancer.errors import ConflictError
from balancer.ports import AcceptedBatch, Repository, StoredCounts
from tests.support.fakes_repository import FakeRepository
from tests.support.memories import memory_of
from worker_sdk.wire.distribution import OnExpiry, Pacing
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple

T0 = 1_800_000_000_000
TTL_MS = 180_000
KEEP_MS = 600_000
ODD_NAMES = ("a/b", "é", "日本-01", " ", "%", "'; drop", "\U0001f600", "A", "a", "x" * 255)


@pytest.fixture(params=["fake", "postgres", "postgres-copying"])
async def repository(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Repository]:
    if request.param == "fake":
        yield FakeRepository()
        return
    if request.param == "postgres-copying":  # as many accounts are stored, of however few
        monkeypatch.setattr(real_repository, "COPY_ROWS", 1)
    dsn = cast("str", request.getfixturevalue("postgres_dsn"))
    await asyncio.to_thread(migrate, dsn)  # it runs a loop of its own
    real = await PostgresRepository.open(dsn)
    yield real
    await real.close()


def batch(
    host: str = "h",
    *accounts: tuple[str, int, int],
    instant_ms: int = T0,
    seen_ms: int = T0,
    arrived_ms: int | None = None,
    state: MemberState = MemberState.RUNNING,
    epochs: dict[int, int] | None = None,
    spent: dict[str, tuple[int, int]] | None = None,
    instance: str = "i",
) -> AcceptedBatch:
    """A batch with accounts given as (destination, instant_ms, used)."""
    tuples = tuple(
        UsageTuple(destination, at_ms - 1000, at_ms, 3, 10, used, 1, 2, 4)
        for destination, at_ms, used in accounts
    )
    return AcceptedBatch(
        UsageBatch(host, instance, instant_ms, state, "g", epochs or {}, tuples, spent or {}),
        seen_ms,
        seen_ms if arrived_ms is None else arrived_ms,
    )


async def usage(
    repository: Repository, *destinations: str, now_ms: int = T0 + 1
) -> dict[tuple[str, str], Usage]:
    rows = await repository.load_shard(
        0, destinations or ("db",), now_ms=now_ms, ttl_ms=TTL_MS, keep_ms=KEEP_MS
    )
    return {(row.destination, row.host): row for row in rows.usage}


async def member(repository: Repository, *, shard: int = 0, now_ms: int = T0 + 1) -> MemberRecord:
    rows = await repository.load_shard(shard, ["db"], now_ms=now_ms, ttl_ms=TTL_MS, keep_ms=KEEP_MS)
    (record,) = rows.members
    return record


async def test_an_account_is_read_back_as_it_was_stored(repository: Repository) -> None:
    counts = await repository.store_batches([batch("h", ("db", T0, 9), seen_ms=T0 + 5)])
    assert counts == StoredCounts(written=1, stale=0)
    assert await usage(repository, now_ms=T0 + 6) == {
        ("db", "h"): Usage("h", "i", "db", T0 - 1000, T0, 3, 10, 9, 1, 2, 4, T0 + 5)
    }


async def test_only_a_newer_instant_changes_an_account(repository: Repository) -> None:
    seen: list[tuple[int, int, int]] = []
    for at_ms, used in ((10, 1), (9, 2), (10, 3), (11, 4)):
        counts = await repository.store_batches([batch("h", ("db", T0 + at_ms, used))])
        row = (await usage(repository))["db", "h"]
        seen.append((row.used, counts.written, counts.stale))
    assert seen == [(1, 1, 0), (1, 0, 1), (1, 0, 1), (4, 1, 0)]


@pytest.mark.parametrize(("second_ms", "kept"), [(T0 + 1000, 9), (T0, 5), (T0 - 1, 5)])
async def test_one_key_twice_at_once_keeps_the_newest_and_of_equals_the_first(
    repository: Repository, second_ms: int, kept: int
) -> None:
    await repository.store_batches([batch("h", ("db", T0, 5)), batch("h", ("db", second_ms, 9))])
    assert (await usage(repository))["db", "h"].used == kept


@pytest.mark.parametrize(("second_ms", "kept"), [(T0 + 1000, 9), (T0, 5), (T0 - 1, 5)])
async def test_one_key_twice_in_one_message_keeps_the_newest_and_of_equals_the_first(
    repository: Repository, second_ms: int, kept: int
) -> None:
    twice = batch("h", ("db", T0, 5), ("db", second_ms, 9), ("other", T0, 1))
    counts = await repository.store_batches([twice])
    assert counts == StoredCounts(written=2, stale=1)
    found = await usage(repository, "db", "other")
    assert {key: row.used for key, row in found.items()} == {
        ("db", "h"): kept,
        ("other", "h"): 1,
    }


async def test_a_redelivery_never_lengthens_a_life(repository: Repository) -> None:
    await repository.store_batches([batch("h", ("db", T0, 5), seen_ms=T0)])
    await repository.store_batches([batch("h", ("db", T0, 5), seen_ms=T0 + 170_000)])
    assert await usage(repository, now_ms=T0 + TTL_MS - 1)
    assert not await usage(repository, now_ms=T0 + TTL_MS)
    assert (await member(repository)).seen_ms == T0


@pytest.mark.parametrize(("age_ms", "live"), [(179_999, True), (180_000, False), (180_001, False)])
async def test_at_the_ttl_an_account_is_gone_for_reading_and_removing_alike(
    repository: Repository, age_ms: int, live: bool
) -> None:
    await repository.store_batches([batch("h", ("db", T0, 5))])
    now_ms = T0 + age_ms
    assert bool(await usage(repository, now_ms=now_ms)) is live
    removed = await repository.remove_expired(
        now_ms=now_ms, ttl_ms=TTL_MS, keep_ms=KEEP_MS, limit=10
    )
    assert removed == int(not live)


async def test_names_are_compared_byte_for_byte(repository: Repository) -> None:
    await repository.store_batches(
        [batch(name, (name, T0, index)) for index, name in enumerate(ODD_NAMES)]
    )
    found = await usage(repository, *ODD_NAMES)
    assert {key: row.used for key, row in found.items()} == {
        (name, name): index for index, name in enumerate(ODD_NAMES)
    }
    assert await repository.known_host("a/b")
    assert await repository.known_host("a")
    assert not await repository.known_host("É")


async def test_a_goodbye_is_final_whatever_comes_after(repository: Repository) -> None:
    goodbye = batch(
        instant_ms=T0 + 10,
        seen_ms=T0 + 20,
        arrived_ms=T0 + 30,
        state=MemberState.LEAVING,
        spent={"db": (30_000_000, 4)},
    )
    await repository.store_batches([batch("h", ("db", T0, 5))])
    await repository.store_batches([goodbye])
    left = await member(repository)
    for later in (
        replace(goodbye, arrived_ms=T0 + 90),
        batch("h", ("db", T0 + 50, 6), instant_ms=T0 + 50, seen_ms=T0 + 50),
        batch(instant_ms=T0 + 60, seen_ms=T0 + 60, state=MemberState.STARTING),
    ):
        await repository.store_batches([later])
    assert await member(repository) == left
    assert left.left_ms == T0 + 30
    assert left.spent == {"db": (30_000_000, 4)}


async def test_a_goodbye_counts_though_a_newer_report_overtook_it(repository: Repository) -> None:
    await repository.store_batches([batch(instant_ms=T0 + 100)])
    await repository.store_batches([batch(instant_ms=T0, state=MemberState.LEAVING)])
    assert (await member(repository)).left_ms == T0


async def recorded(repository: Repository, epochs: dict[int, int]) -> None:
    """Let each shard's lease be held, and its record be of an epoch."""
    leases = await repository.acquire_leases("a", list(epochs), now_ms=T0, ttl_ms=TTL_MS)
    for lease in leases:
        assert await repository.record_epoch(
            lease.shard, lease.number, epochs[lease.shard], valid_until_ms=T0, memory=Memory()
        )


async def test_an_acknowledgement_grows_and_keeps_when_it_was_first_seen(
    repository: Repository,
) -> None:
    await recorded(repository, {0: 6, 1: 2})
    for epoch, arrived_ms in ((5, T0 + 1), (5, T0 + 2), (4, T0 + 3), (6, T0 + 4), (6, T0 + 5)):
        await repository.store_batches([batch(epochs={0: epoch, 1: 2}, arrived_ms=arrived_ms)])
    here, there = await member(repository), await member(repository, shard=1)
    assert (here.acknowledged_epoch, here.acknowledged_ms) == (
        6,
        T0 + 4,
    )
    assert (there.acknowledged_epoch, there.acknowledged_ms) == (
        2,
        T0 + 1,
    )
    rows = await repository.load_shard(0, [], now_ms=T0, ttl_ms=TTL_MS, keep_ms=KEEP_MS)
    assert rows.largest_reported_epoch == 6


async def test_an_epoch_that_is_not_on_record_takes_no_true_one_away(
    repository: Repository,
) -> None:
    await recorded(repository, {0: 6})
    await repository.store_batches(
        [
            batch(epochs={0: 99}, arrived_ms=T0 + 1),
            batch(epochs={0: 5}, arrived_ms=T0 + 2),
            batch(epochs={0: 6}, arrived_ms=T0 + 3),
            batch(epochs={0: 6}, arrived_ms=T0 + 4),
        ]
    )
    await repository.store_batches([batch(epochs={0: 7}, arrived_ms=T0 + 5)])
    found = await member(repository)
    assert (found.acknowledged_epoch, found.acknowledged_ms) == (6, T0 + 3)
    rows = await repository.load_shard(0, [], now_ms=T0, ttl_ms=TTL_MS, keep_ms=KEEP_MS)
    assert rows.largest_reported_epoch == 99


async def test_what_reports_tell_of_other_shards_stands_beside_what_is_known(
    repository: Repository,
) -> None:
    await recorded(repository, {0: 6, 1: 6, 2: 6})
    for epochs, arrived_ms in (
        ({}, T0),
        ({0: 6, 1: 5}, T0 + 1),
        ({2: 6, 1: 6}, T0 + 2),
        ({}, T0 + 3),
    ):
        await repository.store_batches([batch(epochs=epochs, arrived_ms=arrived_ms)])
    await repository.store_batches(
        [batch(epochs={1: 7}, arrived_ms=T0 + 4), batch(epochs={2: 5, 0: 6}, arrived_ms=T0 + 5)]
    )
    found = [await member(repository, shard=shard) for shard in range(4)]
    assert [(each.acknowledged_epoch, each.acknowledged_ms) for each in found] == [
        (6, T0 + 1),
        (6, T0 + 2),
        (6, T0 + 2),
        (0, 0),
    ]


async def test_an_epoch_acknowledges_when_it_is_told_again_after_it_came(
    repository: Repository,
) -> None:
    await repository.store_batches([batch(epochs={0: 6}, arrived_ms=T0 + 1)])
    await recorded(repository, {0: 6})
    assert (await member(repository)).acknowledged_epoch == 0
    await repository.store_batches([batch(epochs={0: 6}, arrived_ms=T0 + 2)])
    found = await member(repository)
    assert (found.acknowledged_epoch, found.acknowledged_ms) == (6, T0 + 2)


async def test_removing_takes_at_most_so_many_and_forgets_members_last(
    repository: Repository,
) -> None:
    await repository.store_batches(
        [batch(f"h{number}", ("db", T0, 1), epochs={0: 1}) for number in range(5)]
    )
    now_ms = T0 + KEEP_MS
    removed = [
        await repository.remove_expired(now_ms=now_ms, ttl_ms=TTL_MS, keep_ms=KEEP_MS, limit=4)
        for _ in range(4)
    ]
    assert removed == [4, 4, 2, 0]
    assert not await repository.known_host("h0")
    rows = await repository.load_shard(0, [], now_ms=T0, ttl_ms=TTL_MS, keep_ms=KEEP_MS)
    assert rows.largest_reported_epoch == 0


async def test_a_destination_is_created_changed_removed_and_forgotten(
    repository: Repository,
) -> None:
    first = Destination("db", 100, 60, Policy(guard_ms=100), T0)
    assert await repository.put_destination(first)
    assert not await repository.put_destination(replace(first, capacity=0))
    assert await repository.put_destination(replace(first, name="B"))
    assert [entry.name for entry in await repository.list_destinations()] == ["B", "db"]
    with pytest.raises(ConflictError):
        await repository.put_destination(replace(first, window_seconds=30))
    await repository.forget_destination("db")
    assert await repository.remove_destination("db", now_ms=T0 + 1)
    assert not await repository.remove_destination("db", now_ms=T0 + 2)
    assert not await repository.remove_destination("none", now_ms=T0 + 2)
    every = await repository.list_destinations(include_removed=True)
    assert [(entry.name, entry.removed) for entry in every] == [("B", False), ("db", True)]
    await repository.forget_destination("db")
    assert len(await repository.list_destinations(include_removed=True)) == 1


async def test_every_value_of_a_policy_is_read_back_as_it_was_stored(
    repository: Repository,
) -> None:
    policy = Policy(
        strategy=Strategy.SURPLUS,
        shadow=Strategy.EQUAL,
        weights=(WeightRule(3, "wéb-*"), WeightRule(2, None, "batch"), WeightRule(1, "a", "b")),
        minimum_points=1,
        maximum_points=999_999_999,
        head_room_permille=0,
        newcomer_reserve_points=0,
        lend_points=1,
        peak_decay_permille=1,
        expect_recurring=False,
        safe_permille=2,
        valid_for_seconds=90,
        on_expiry=OnExpiry(5, 6),
        guard_ms=7,
        pacing=Pacing.WINDOW,
        enforce=False,
    )
    changed = [field.name for field in fields(Policy)]
    assert all(getattr(policy, name) != getattr(Policy(), name) for name in changed)
    for stored in (policy, Policy()):
        await repository.put_destination(Destination("db", 100, 60, stored, T0))
        (found,) = await repository.list_destinations()
        assert found.policy == stored


async def test_a_lease_is_renewed_by_its_holder_and_taken_over_once_expired(
    repository: Repository,
) -> None:
    async def ask(holder: str, now_ms: int) -> tuple[int, bool]:
        (record,) = await repository.acquire_leases(holder, [3], now_ms=now_ms, ttl_ms=100)
        return record.number, record.held

    assert await ask("a", T0) == (1, True)
    assert await ask("b", T0 + 99) == (1, False)
    assert await ask("a", T0 + 99) == (1, True)
    assert await ask("b", T0 + 198) == (1, False)
    assert await ask("b", T0 + 199) == (2, True)
    await repository.release_leases("b")
    assert await ask("a", T0 + 200) == (3, True)


async def test_epochs_grow_under_one_lease_and_a_deposed_holder_records_none(
    repository: Repository,
) -> None:
    async def record(number: int, epoch: int, valid_until_ms: int) -> bool:
        memory = memory_of(epoch)
        return await repository.record_epoch(
            0, number, epoch, valid_until_ms=valid_until_ms, memory=memory
        )

    await repository.acquire_leases("a", [0], now_ms=T0, ttl_ms=100)
    assert await record(1, 5, T0 + 900)
    assert not await record(1, 5, T0 + 900)
    assert await record(1, 6, T0 + 800)
    (taken,) = await repository.acquire_leases("b", [0], now_ms=T0 + 100, ttl_ms=100)
    assert not await record(1, 7, T0 + 1000)
    assert (taken.number, taken.epoch, taken.valid_until_ms) == (2, 6, T0 + 900)
    assert taken.memory == memory_of(6)


async def test_a_lease_brings_its_memory_to_whoever_takes_it_and_not_at_each_renewal(
    repository: Repository,
) -> None:
    memory = memory_of(7)

    async def ask(holder: str, now_ms: int, known: dict[int, int]) -> list[Memory]:
        found = await repository.acquire_leases(
            holder, [0, 1], now_ms=now_ms, ttl_ms=100, known=known
        )
        return [record.memory for record in found]

    await ask("a", T0, {})
    for shard in (0, 1):
        await repository.record_epoch(shard, 1, 5, valid_until_ms=T0, memory=memory)
    assert await ask("a", T0 + 50, {0: 1}) == [Memory(), memory]
    assert await ask("b", T0 + 60, {}) == [Memory(), Memory()]  # held by another
    assert await ask("b", T0 + 150, {0: 1}) == [memory, memory]  # known under an older number
    assert await ask("b", T0 + 160, {0: 2, 1: 2}) == [Memory(), Memory()]


async def test_an_epoch_that_nobody_can_have_reached_hides_no_other(
    repository: Repository,
) -> None:
    await repository.acquire_leases("a", [0], now_ms=T0, ttl_ms=10_000)
    assert await repository.record_epoch(0, 1, 8, valid_until_ms=T0, memory=Memory())
    told = (("a", 7), ("liar", 8), ("liar", largest_epoch_by(T0) + 1), ("b", 9))
    for (host, epoch), largest in zip(told, (7, 8, 8, 9), strict=True):
        await repository.store_batches([batch(host, epochs={0: epoch})])
        rows = await repository.load_shard(0, [], now_ms=T0, ttl_ms=TTL_MS, keep_ms=KEEP_MS)
        assert rows.largest_reported_epoch == largest
