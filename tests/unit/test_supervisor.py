"""The life of the service on stores in memory: leading, rounds, following, stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from balancer.app import agenda, catalogue, supervisor
from balancer.core.model import Destination
from balancer.errors import UnavailableError
from balancer.ports import LeaseRecord
from tests.support.fakes_usage_log import FakeTopic
from tests.support.processes import NAME, START_MS, Process, Shared, send
from tests.support.recorded import reason, round_of
from tests.support.waiting import until
from worker_sdk.wire.usage import MemberState


@pytest.fixture(autouse=True)
def early_rounds_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let early rounds follow one another without the two seconds of a round of a minute."""
    monkeypatch.setattr(agenda, "SHARE_MAX_MS", 100)


@pytest.fixture
async def shared() -> Shared:
    found = Shared()
    await found.repository.put_destination(Destination(NAME, 1000, 60))
    return found


async def test_a_hello_gets_a_share_in_an_early_round_at_once(shared: Shared) -> None:
    async with Process(shared, "one").running() as process:
        await until(lambda: process.epoch() > 0)
        send(shared, "a")
        await until(lambda: process.has_share("a"))
        assert process.tells_of(NAME)


async def test_a_goodbye_frees_the_share_in_an_early_round(shared: Shared) -> None:
    async with Process(shared, "one").running() as process:
        send(shared, "a")
        await until(lambda: process.has_share("a"))
        send(shared, "a", MemberState.LEAVING)
        await until(lambda: not process.has_share("a"))


async def test_of_two_processes_one_leads_and_the_other_serves_what_it_publishes(
    shared: Shared,
) -> None:
    async with Process(shared, "one").running() as leader:
        await until(leader.leads)
        other = Process(replace(shared, topic=FakeTopic()), "two")
        async with other.running():
            send(shared, "a")
            await until(lambda: leader.has_share("a") and other.has_share("a"))
            assert not other.leads()
            assert other.epoch() == leader.epoch()


async def test_a_process_that_answers_no_worker_leaves_unread_what_another_publishes(
    shared: Shared,
) -> None:
    others = replace(shared, topic=FakeTopic())
    silent = Process(others, "two", follows=False)
    async with AsyncExitStack() as longer:
        async with Process(shared, "one").running() as leader:
            await until(leader.leads)
            await longer.enter_async_context(silent.running())
            async with Process(others, "three").running() as other:
                send(shared, "a")
                await until(lambda: leader.has_share("a") and other.has_share("a"))
            assert silent.epoch() == 0
        await until(silent.leads)
        await until(lambda: silent.epoch() > 0)


async def test_a_hello_and_a_goodbye_read_by_another_process_are_planned_by_the_leader(
    shared: Shared,
) -> None:
    async with Process(replace(shared, topic=FakeTopic()), "one").running() as leader:
        await until(leader.leads)
        async with Process(shared, "two").running() as other:
            await until(lambda: other.supervisor._peers._changes is not None)
            send(shared, "a")
            await until(lambda: leader.has_share("a"))
            send(shared, "a", MemberState.LEAVING)
            await until(lambda: not leader.has_share("a"))
            assert not other.leads()


async def test_stopping_lets_the_lease_go_so_that_another_leads_at_once(shared: Shared) -> None:
    async with Process(shared, "one", lease_ms=3_600_000).running() as first:
        await until(first.leads)
    assert shared.repository.released == ["one"]
    async with Process(shared, "two", lease_ms=3_600_000).running() as second:
        await until(second.leads)


async def test_a_planners_memory_is_read_by_whoever_takes_over_and_not_at_each_renewal(
    shared: Shared,
) -> None:
    repository = shared.repository
    async with Process(shared, "one", lease_ms=600).running() as first:
        send(shared, "a")
        await until(lambda: first.has_share("a"))
        renewals = repository.renewals
        await until(lambda: repository.renewals >= renewals + 3)
        assert repository.memories_read == 0
    async with Process(shared, "two", lease_ms=600).running() as second:
        await until(second.leads)
        assert repository.memories_read == 1


async def test_stopping_leaves_offsets_behind_what_was_stored(shared: Shared) -> None:
    async with Process(shared, "one").running() as process:
        for host in "abc":
            send(shared, host)
        await until(lambda: process.has_share("a"))
    stored = sum(len(batches) for batches in shared.repository.stored)
    assert shared.topic.committed[0] <= stored


