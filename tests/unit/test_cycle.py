"""One round of one shard: what is published, and what a fault does."""

from __future__ import annotations

import re

import pytest

from balancer.app import catalogue, cycle
from balancer.app.agenda import largest_epoch_by
from balancer.app.cycle import Cycle, CycleLimits, RoundResult, ShardState
from balancer.app.view import DistributionView
from balancer.core.learning import IngestView
from balancer.core.memory import Memory
from balancer.core.model import Destination, Plan, Policy, RoundKind, Snapshot
from balancer.errors import BalancerError, ConflictError, UnavailableError
from balancer.ports import AcceptedBatch
from tests.support.fakes_repository import FakeRepository
from tests.support.fakes_store import MemoryDocumentStore, Objects
from tests.support.service_doubles import T0, CountingMetrics, ManualClock
from tests.unit.test_view import document
from worker_sdk.wire.limits import EPOCH_MAX
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple

NAME = "orders-db"
ROUND_MS = 10_000
TTL_MS = 3 * ROUND_MS


class World:
    """A cycle on a repository and a store in memory."""

    def __init__(self, objects: Objects | None = None, repository: FakeRepository | None = None):
        self.repository = FakeRepository() if repository is None else repository
        self.store = MemoryDocumentStore(objects)
        self.view = DistributionView(1)
        self.clock = ManualClock(T0 + 500)
        self.repository.clock_ms = self.clock.now_ms
        self.metrics = CountingMetrics()
        self.limits = CycleLimits(ROUND_MS, TTL_MS)
        self.cycle = Cycle(
            self.repository, self.store, self.view, self.clock, self.metrics, self.limits
        )
        self.state = ShardState(0, 1, Memory())

    async def prepare(self, *names: str) -> World:
        for name in names or (NAME,):
            policy = Policy(newcomer_reserve_points=0)
            await self.repository.put_destination(Destination(name, 1000, 10, policy))
        await self.take_lease()
        return self

    async def take_lease(self, holder: str = "one") -> None:
        (lease,) = await self.repository.acquire_leases(
            holder, [0], now_ms=self.clock.ms, ttl_ms=5_000
        )
        self.state = ShardState.of(lease)

    async def report(
        self, host: str, *, state: MemberState = MemberState.RUNNING, used: int = 50, epoch: int = 0
    ) -> None:
        now_ms = self.clock.ms
        entry = UsageTuple(NAME, now_ms - ROUND_MS, now_ms, 0, 100, used, 0, 0, 0)
        epochs = {0: epoch} if epoch else {}
        batch = UsageBatch(host, "i", now_ms, state, epochs=epochs, tuples=(entry,))
        await self.repository.store_batches([AcceptedBatch(batch, now_ms, now_ms)])

    async def run(
        self, kind: RoundKind = RoundKind.REGULAR, *, current: bool = True
    ) -> RoundResult:
        last_ms = self.clock.ms if current else None
        return await self.cycle.run(self.state, kind, IngestView(last_ms, 0, caught_up=current))

    def pass_rounds(self, count: float) -> None:
        self.clock.ms += int(count * ROUND_MS)

    def rounds(self, outcome: str) -> int:
        return self.metrics.counts[catalogue.ROUNDS, outcome]


async def test_a_round_publishes_records_serves_and_keeps_the_reason() -> None:
    world = await World().prepare()
    await world.report("a")
    told = await world.run()
    assert told.outcome == "published"
    assert "epoch 1" in told.sentence
    assert world.store.objects.pointers[0] == (1,)
    (lease,) = await world.repository.acquire_leases("one", [0], now_ms=world.clock.ms, ttl_ms=1)
    assert lease.epoch == 1
    (published,) = world.view.documents_of(0)
    assert lease.valid_until_ms == published.valid_until_ms
    assert world.view.answer("a") is not None
    (reason,) = await world.repository.load_reasons(NAME, "a")
    assert reason[0] == 1


async def test_the_pointer_names_older_documents_while_they_cover_the_present() -> None:
    world = await World().prepare()
    await world.report("a")
    await world.run(RoundKind.EARLY)
    world.clock.ms += 6_000
    await world.report("a")
    await world.run()
    assert world.store.objects.pointers[0] == (2, 1)
    world.pass_rounds(1)
    await world.report("a")
    await world.run()
    assert world.store.objects.pointers[0] == (3, 2)


