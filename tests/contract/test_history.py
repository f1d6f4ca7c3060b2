"""What a repository promises of history, for the one in memory and the one on PostgreSQL alike."""

from __future__ import annotations

from dataclasses import replace

from balancer.core.model import Reason, RoundKind
from balancer.core.record import (
    LEFT,
    NEWCOMER,
    SPAN_MS,
    TOPPED_UP,
    DestinationRecord,
    History,
    Recorded,
    RoundRecord,
    SpanRecord,
)
from balancer.ports import Repository
from tests.support.recorded import ROUND_MS, T0, reason, round_of

SPAN = T0 // SPAN_MS * SPAN_MS
LONG_AGO = 0
FAR = 2 * T0


async def past(repository: Repository, *, limit: int = 100) -> History:
    return await repository.load_history("db", from_ms=LONG_AGO, until_ms=FAR, limit=limit)


async def clean(
    repository: Repository,
    *,
    roll_up: int = LONG_AGO,
    before: int = LONG_AGO,
    details: int = LONG_AGO,
    limit: int = 100,
) -> int:
    return await repository.clean_history(
        roll_up_before_ms=roll_up, before_ms=before, details_before_ms=details, limit=limit
    )


# ---------------------------------------------------------------- rounds


async def test_a_round_is_read_back_as_it_was_kept(repository: Repository) -> None:
    full = Reason("db", "é/'", "i", "level", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    plain = replace(full, host="b", instance="j", rule="asked", shadow_points=None, weight=1)
    record = round_of(full, plain, epoch=9)
    await repository.store_round(record)
    found = await past(repository)
    assert (found.destinations, found.spans) == (list(record.destinations), [])
    assert (found.rounds, found.more) == ([record.round], False)
    details = await repository.load_details("db", from_ms=T0, until_ms=T0 + 1, limit=10)
    assert details == list(record.details)
    (own,) = await repository.load_details("db", from_ms=0, until_ms=FAR, limit=1, host="é/'")
    assert own == replace(record.details[0], reasons=(full,))
    (none,) = await repository.load_in_force("db", host="c")
    assert none == replace(record.details[0], reasons=())
    assert await repository.load_details("db", from_ms=T0 + 1, until_ms=FAR, limit=10) == []


async def test_groups_are_kept_where_there_are_any(repository: Repository) -> None:
    record = round_of(reason("a"), reason("b"), reason("c"))
    grouped = replace(record.details[0], groups=("web", None, "web"))
    await repository.store_round(replace(record, details=(grouped,)))
    assert await repository.load_details("db", from_ms=0, until_ms=FAR, limit=9) == [grouped]
    (own,) = await repository.load_in_force("db", host="c")
    assert (own.reasons, own.groups) == ((reason("c"),), ("web",))
    alike = replace(grouped, destination="other", groups=("web",) * 3)
    await repository.store_round(replace(record, details=(alike,)))
    (found,) = await repository.load_in_force("other")
    assert found.groups == ("web",) * 3


async def test_the_largest_numbers_are_kept(repository: Repository) -> None:
    most = reason("a", 10**9, asked=10**12)
    record = round_of(most, epoch=10**11, capacity=10**12)
    largest = replace(record.destinations[0], asked_permits=2 * 10**17, denied_permits=2 * 10**17)
    record = replace(record, destinations=(largest,))
    later = replace(record.round, planned_at_ms=T0 + 1)
    again = replace(largest, planned_at_ms=T0 + 1)
    for entry in (record, Recorded(later, (again,))):
        for _ in range(2):
            await repository.store_round(entry)
    assert await clean(repository, roll_up=FAR) == 2
    (span,) = (await past(repository)).spans
    assert (span.asked_permits, span.asked_most, span.rounds) == (4 * 10**17, 2 * 10**17, 2)


async def test_a_round_kept_again_changes_nothing(repository: Repository) -> None:
    first = round_of(reason("a", 1))
    await repository.store_round(first)
    await repository.store_round(round_of(reason("a", 2)))
    assert (await past(repository)).destinations == list(first.destinations)
    assert await repository.load_reasons("db") == [(1, reason("a", 1))]


async def test_a_round_that_published_nothing_is_told_with_its_shard(
    repository: Repository,
) -> None:
    await repository.store_round(round_of(reason("a")))
    lost = RoundRecord(0, 0, RoundKind.REGULAR, "waits", T0 + 5, 0, 0, 0, 0, 0, "waits")
    await repository.store_round(Recorded(lost))
    await repository.store_round(round_of(replace(reason("a"), destination="other"), shard=1))
    found = await past(repository)
    assert [(told.outcome, told.epoch) for told in found.rounds] == [("published", 1), ("waits", 0)]
    assert (await repository.load_history("none", from_ms=0, until_ms=FAR, limit=9)) == History(
        [], [], []
    )


async def test_a_stretch_of_time_is_cut_at_a_limit_and_says_so(repository: Repository) -> None:
    for number in range(4):
        at_ms = T0 + number * ROUND_MS
        await repository.store_round(round_of(reason("a"), epoch=number + 1, planned_at_ms=at_ms))
    found = await past(repository, limit=3)
    assert [entry.epoch for entry in found.destinations] == [1, 2, 3]
    assert found.more
    assert not (await past(repository, limit=4)).more
    some = await repository.load_history(
        "db", from_ms=T0 + ROUND_MS, until_ms=T0 + 3 * ROUND_MS, limit=9
    )
    assert [entry.epoch for entry in some.destinations] == [2, 3]
    assert [entry.epoch for entry in some.rounds] == [2, 3]
    details = await repository.load_details("db", from_ms=0, until_ms=FAR, limit=2)
    assert [detail.epoch for detail in details] == [1, 2]


async def test_many_rounds_are_read_in_order_and_each_once(repository: Repository) -> None:
    for number in range(25):
        at_ms = T0 + number // 2  # two in a millisecond, told apart by their epochs
        await repository.store_round(round_of(reason("a"), epoch=number, planned_at_ms=at_ms))
    details = await repository.load_details("db", from_ms=T0, until_ms=FAR, limit=99)
    assert [detail.epoch for detail in details] == list(range(25))
    details = await repository.load_details("db", from_ms=T0 + 1, until_ms=T0 + 12, limit=21)
    assert [detail.epoch for detail in details] == list(range(2, 23))


# ---------------------------------------------------------------- reasons


async def test_reasons_are_those_of_the_last_round(repository: Repository) -> None:
    await repository.store_round(round_of(reason("a", 1), reason("b", 2), epoch=1))
    await repository.store_round(round_of(reason("a", 3), epoch=2, planned_at_ms=T0 + ROUND_MS))
    assert await repository.load_reasons("db", "a") == [(2, reason("a", 3))]
    assert await repository.load_reasons("db", "b") == []
    assert await repository.load_reasons("other") == []


async def test_reasons_of_a_whole_destination_come_largest_first(repository: Repository) -> None:
    b, a2, a1, c = (
        reason("b", 10**9),
        replace(reason("a", 9), instance="i2", shadow_points=4),
        reason("a", 9),
        reason("c", 100),
    )
    await repository.store_round(round_of(b, a2, a1, c, epoch=5))
    told = [(5, entry) for entry in (b, c, a1, a2)]
    assert await repository.load_reasons("db") == told
    assert await repository.load_reasons("db", limit=2) == told[:2]
    assert await repository.load_reasons("db", "a", limit=1) == [(5, a1)]


async def test_reasons_at_an_instant_are_those_of_the_windows_that_had_begun(
    repository: Repository,
) -> None:
    for number in range(3):
        planned_ms = T0 + number * ROUND_MS
        await repository.store_round(
            round_of(
                reason("a", number),
                epoch=number,
                planned_at_ms=planned_ms,
                from_ms=planned_ms + 20_000,
            )
        )

    async def epochs(at_ms: int) -> list[int]:
        found = await repository.load_reasons("db", at_ms=at_ms)
        return [epoch for epoch, _ in found]

    assert await epochs(T0 + 19_999) == []
    assert await epochs(T0 + 20_000) == [0]
    assert await epochs(T0 + ROUND_MS + 19_999) == [0]
    assert await epochs(T0 + ROUND_MS + 20_000) == [1]
    assert await epochs(FAR) == [2]


async def test_early_rounds_add_to_the_whole_record_and_end_with_the_next(
    repository: Repository,
) -> None:
    planned = reason("a", 10, asked=7)
    await repository.store_round(round_of(planned, reason("b", 5), epoch=1))
    early = [
        reason("c", 3, rule=NEWCOMER, asked=0),
        reason("a", 12, rule=TOPPED_UP, asked=0),
        reason("b", 0, rule=LEFT, asked=0),
    ]
    at_ms = T0 + 5_000
    await repository.store_round(round_of(*early, epoch=2, planned_at_ms=at_ms, whole=False))
    topped = replace(planned, rule=TOPPED_UP, share_points=12)
    assert await repository.load_reasons("db") == [(2, topped), (2, early[0])]
    assert [told.host for _, told in await repository.load_reasons("db", at_ms=at_ms - 1)] == [
        "a",
        "b",
    ]
    kinds = [detail.whole for detail in await repository.load_in_force("db", at_ms=at_ms)]
    assert kinds == [True, False]
    await repository.store_round(round_of(reason("c", 4), epoch=3, planned_at_ms=T0 + ROUND_MS))
    assert await repository.load_reasons("db") == [(3, reason("c", 4))]


async def test_of_one_that_said_goodbye_the_rest_of_its_share_is_told_until_it_ends(
    repository: Repository,
) -> None:
    planned = reason("a", 10, asked=7)
    await repository.store_round(round_of(planned, epoch=1))
    for number, points in ((2, 4), (3, 0)):
        goodbye = reason("a", points, rule=LEFT, asked=0)
        at_ms = T0 + number
        await repository.store_round(
            round_of(goodbye, epoch=number, planned_at_ms=at_ms, whole=False)
        )
    told = replace(planned, rule=LEFT, share_points=4)
    assert await repository.load_reasons("db", at_ms=T0 + 2) == [(2, told)]
    assert await repository.load_reasons("db") == []


async def test_additions_alone_are_told_where_nothing_whole_is_kept(
    repository: Repository,
) -> None:
    new = reason("c", 3, rule=NEWCOMER)
    await repository.store_round(round_of(new, epoch=2, whole=False))
    assert await repository.load_reasons("db") == [(2, new)]


# ---------------------------------------------------------------- an instant


async def test_what_was_in_force_at_an_instant_is_the_last_that_had_begun(
    repository: Repository,
) -> None:
    first = round_of(reason("a"), epoch=1, from_ms=T0 + 20_000)
    second = round_of(reason("a"), epoch=2, planned_at_ms=T0 + 30_000, from_ms=T0 + 80_000)
    for entry in (first, second):
        await repository.store_round(entry)
    assert await repository.load_history_at("db", T0 + 19_999) is None
    assert await repository.load_history_at("db", T0 + 79_999) == first.destinations[0]
    assert await repository.load_history_at("db", FAR) == second.destinations[0]
    await clean(repository, roll_up=T0 + 1)
    span = await repository.load_history_at("db", T0 + 40_000)
    assert isinstance(span, SpanRecord)
    assert (span.from_ms, span.rounds) == (SPAN, 1)
    assert isinstance(await repository.load_history_at("db", FAR), DestinationRecord)


# ---------------------------------------------------------------- summing up and removing


async def test_old_rounds_become_sums_and_extremes_of_ten_minutes_step_by_step(
    repository: Repository,
) -> None:
    asked = (5, 50, 20)
    for number, permits in enumerate(asked):
        told = replace(reason("a", 10**8, asked=permits), denied_permits=permits // 5)
        limited = replace(told, level_permits=permits or None)
        at_ms = SPAN + number * ROUND_MS
        await repository.store_round(
            round_of(limited, epoch=number + 1, planned_at_ms=at_ms, capacity=100 + number)
        )
    early = round_of(reason("b"), epoch=4, planned_at_ms=SPAN + 3 * ROUND_MS, whole=False)
    await repository.store_round(early)
    later = round_of(reason("a"), epoch=5, planned_at_ms=SPAN + SPAN_MS)
    await repository.store_round(later)
    gone = []
    while step := await clean(repository, roll_up=SPAN + SPAN_MS, limit=2):
        gone.append(step)
    assert gone == [2, 2]
    found = await past(repository)
    assert found.destinations == list(later.destinations)
    (span,) = found.spans
    assert span == SpanRecord(
        destination="db",
        shard=0,
        from_ms=SPAN,
        rounds=4,
        planned_rounds=3,
        capacity_least=100,
        capacity_most=1000,
        members_least=1,
        members_most=1,
        asked_permits=75,
        asked_most=50,
        wanted_permits=75,
        used_permits=75,
        denied_permits=15,
        denied_most=10,
        level_least=5,
        level_most=50,
        given_points=3 * 10**8 + 1,
        held_points=20,
        held_most=5,
        free_points=24,
        shadow_moved_most=None,
    )
    # A round that is late to come goes to the same ten minutes.
    late = round_of(reason("a", asked=99), epoch=6, planned_at_ms=SPAN + 1)
    await repository.store_round(late)
    assert await clean(repository, roll_up=SPAN + SPAN_MS) == 1
    (span,) = (await past(repository)).spans
    assert (span.rounds, span.asked_permits, span.asked_most) == (5, 174, 99)


async def test_rounds_sums_and_members_are_removed_each_at_its_age(
    repository: Repository,
) -> None:
    for number in range(3):
        at_ms = SPAN + number * SPAN_MS
        await repository.store_round(round_of(reason("a"), epoch=number, planned_at_ms=at_ms))
    assert await clean(repository, details=SPAN + ROUND_MS) == 0
    assert await clean(repository, details=SPAN + ROUND_MS + 1) == 1
    assert await repository.load_reasons("db", at_ms=SPAN) == []
    assert len(await repository.load_reasons("db", at_ms=SPAN + SPAN_MS)) == 1
    assert await clean(repository, roll_up=SPAN + 2 * SPAN_MS) == 2
    assert await clean(repository, before=SPAN + SPAN_MS) == 2  # a round and ten minutes
    found = await past(repository)
    assert [span.from_ms for span in found.spans] == [SPAN + SPAN_MS]
    assert [told.epoch for told in found.rounds] == [1, 2]
    assert [entry.epoch for entry in found.destinations] == [2]


async def test_ten_minutes_are_found_by_any_stretch_that_overlaps_them(
    repository: Repository,
) -> None:
    await repository.store_round(round_of(reason("a"), planned_at_ms=SPAN + 1))
    await clean(repository, roll_up=FAR)

    async def found(from_ms: int, until_ms: int) -> int:
        past = await repository.load_history("db", from_ms=from_ms, until_ms=until_ms, limit=9)
        return len(past.spans)

    assert await found(SPAN + SPAN_MS - 1, SPAN + SPAN_MS) == 1
    assert await found(SPAN + SPAN_MS, SPAN + 2 * SPAN_MS) == 0
    assert await found(SPAN - 1, SPAN) == 0
    assert await found(SPAN - 1, SPAN + 1) == 1