async def test_who_cannot_renew_its_lease_stops_publishing_and_goes_on_afterwards(
    shared: Shared,
) -> None:
    async with Process(shared, "one", lease_ms=300).running() as process:
        send(shared, "a")
        await until(lambda: process.has_share("a"))
        shared.repository.lease_fault = UnavailableError("no answer")
        held = process.supervisor._held[0]
        await until(lambda: not process.supervisor._leads(held))
        epoch = process.epoch()
        send(shared, "a", MemberState.LEAVING)
        await until(lambda: shared.topic.committed.get(0) == 2)
        await asyncio.sleep(0.2)  # time in which a round would have run
        assert process.epoch() == epoch
        shared.repository.lease_fault = None
        await until(lambda: not process.has_share("a"))


async def test_a_round_that_failed_is_tried_again(shared: Shared) -> None:
    process = Process(shared, "one")
    process.store.faults["publish"] = [UnavailableError("S3 is away")] * 2
    async with process.running():
        send(shared, "a")
        await until(lambda: process.has_share("a"))
        assert process.metrics.counts[catalogue.ROUNDS, "failed"] == 2


async def test_a_crash_in_a_round_does_not_end_the_service(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(shared, "one")
    load, crashes = process.store.load, [RuntimeError("a fault of ours")]

    async def crash_once(shard: int, *, now_ms: int) -> object:
        if crashes:
            raise crashes.pop()
        return await load(shard, now_ms=now_ms)

    monkeypatch.setattr(process.store, "load", crash_once)
    async with process.running():
        send(shared, "a")
        await until(lambda: process.has_share("a"))
    assert process.metrics.counts[catalogue.ROUNDS, "crashed"] == 1


async def test_ingest_that_fails_is_started_again(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_FIRST_SECONDS", 0.01)
    process = Process(shared, "one")
    run = process.ingest.run
    # Drivers let the cancellation of tasks of their own through.
    faults = [RuntimeError("odd"), UnavailableError("no broker"), asyncio.CancelledError()]

    async def fail_at_first(stop: asyncio.Event) -> None:
        if faults:
            raise faults.pop()
        await run(stop)

    monkeypatch.setattr(process.ingest, "run", fail_at_first)
    async with process.running():
        send(shared, "a")
        await until(lambda: process.has_share("a"))
    assert process.metrics.counts[catalogue.TASK_RESTARTS, "ingest"] == 3


async def test_old_history_is_summed_up_beside_all_else(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "REMOVE_ROWS_SECONDS", 0.02)
    old_ms = START_MS - 3 * 86_400_000
    await shared.repository.store_round(round_of(reason("a"), planned_at_ms=old_ms))
    async with Process(shared, "one").running() as process:
        await until(lambda: process.metrics.counts[(catalogue.HISTORY_REMOVED,)] == 2)
    found = await shared.repository.load_history("db", from_ms=0, until_ms=START_MS, limit=9)
    assert (len(found.spans), found.destinations) == (1, [])
    assert await shared.repository.load_reasons("db") == []  # members go sooner


async def test_a_destination_that_is_added_is_published_at_once(shared: Shared) -> None:
    async with Process(shared, "one").running() as process:
        await until(lambda: process.tells_of(NAME))
        await shared.repository.put_destination(Destination("billing", 10))
        process.supervisor.look_at_destinations()
        await until(lambda: process.tells_of("billing"))


async def test_a_capacity_that_is_changed_by_hand_is_planned_at_once(shared: Shared) -> None:
    async with Process(shared, "one").running() as process:
        await until(lambda: process.tells_of(NAME))
        await shared.repository.put_destination(Destination(NAME, 77, 60))

        def shows_77() -> bool:
            return any(
                line.terms.capacity == 77
                for document in process.view.documents_of(0)
                for line in document.destinations
            )

        process.supervisor.look_at_destinations()
        await until(shows_77)


async def test_a_database_that_was_set_back_starts_learning(shared: Shared) -> None:
    process = Process(shared, "one", lease_ms=300)
    async with process.running():
        send(shared, "a")
        await until(lambda: process.has_share("a"))
        shared.repository._leases[0].epoch = 0
        await until(lambda: process.supervisor._held[0].state.learning.until_ms > 0)


async def test_stopping_ends_in_time_though_the_database_hangs_and_swallows_cancellation(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals = 0
    for_ever = asyncio.Event()

    async def hang(*_: object, **__: object) -> Sequence[LeaseRecord]:
        nonlocal renewals
        renewals += 1
        try:
            await for_ever.wait()
        except asyncio.CancelledError:
            raise UnavailableError("no answer in time") from None
        return []

    async with Process(shared, "one", lease_ms=300).running() as process:
        await until(process.leads)
        monkeypatch.setattr(shared.repository, "acquire_leases", hang)
        monkeypatch.setattr(shared.repository, "release_leases", hang)
        await until(lambda: renewals > 0)
    # It has ended, or leaving the block had failed; and nothing was tried again.
    assert renewals == 2