async def test_a_round_without_anything_new_publishes_nothing() -> None:
    world = await World().prepare()
    await world.report("a")
    await world.run()
    assert (await world.run()).outcome == "nothing"
    assert world.store.objects.pointers[0] == (1,)


async def test_a_broken_plan_is_not_published_and_what_is_in_force_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await World().prepare()
    await world.report("a")
    await world.run()

    def broken(_snapshot: Snapshot, memory: Memory, _now_ms: int) -> Plan:
        return Plan(document(2, "a"), (), memory, "broken", broken=("the sum is wrong",))

    monkeypatch.setattr(cycle, "plan", broken)
    world.pass_rounds(1)
    assert (await world.run()).outcome == "broken"
    assert world.metrics.counts[(catalogue.BROKEN,)] == 1
    assert world.store.objects.pointers[0] == (1,)
    assert [entry.epoch for entry in world.view.documents_of(0)] == [1]


async def test_who_was_fenced_out_puts_nothing() -> None:
    world = await World().prepare()
    await world.report("a")
    old = world.state
    world.pass_rounds(1)
    await world.take_lease("two")
    world.state = old
    with pytest.raises(ConflictError, match="taken over"):
        await world.run()
    assert world.store.objects.files == {}


async def test_a_holder_past_its_deadline_publishes_nothing() -> None:
    world = await World().prepare()
    await world.report("a")
    view = IngestView(world.clock.ms, 0, caught_up=True)
    with pytest.raises(ConflictError, match="run out"):
        await world.cycle.run(world.state, RoundKind.REGULAR, view, may_publish=lambda: False)
    assert world.store.objects.files == {}


@pytest.mark.parametrize("call", ["load", "publish", "pointer", "answer"])
async def test_after_an_unknown_outcome_the_store_is_read_anew_and_epochs_go_on(call: str) -> None:
    world = await World().prepare()
    await world.report("a")
    world.store.faults[call] = [UnavailableError("no answer")]
    with pytest.raises(UnavailableError):
        await world.run()
    told = await world.run()
    if call == "pointer":  # its file is there, and nobody knows who read it
        assert told.outcome == "nothing"
        world.pass_rounds(1)
        await world.report("a")
        told = await world.run()
    pointed = world.store.objects.pointers[0]
    if call == "answer":  # it was published after all
        assert (told.outcome, pointed) == ("nothing", (1,))
    else:
        assert told.outcome == "published"
        assert pointed == ((1,) if call == "load" else (2,))
    assert [entry.epoch for entry in world.view.documents_of(0)] == list(pointed)


async def test_demand_is_noted_once_though_the_round_was_tried_twice() -> None:
    failing, smooth = await World().prepare(), await World().prepare()
    failing.store.faults["publish"] = [UnavailableError("no answer")]
    for world in (failing, smooth):
        await world.report("a")
    with pytest.raises(UnavailableError):
        await failing.run()
    await failing.run()
    await smooth.run()
    assert failing.state.memory == smooth.state.memory


async def test_a_round_that_cannot_be_kept_in_history_is_published_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await World().prepare()
    await world.report("a")

    async def fail(*_: object) -> None:
        raise UnavailableError("no answer")

    monkeypatch.setattr(world.repository, "store_round", fail)
    assert (await world.run()).outcome == "published"
    assert world.metrics.counts[(catalogue.HISTORY_LOST,)] == 1


async def test_documents_that_the_store_lost_are_waited_out() -> None:
    world = await World().prepare()
    await world.report("a")
    await world.run()
    until_ms = world.state.valid_until_ms
    world.store.objects.files.clear()
    world.store.objects.pointers.clear()
    world.store.objects.versions.clear()
    world.pass_rounds(1)
    await world.report("a")
    assert (await world.run()).outcome == "waits"
    assert world.store.objects.files == {}
    world.clock.ms = until_ms - 1
    assert (await world.run(RoundKind.EARLY)).outcome == "waits"
    world.clock.ms = until_ms
    await world.report("a")
    told = await world.run()
    assert told.outcome == "published"
    assert world.store.objects.pointers[0] == (2,)


async def test_a_new_leader_waits_out_what_was_recorded_and_is_not_in_the_store() -> None:
    world = await World().prepare()
    await world.report("a")
    await world.run()
    other = World(Objects(), world.repository)
    other.clock.ms = world.clock.ms + 6_000
    await other.take_lease("two")
    assert (await other.run()).outcome == "waits"
    assert world.rounds("published") == 1


