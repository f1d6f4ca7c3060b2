"""What is held back, for whom and until when; and the measures by destination."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from balancer.adapters.metrics.prometheus import PrometheusMetrics
from balancer.app import catalogue
from balancer.app.destination_metrics import (
    DestinationMetrics,
    ShadowDifference,
    shadow_differences,
)
from balancer.app.holds import Held, Holder, held_of, holders_of
from balancer.app.view import DistributionView, destination_answer
from balancer.core.model import Destination, Policy, Reason, RoundKind, Strategy, WeightRule
from tests.support.service_doubles import CountingMetrics
from tests.unit.test_cycle import NAME, World
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Hold, OnExpiry, Terms

T0 = 1_800_000_000_000
TERMS = Terms("orders-db", 1000, 60, 30_000_000, 30_000_001)


def document(epoch: int, *entries: Entry, holds: tuple[Hold, ...] = ()) -> Document:
    line = DestinationShares(TERMS, holds, entries)
    return Document(0, epoch, T0, T0 + 1000 * epoch, (line,))


def entry(host: str, safe_permits: int) -> Entry:
    return Entry(host, "i", ((0, 0),), safe_permits * 1_000_000)


# ---------------------------------------------------------------- held


def test_a_line_without_holds_holds_nothing() -> None:
    assert held_of(document(1).destinations[0]) == Held(0, 0, None)


def test_points_number_and_longest_date_of_holds_are_told() -> None:
    line = document(1, holds=(Hold(0, 5, T0 + 9), Hold(7, 8, T0 + 3))).destinations[0]
    assert held_of(line) == Held(6, 2, T0 + 9)
    told = Held(500_000_000, 2, T0).as_json(capacity=3)
    assert (told["percent"], told["permits"]) == (50.0, 1)


def test_a_hold_is_that_of_the_member_whose_promise_has_its_points_and_date() -> None:
    holds = (Hold(10_000_000, 15_000_000, T0 + 1000), Hold(15_000_000, 17_000_000, T0 + 2000))
    newest = document(3, entry("there", 5), holds=holds)
    older = [
        document(2, entry("b", 2), entry("there", 5), entry("c", 2)),
        document(1, entry("a", 5), entry("b", 1)),
    ]
    assert holders_of(3, newest.destinations[0], [newest, *older]) == [
        Holder(("a", "i"), 5_000_000, T0 + 1000),
        Holder(("b", "i"), 2_000_000, T0 + 2000),
    ]


def test_the_largest_promise_and_the_latest_date_make_a_hold() -> None:
    line = document(3, holds=(Hold(0, 5_000_000, T0 + 2000),)).destinations[0]
    older = [document(2, entry("a", 1)), document(1, entry("a", 5))]
    assert holders_of(3, line, older)[0].member == ("a", "i")


def test_a_hold_that_no_document_explains_has_no_name() -> None:
    line = document(3, holds=(Hold(0, 7, T0),)).destinations[0]
    assert holders_of(3, line, [document(2, entry("a", 1))]) == [Holder(None, 7, T0)]


def test_a_hold_lasts_as_long_as_what_remains_after_expiry() -> None:
    older = document(1, entry("a", 1))
    line = replace(older.destinations[0], terms=replace(TERMS, on_expiry=OnExpiry(500, 60_000)))
    older = replace(older, destinations=(line,))
    held = document(2, holds=(Hold(0, 1_000_000, T0 + 61_000),)).destinations[0]
    assert holders_of(2, held, [older])[0].member == ("a", "i")


async def test_the_planners_own_holds_are_named() -> None:
    world = await World().prepare()
    policy = Policy(newcomer_reserve_points=0, valid_for_seconds=300)
    await world.repository.put_destination(Destination(NAME, 1000, 10, policy))
    for _ in range(5):
        for host in ("a", "b", "c"):
            await world.report(host, used=50)
        await world.run()
        world.pass_rounds(1)
    for _ in range(4):  # b is killed
        for host in ("a", "c"):
            await world.report(host, used=50)
        await world.run()
        world.pass_rounds(1)
    stored = await world.store.load(0, now_ms=world.clock.ms)
    newest = stored.documents[0]
    (line,) = newest.destinations
    (holder,) = holders_of(newest.epoch, line, stored.documents)
    assert holder.member == ("b", "i")
    assert world.metrics.gauges[catalogue.HELD_POINTS, NAME] == holder.points > 0
    assert world.metrics.gauges[catalogue.HOLDS, NAME] == 1
    answer = destination_answer(NAME, 0, world.view.documents_of(0))
    assert answer is not None
    told = json.loads(answer.body)["documents"][0]["held"]
    assert (told["points"], told["count"]) == (holder.points, 1)
    assert told["until_ms"] == holder.until_ms > world.clock.ms


# ---------------------------------------------------------------- measures


def reason(host: str, share: int, shadow: int | None, destination: str = "orders-db") -> Reason:
    counts = (1, 1, 0, 0, 1, 1, 0, share, 0)
    return Reason(destination, host, "i", "asked", *counts, shadow_points=shadow)


def test_the_shadow_difference_is_what_others_gain_and_the_largest_of_one() -> None:
    reasons = [
        reason("a", 600, 300),
        reason("b", 300, 500),
        reason("c", 100, 200),
        reason("d", 5, None, "other"),
        reason("e", 5, 9, "unmeasured"),
    ]
    assert shadow_differences(reasons, {"orders-db", "other"}) == {
        "orders-db": ShadowDifference(moved_points=300, largest_points=300)
    }


def shadowed(*names: str) -> list[Destination]:
    return [Destination(name, 1, policy=Policy(shadow=Strategy.EQUAL)) for name in names]


def published(*names: str) -> Document:
    lines = tuple(DestinationShares(replace(TERMS, destination=name), (), ()) for name in names)
    return Document(0, 1, T0, T0, lines)


async def test_measures_end_with_the_shadow_the_destination_and_the_lease() -> None:
    metrics = CountingMetrics()
    measures = DestinationMetrics(metrics)
    reasons = [reason("a", 10**9, 0, "x"), reason("b", 0, 10**9, "x")]
    await measures.show(0, published("x", "y"), shadowed("x"), reasons)
    assert metrics.gauges[catalogue.SHADOW_MOVED, "x"] == 1.0
    assert metrics.gauges[catalogue.SHADOW_LARGEST, "x"] == 1.0
    assert (catalogue.SHADOW_MOVED, "y") not in metrics.gauges
    await measures.show(0, published("x", "y"), [Destination("x", 1)], reasons)
    assert (catalogue.SHADOW_MOVED, "x") not in metrics.gauges
    await measures.show(0, published("y"), [], [])
    assert (catalogue.HOLDS, "x") not in metrics.gauges
    measures.forget(0)
    assert {key for key in metrics.gauges if len(key) > 1} == set()


async def test_so_many_destinations_are_measured_and_the_others_counted() -> None:
    metrics = CountingMetrics()
    measures = DestinationMetrics(metrics, most=3)
    await measures.show(0, published("a", "b"), [], [])
    await measures.show(1, published("c", "d", "e"), [], [])
    measured = {key[1] for key in metrics.gauges if key[0] == catalogue.HOLDS}
    assert measured == {"a", "b", "c"}
    assert metrics.gauges[catalogue.UNMEASURED,] == 2
    await measures.show(0, published("b"), [], [])
    await measures.show(1, published("c", "d", "e"), [], [])
    measured = {key[1] for key in metrics.gauges if key[0] == catalogue.HOLDS}
    assert measured == {"b", "c", "d"}
    assert metrics.gauges[catalogue.UNMEASURED,] == 1


async def test_an_early_round_leaves_the_shadows_measure_as_it_is() -> None:
    metrics = CountingMetrics()
    measures = DestinationMetrics(metrics)
    reasons = [reason("a", 10**9, 0, "x"), reason("b", 0, 10**9, "x")]
    await measures.show(0, published("x"), shadowed("x"), reasons)
    await measures.show(0, published("x"), shadowed("x"), [])
    assert metrics.gauges[catalogue.SHADOW_MOVED, "x"] == 1.0


async def test_what_is_lent_is_measured_where_a_policy_lends() -> None:
    metrics = CountingMetrics()
    measures = DestinationMetrics(metrics)
    lending = Policy(lend_points=300_000_000, newcomer_reserve_points=10_000_000)

    async def lent(points: int, policy: Policy = lending) -> object:
        entry = Entry("a", "i", ((0, points),), 0)
        line = DestinationShares(replace(TERMS, destination="x"), (), (entry,))
        await measures.show(
            0, Document(0, 1, T0, T0, (line,)), [Destination("x", 1, 60, policy)], []
        )
        return metrics.gauges.get((catalogue.LENT_POINTS, "x"))

    assert await lent(690_000_000) == 0
    assert await lent(790_000_000) == 100_000_000
    assert await lent(1_000_000_000) == 300_000_000  # what newcomers got is not lent
    assert await lent(500_000_000) == 0
    assert await lent(790_000_000, Policy()) is None
    everything = Policy(lend_points=1_000_000_000, newcomer_reserve_points=10_000_000)
    assert await lent(1, everything) == 1  # with the reserve that is more than there is to plan


async def test_a_forgotten_gauge_is_told_no_more() -> None:
    metrics = PrometheusMetrics()
    labels = {"destination": 'a"b'}
    metrics.gauge(catalogue.HOLDS, 3, labels)
    assert b"permit_holds{" in metrics.text()
    metrics.forget(catalogue.HOLDS, labels)
    metrics.forget(catalogue.HOLDS, labels)
    assert b"permit_holds{" not in metrics.text()


# ---------------------------------------------------------------- changes


async def test_a_changed_policy_takes_effect_with_the_next_regular_document() -> None:
    world = await World().prepare()

    async def shares(**policy: object) -> dict[str, int]:
        changed = Policy(newcomer_reserve_points=0, safe_permille=0, **policy)  # type: ignore[arg-type]  # any value of a policy
        await world.repository.put_destination(Destination(NAME, 1000, 10, changed))
        for host in ("a", "b"):
            await world.report(host, used=900)
        await world.run(RoundKind.REGULAR)
        world.pass_rounds(1)
        found = await world.repository.load_reasons(NAME)
        return {told.host: told.share_points for _, told in found}

    assert await shares() == {"a": 500_000_000, "b": 500_000_000}
    assert await shares(weights=(WeightRule(3, "a*"),)) == {"a": 750_000_000, "b": 250_000_000}
    assert await shares(minimum_points=400_000_000, weights=(WeightRule(9, "a"),)) == {
        "a": 600_000_000,
        "b": 400_000_000,
    }
    assert await shares(maximum_points=100_000_000) == {"a": 100_000_000, "b": 100_000_000}
    assert await shares() == {"a": 500_000_000, "b": 500_000_000}


async def test_a_shadow_is_measured_from_the_next_regular_document_on() -> None:
    world = await World().prepare()
    policy = Policy(newcomer_reserve_points=0, shadow=Strategy.EQUAL, maximum_points=10**9)
    await world.repository.put_destination(Destination(NAME, 1000, 10, policy))
    await world.report("a", used=990)
    await world.report("b", used=10)
    await world.run()
    (_, first), (_, second) = await world.repository.load_reasons(NAME)
    assert first.host == "a"
    assert first.shadow_points == second.shadow_points == 500_000_000
    moved = (first.share_points - 500_000_000) / 10**9
    assert world.metrics.gauges[catalogue.SHADOW_MOVED, NAME] == pytest.approx(moved)
    assert world.metrics.gauges[catalogue.SHADOW_LARGEST, NAME] == pytest.approx(moved)
    world.cycle.forget(0)
    assert (catalogue.SHADOW_MOVED, NAME) not in world.metrics.gauges


def test_a_view_without_documents_tells_nothing_of_holds() -> None:
    assert destination_answer("x", 0, DistributionView(1).documents_of(0)) is None
