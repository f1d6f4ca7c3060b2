"""When the last shares are repeated, since it is not known who still works."""

from __future__ import annotations

from dataclasses import replace

from balancer.app.cycle import anybody_may_be_spending
from balancer.core.learning import IngestView
from balancer.core.model import Destination, MemberRecord, Policy, RoundKind
from tests.support.service_doubles import T0
from tests.unit.test_cycle import NAME, World
from tests.unit.test_view import document
from worker_sdk.wire.usage import MemberState


async def test_while_ingest_is_not_current_shares_are_repeated_until_a_ttl_has_passed() -> None:
    world = await World().prepare()
    await world.report("a", used=900)
    await world.report("b", used=10)
    await world.run(RoundKind.EARLY)
    world.clock.ms += 6_000
    await world.report("a", used=900)
    await world.report("b", used=10)
    await world.run()
    before = world.view.documents_of(0)[0].destinations[0].entries
    world.pass_rounds(2)  # nobody was heard: over 1.4 rounds
    told = await world.run(current=False)
    assert "learning" in told.sentence
    assert world.view.documents_of(0)[0].destinations[0].entries == before
    world.pass_rounds(1)
    await world.report("a", used=10)
    told = await world.run()
    assert "learning" in told.sentence  # b has not had time to report
    world.pass_rounds(3)
    await world.report("a", used=10)
    assert "learning" not in (await world.run()).sentence


async def test_nothing_is_learned_where_nobody_holds_a_share() -> None:
    world = await World().prepare()
    await world.run(RoundKind.EARLY, current=False)
    world.pass_rounds(3)
    await world.report("a")
    told = await world.run(current=False)
    assert "learning" not in told.sentence
    assert world.view.answer("a") is not None


async def test_whom_only_older_documents_name_is_held_for_and_nothing_is_learned() -> None:
    world = await World().prepare()
    lasting = Policy(newcomer_reserve_points=0, valid_for_seconds=900)
    await world.repository.put_destination(Destination(NAME, 1000, 10, lasting))
    for count in range(12):
        if count < 7:  # then it is killed
            await world.report("killed")
        await world.report("left")
        await world.run()
        world.pass_rounds(1)
    await world.report("left", state=MemberState.LEAVING)
    await world.run(RoundKind.EARLY)
    nobody = IngestView(None, 0, caught_up=True)
    for _ in range(5):
        world.pass_rounds(1)
        told = await world.cycle.run(world.state, RoundKind.REGULAR, nobody)
        assert told.outcome == "published"
        assert "learning" not in told.sentence
        (line,) = world.view.documents_of(0)[0].destinations
        assert line.holds


async def test_a_report_that_another_process_stored_shows_that_ingest_is_current() -> None:
    world = await World().prepare()
    await world.report("a")
    await world.run(RoundKind.EARLY)
    world.pass_rounds(2)
    await world.report("a")
    nothing_here = IngestView(None, 0, caught_up=True)
    told = await world.cycle.run(world.state, RoundKind.REGULAR, nothing_here)
    assert "learning" not in told.sentence


def test_only_members_that_have_not_left_may_be_spending() -> None:
    member = MemberRecord("a", "i", None, T0, T0)
    assert anybody_may_be_spending([document(1, "a")], [])
    assert anybody_may_be_spending([document(1, "a")], [member])
    assert not anybody_may_be_spending([document(1, "a")], [replace(member, left_ms=T0)])
    assert not anybody_may_be_spending([document(1)], [member])
