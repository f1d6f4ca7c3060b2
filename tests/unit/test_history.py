"""What a round leaves behind in history, and that keeping it does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from balancer.adapters.postgres.history import pack, unpack
from balancer.app import catalogue, cycle, history
from balancer.app.history import FinishedRound, RoundHistory, recorded
from balancer.core.memory import Memory
from balancer.core.model import Destination, Plan, Policy, Reason, RoundKind, Snapshot, Strategy
from balancer.core.reasons import REASON_FIELDS, ReasonColumns, Reasons, values_of
from balancer.core.record import LEFT, NEWCOMER, SPAN_MS, TOPPED_UP, Recorded
from balancer.core.usage_columns import NUMBERS, UsageColumns
from balancer.errors import UnavailableError
from tests.support.fakes_repository import FakeRepository
from tests.support.recorded import reason, round_of
from tests.support.service_doubles import T0, CountingMetrics, ManualClock
from tests.unit.test_cycle import NAME, ROUND_MS, World
from tests.unit.test_view import document
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Hold, Terms
from worker_sdk.wire.shares import POINTS
from worker_sdk.wire.usage import MemberState

FAR = 2 * T0


def line(name: str, *entries: Entry, window: int = 10, holds: int = 0) -> DestinationShares:
    terms = Terms(name, 1000, 60, window, window + 1)
    return DestinationShares(
        terms, tuple(Hold(5, 5 + holds, 9) for _ in range(bool(holds))), entries
    )


def published(epoch: int, *lines: DestinationShares) -> Document:
    return Document(3, epoch, T0, T0 + 1, lines)


def entry(host: str, start: int, end: int, safe: int = 0) -> Entry:
    return Entry(host, "i", ((start, end),), safe)


def finished(
    after: Document, *before: Document, reasons: Sequence[Reason] = (), early: bool = False
) -> FinishedRound:
    kind = RoundKind.EARLY if early else RoundKind.REGULAR
    return FinishedRound(
        3,
        kind,
        "published",
        T0,
        5,
        "done",
        after,
        before,
        reasons,
    )


# ---------------------------------------------------------------- what is kept


def test_a_planned_destination_leaves_its_sums_and_its_members() -> None:
    told = (reason("a", 6, asked=40), reason("b", 4, asked=2))
    after = published(7, line("db", entry("a", 100, 106, 3), entry("b", 200, 204), holds=50))
    kept = recorded(finished(after, reasons=told))
    assert (kept.round.entries, kept.round.holds, kept.round.held_points) == (2, 1, 50)
    (past,) = kept.destinations
    assert (past.shard, past.epoch, past.members, past.capacity) == (3, 7, 2, 1000)
    assert (past.from_ms, past.until_ms) == (600_000, 660_000)
    assert (past.asked_permits, past.level_permits, past.shadow_moved_points) == (42, None, None)
    assert (past.given_points, past.held_points, past.free_points) == (10, 50, POINTS - 60)
    (detail,) = kept.details
    assert (detail.whole, detail.reasons, detail.left_out) == (True, told, 0)


def test_what_stands_as_it_was_leaves_nothing_and_what_is_repeated_only_its_sums() -> None:
    old = line("db", entry("a", 0, 5))
    kept = recorded(finished(published(8, old), published(7, old)))
    assert (kept.destinations, kept.details, kept.round.destinations) == ((), (), 1)
    again = line("db", entry("a", 0, 5), window=11)
    kept = recorded(finished(published(8, again), published(7, old)))
    assert [past.asked_permits for past in kept.destinations] == [None]
    assert kept.details == ()


def test_an_early_round_leaves_those_whose_share_it_changed() -> None:
    old = line("db", entry("a", 0, 5), entry("b", 5, 9), entry("c", 10, 20), entry("e", 20, 30))
    topped = Entry("b", "i", ((5, 9), (30, 40)), 0)
    new = line("db", entry("a", 0, 5), topped, entry("d", 50, 60, 2), entry("e", 20, 23))
    elder = published(6, line("db", window=9))
    kept = recorded(finished(published(8, new), elder, published(7, old), early=True))
    (detail,) = kept.details
    assert not detail.whole
    assert {(told.host, told.rule, told.share_points) for told in detail.reasons} == {
        ("b", TOPPED_UP, 14),
        ("d", NEWCOMER, 10),
        ("c", LEFT, 0),
        ("e", LEFT, 3),
    }


def test_more_members_than_can_be_kept_are_left_out_smallest_first_and_counted() -> None:
    told = tuple(reason(f"h{number}", number) for number in range(5))
    other = replace(reason("x", 1), destination="other")
    after = published(7, line("db"), line("other"))
    kept = recorded(finished(after, reasons=(*told, other)), members_max=3)
    first, second = kept.details
    assert [one.host for one in first.reasons] == ["h4", "h3", "h2"]
    assert (first.left_out, second.reasons, second.left_out) == (2, (), 1)
    assert [past.asked_permits for past in kept.destinations] == [5, 1]


def test_a_round_that_published_nothing_leaves_its_sentence_within_a_bound() -> None:
    kept = recorded(FinishedRound(3, RoundKind.REGULAR, "broken", T0, sentence="x" * 5_000))
    assert (kept.round.epoch, kept.round.outcome, len(kept.round.sentence)) == (0, "broken", 1_000)
    assert (kept.destinations, kept.details) == ((), ())


# ---------------------------------------------------------------- by columns


def planned_by_columns() -> ReasonColumns:
    """Reasons as a plan tells them: what is alike, small, large, and of one value a round."""
    members = tuple((f"h{number}", "i") for number in range(300))
    numbers = np.arange(300)
    accounts = UsageColumns("db", members, np.stack([numbers * 7] * len(NUMBERS)))
    rules = ["level" if number % 2 else "asked" for number in range(300)]
    columns = (numbers % 3, numbers * 10**9, numbers + 40_000, numbers * 0 + 5)
    points = (numbers * 0 + 1, numbers, numbers * 3, numbers * 2)
    return ReasonColumns("db", members, accounts, rules, *columns, *points, 12, None)


def test_reasons_of_a_plan_are_values_where_they_are_looked_at() -> None:
    told = planned_by_columns()
    values = list(told)
    assert len(told) == len(values) == 300
    assert (told[7], told[-1], told[5:9]) == (values[7], values[-1], values[5:9])
    with pytest.raises(IndexError):
        told[300]
    assert (values[7].host, values[7].used_permits, values[7].level_permits) == ("h7", 49, 12)
    for name in REASON_FIELDS:
        assert list(values_of(told, name)) == [getattr(reason, name) for reason in values]
        assert values_of(told, name) == values_of(values, name)


def test_what_is_kept_of_columns_is_what_is_kept_of_values() -> None:
    told = planned_by_columns()
    after = published(7, line("db", entry("a", 100, 106, 3)))
    by_columns = recorded(finished(after, reasons=Reasons.of([told])))
    by_values = recorded(finished(after, reasons=tuple(told)))
    assert by_columns.destinations == by_values.destinations
    (columns,), (values,) = by_columns.details, by_values.details
    assert tuple(columns.reasons) == values.reasons
    some = recorded(finished(after, reasons=Reasons.of([told])), members_max=3).details[0]
    assert ([reason.host for reason in some.reasons], some.left_out) == (
        ["h299", "h298", "h297"],
        297,
    )


def test_columns_are_stored_so_that_the_same_values_are_read() -> None:
    told = planned_by_columns()
    (detail,) = recorded(finished(published(7, line("db")), reasons=Reasons.of([told]))).details
    assert unpack("db", pack(detail)) == (tuple(told), ())
    assert unpack("db", pack(detail), "h7") == ((told[7],), ())
    as_values = replace(detail, reasons=tuple(told))
    assert unpack("db", pack(as_values)) == (tuple(told), ())


# ---------------------------------------------------------------- by real rounds


async def test_rounds_newcomers_and_leavers_are_kept_as_they_happened() -> None:
    world = await World().prepare()
    policy = Policy(newcomer_reserve_points=POINTS // 10, shadow=Strategy.EQUAL)
    await world.repository.put_destination(Destination(NAME, 1000, 10, policy))
    await world.report("a", used=900)
    await world.run()
    world.clock.ms += 1_000
    await world.report("b")
    told = await world.run(RoundKind.EARLY)
    found = await world.repository.load_history(NAME, from_ms=0, until_ms=FAR, limit=9)
    regular, early = found.destinations
    assert (regular.kind, regular.members, early.members) == (RoundKind.REGULAR, 1, 2)
    assert (early.kind, early.asked_permits) == (RoundKind.EARLY, None)
    assert regular.shadow_moved_points is not None
    for past in (regular, early):
        assert past.given_points + past.held_points + past.free_points == POINTS
    assert [entry.outcome for entry in found.rounds] == ["published", "published"]
    assert found.rounds[1].sentence == told.sentence
    reasons = await world.repository.load_reasons(NAME)
    assert {(one.host, one.rule == NEWCOMER) for _, one in reasons} == {("a", False), ("b", True)}
    await world.report("b", state=MemberState.LEAVING)
    world.pass_rounds(1)
    await world.report("a")
    await world.run()
    assert [one.host for _, one in await world.repository.load_reasons(NAME)] == ["a"]
    at_ms = early.planned_at_ms
    then = await world.repository.load_reasons(NAME, at_ms=at_ms)
    assert {one.host for _, one in then} == {"a", "b"}


async def test_broken_rounds_and_waits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await World().prepare()
    await world.report("a")
    await world.run()

    def broken(_snapshot: Snapshot, memory: Memory, _now_ms: int) -> Plan:
        return Plan(document(2, "a"), (), memory, "broken: too much", broken=("too much",))

    with monkeypatch.context() as patched:
        patched.setattr(cycle, "plan", broken)
        world.pass_rounds(1)
        await world.run()
    world.store.objects.files.clear()
    world.store.objects.pointers.clear()
    world.store.objects.versions.clear()
    world.clock.ms += 1_000
    await world.run()
    found = await world.repository.load_history(NAME, from_ms=0, until_ms=FAR, limit=9)
    assert [told.outcome for told in found.rounds] == ["published", "broken", "waits"]
    assert "too much" in found.rounds[1].sentence
    assert "documents are lost" in found.rounds[2].sentence


# ---------------------------------------------------------------- no harm


class Slow(FakeRepository):
    """A database that never answers."""

    async def store_round(self, record: Recorded) -> None:
        await asyncio.Event().wait()


class Away(FakeRepository):
    """A database that is away."""

    async def store_round(self, record: Recorded) -> None:
        raise UnavailableError("no answer")


class Faulty(FakeRepository):
    """A repository with a fault of its own."""

    async def store_round(self, record: Recorded) -> None:
        raise RuntimeError("a fault")


@pytest.mark.parametrize("repository", [Slow(), Away(), Faulty()], ids=lambda kind: str(type(kind)))
async def test_a_round_that_cannot_be_kept_is_published_all_the_same(
    repository: FakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "WAIT_MOST_MS", 20)
    world = await World(repository=repository).prepare()
    await world.report("a")
    async with asyncio.timeout(10):
        assert (await world.run()).outcome == "published"
    assert world.store.objects.pointers[0] == (1,)
    assert world.view.answer("a") is not None
    assert world.metrics.counts[(catalogue.HISTORY_LOST,)] == 1


# ---------------------------------------------------------------- how long


async def test_history_is_summed_up_and_removed_at_its_ages_step_by_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "ROWS_A_STEP", 2)
    repository, clock, metrics = FakeRepository(), ManualClock(), CountingMetrics()
    keeper = RoundHistory(repository, clock, metrics, ROUND_MS)
    hour_ms, day_ms = 3_600_000, 86_400_000
    for number in range(6):
        at_ms = T0 + number * SPAN_MS
        await repository.store_round(round_of(reason("a"), epoch=number, planned_at_ms=at_ms))

    async def kept() -> tuple[int, int, int, int]:
        found = await repository.load_history("db", from_ms=0, until_ms=FAR, limit=99)
        details = await repository.load_details("db", from_ms=0, until_ms=FAR, limit=99)
        return len(found.spans), len(found.destinations), len(found.rounds), len(details)

    async def clean() -> int:
        return await keeper.clean(keep_ms=2 * day_ms, keep_details_ms=hour_ms)

    assert (await clean(), await kept()) == (0, (0, 6, 6, 6))
    clock.ms = T0 + 5 * SPAN_MS + 60_000 + hour_ms + 1
    assert (await clean(), await kept()) == (6, (0, 6, 6, 0))
    clock.ms = T0 // SPAN_MS * SPAN_MS + 3 * SPAN_MS + day_ms
    assert (await clean(), await kept()) == (3, (3, 3, 6, 0))
    clock.ms = FAR
    assert (await clean(), await kept()) == (3 + 6 + 6, (0, 0, 0, 0))