async def test_an_unreadable_document_is_waited_out_once() -> None:
    world = await World().prepare()
    await world.report("a")
    await world.run()
    until_ms = world.state.valid_until_ms
    world.store.objects.files[0, 1] = b"torn"
    world.pass_rounds(1)
    assert (await world.run()).outcome == "waits"
    world.clock.ms = until_ms
    await world.report("a")
    assert (await world.run()).outcome == "published"
    world.pass_rounds(1)
    await world.report("a")
    assert (await world.run()).outcome == "published"


@pytest.mark.parametrize("epoch", [EPOCH_MAX, EPOCH_MAX // 2, largest_epoch_by(T0 + 500) + 1])
async def test_an_epoch_that_nobody_can_have_published_uses_up_no_numbers(epoch: int) -> None:
    world = await World().prepare()
    await world.report("a", epoch=epoch)
    await world.run()
    assert world.store.objects.pointers[0] == (1,)


async def test_epochs_go_on_above_what_members_hold_when_everything_else_was_lost() -> None:
    world = await World().prepare()
    await world.report("a", epoch=41)
    assert (await world.run()).outcome == "waits"
    world.clock.ms += world.limits.longest_valid_ms(
        await world.repository.list_destinations()
    )  # what that document was valid for is not known: as long as any can be
    await world.report("a", epoch=41)
    await world.run()
    assert world.store.objects.pointers[0] == (42,)


async def test_what_was_held_so_long_ago_that_it_has_expired_is_not_waited_for() -> None:
    world = await World().prepare()
    await world.report("a", epoch=41)
    world.clock.ms += world.limits.longest_valid_ms(await world.repository.list_destinations())
    assert (await world.run()).outcome == "published"


async def test_a_removed_destination_is_forgotten_when_nothing_of_it_is_valid() -> None:
    world = await World().prepare()
    await world.report("a")
    await world.run()
    await world.repository.remove_destination(NAME, now_ms=world.clock.ms)
    world.pass_rounds(1)
    await world.run()
    assert len(await world.repository.list_destinations(include_removed=True)) == 1
    world.pass_rounds(20)
    await world.run()
    assert await world.repository.list_destinations(include_removed=True) == []


async def test_old_files_are_removed_but_none_that_may_count() -> None:
    world = await World().prepare()
    for _ in range(4):
        await world.report("a")
        await world.run()
        world.pass_rounds(1)
    valid = [entry.epoch for entry in (await world.store.load(0, now_ms=world.clock.ms)).documents]
    assert await world.cycle.clean(0, keep_files_ms=1) == 4 - len(valid)
    assert sorted(epoch for _, epoch in world.store.objects.files) == sorted(valid)


def test_members_are_kept_as_long_as_a_document_may_name_them() -> None:
    limits = CycleLimits(60_000, 180_000)
    plain = Destination("a", 1)
    lasting = Destination("b", 1, policy=Policy(valid_for_seconds=2_700))
    assert limits.keep_ms([plain]) >= 180_000 + 3 * 60_000 + 60_000
    assert limits.keep_ms([plain, lasting]) >= 2_700_000 + 180_000


async def test_a_fault_of_the_repository_fails_the_round() -> None:
    world = await World().prepare()

    async def fail(**_: object) -> None:
        raise BalancerError("no such table")

    world.repository.list_destinations = fail  # type: ignore[assignment,method-assign]  # a fault
    with pytest.raises(BalancerError, match="no such table"):
        await world.run()


@pytest.mark.parametrize("wrong_ms", [600_000, -600_000])
async def test_a_machine_whose_time_is_wrong_publishes_nothing(wrong_ms: int) -> None:
    world = await World().prepare()
    await world.report("a")
    world.repository.clock_ms = lambda: world.clock.ms - wrong_ms
    told = "600.0 s ahead of" if wrong_ms > 0 else "600.0 s behind"
    with pytest.raises(UnavailableError, match=re.escape(told)):
        await world.run()
    assert world.view.documents_of(0) == ()
    world.repository.clock_ms = lambda: world.clock.ms - wrong_ms // 200  # as far as it may be
    assert (await world.run()).outcome == "published"
