"""What happened: told for an instant and for a stretch of time, in lines and over HTTP."""

from __future__ import annotations

from dataclasses import replace

import pytest

from balancer.app.history_report import (
    at_moment,
    host_rows,
    in_stretch,
    incident_lines,
    moment_as_json,
    moment_lines,
    stretch_rows,
)
from balancer.core.model import Destination, RoundKind
from balancer.core.record import LEFT, NEWCOMER, DestinationRecord, Recorded, RoundRecord
from tests.support.fakes_repository import FakeRepository
from tests.support.http_face import Served
from tests.support.recorded import ROUND_MS, T0, reason, round_of

HALF = 5 * 10**8


async def filled(repository: FakeRepository) -> FakeRepository:
    """Three rounds, a newcomer, one that leaves, and a round that waits."""
    for number in range(3):
        limited = replace(reason("a", HALF, rule="level", asked=900), level_permits=500)
        at_ms = T0 + number * ROUND_MS
        await repository.store_round(
            round_of(limited, reason("b", 10**8, asked=7), epoch=number + 1, planned_at_ms=at_ms)
        )
    early = (reason("c", 10**7, rule=NEWCOMER, asked=0), reason("b", 0, rule=LEFT, asked=0))
    await repository.store_round(
        round_of(*early, epoch=4, planned_at_ms=T0 + 2 * ROUND_MS + 5_000, whole=False)
    )
    waits = RoundRecord(
        0, 0, RoundKind.REGULAR, "waits", T0 + 3 * ROUND_MS, 0, 0, 0, 0, 0, "files are lost"
    )
    await repository.store_round(Recorded(waits))
    return repository


async def test_an_instant_is_told_with_its_round_its_members_and_what_the_shard_did() -> None:
    repository = await filled(FakeRepository())
    told = await at_moment(repository, "db", T0 + 2 * ROUND_MS + 6_000, host=None, limit=9)
    assert told.is_covered
    text = "\n".join(moment_lines("db", told))
    assert "db at 2027-01-15 08:02:06 UTC" in text
    assert "epoch 4, early round, planned 08:02:05 for 08:02:05 to 08:03:05" in text
    assert "not looked at: an early round" in text
    assert "08:03:00  files are lost" in text
    assert told.explanation is not None
    assert [case.reason.host for case in told.explanation.cases] == ["a", "c"]
    told = await at_moment(repository, "db", T0 + ROUND_MS, host="b", limit=9)
    text = "\n".join(moment_lines("db", told))
    assert "asked 907, planned by 907, used 907, refused 0; limited to 500" in text
    assert "given 60.00 %" in text
    assert "shadow" not in text
    assert isinstance(told.record, DestinationRecord)
    shadowed = replace(told, record=replace(told.record, shadow_moved_points=HALF))
    assert "shadow    it would give 50.00 % to other members" in "\n".join(
        moment_lines("db", shadowed)
    )
    assert told.explanation is not None
    assert [case.permits(case.reason.share_points) for case in told.explanation.cases] == [100]


async def test_an_instant_that_nothing_covered_is_told_by_what_came_before() -> None:
    repository = await filled(FakeRepository())
    told = await at_moment(repository, "db", T0 + 9 * ROUND_MS, host=None, limit=9)
    assert not told.is_covered
    assert "no document covered this instant" in "\n".join(moment_lines("db", told))
    told = await at_moment(repository, "db", T0 - 1, host=None, limit=9)
    assert moment_lines("db", told)[0].startswith("nothing is kept of db at 2027-01-15 07:59:59")
    assert moment_as_json("db", told)["covered"] is False


async def test_an_instant_long_ago_is_told_by_its_ten_minutes() -> None:
    repository = await filled(FakeRepository())
    await repository.clean_history(
        roll_up_before_ms=2 * T0, before_ms=0, details_before_ms=2 * T0, limit=99
    )
    told = await at_moment(repository, "db", T0 + ROUND_MS, host=None, limit=9)
    lines = moment_lines("db", told)
    assert "of which ten minutes are kept (4 rounds)" in lines[0]
    assert "asked 907 on average and 907 at most" in "\n".join(lines)
    assert "level 500" in "\n".join(lines)
    assert told.explanation is None


async def test_a_destination_that_is_gone_is_told_from_history_as_it_was() -> None:
    repository = await filled(FakeRepository())
    await repository.put_destination(Destination("db", 5, 10))
    told = await at_moment(repository, "db", T0, host="a", limit=9)
    assert told.explanation is not None
    destination = told.explanation.destination
    assert (destination.capacity, destination.window_seconds) == (1000, 60)


async def test_a_stretch_of_time_is_told_round_by_round_and_ten_minutes_by_ten() -> None:
    repository = await filled(FakeRepository())
    told = await in_stretch(repository, "db", (T0, T0 + 9 * ROUND_MS), host=None, limit=99)
    rows = stretch_rows(told)
    assert [row[1] for row in rows] == ["regular", "regular", "regular", "early"]
    assert rows[0][:6] == ("2027-01-15 08:00:00", "regular", 1, 1000, 2, 907)
    assert incident_lines(told) == ["2027-01-15 08:03:00  waits: files are lost"]
    await repository.clean_history(
        roll_up_before_ms=T0 + 2 * ROUND_MS, before_ms=0, details_before_ms=0, limit=99
    )
    told = await in_stretch(repository, "db", (T0, T0 + 9 * ROUND_MS), host=None, limit=99)
    assert [row[1] for row in stretch_rows(told)] == ["2 in all", "regular", "early"]
    assert stretch_rows(told)[0][5:9] == ("907", "907", "0", 500)


async def test_a_host_is_followed_through_a_stretch_of_time() -> None:
    repository = await filled(FakeRepository())
    told = await in_stretch(repository, "db", (T0, T0 + 9 * ROUND_MS), host="b", limit=99)
    rows = host_rows(told)
    assert [(row[1], row[4], row[5]) for row in rows] == [
        (1, 100, "asked"),
        (2, 100, "asked"),
        (3, 100, "asked"),
        (4, 0, "left"),
    ]
    few = await in_stretch(repository, "db", (T0, T0 + 9 * ROUND_MS), host="b", limit=2)
    assert few.more
    assert len(host_rows(few)) == 2


# ---------------------------------------------------------------- over HTTP


async def test_history_over_http(served: Served) -> None:
    path = "/destinations/db/history"
    status, body, _ = await served.ask(path)
    assert (status, body["rounds"], body["spans"], body["more"]) == (200, [], [], False)
    assert body["until_ms"] - body["from_ms"] == 3_600_000
    await filled(served.repository)
    status, body, _ = await served.ask(f"{path}?from={T0}&to={T0 + 9 * ROUND_MS}")
    assert status == 200
    assert [entry["epoch"] for entry in body["rounds"]] == [1, 2, 3, 4]
    assert body["rounds"][0]["asked_permits"] == 907
    assert body["shard_rounds"][-1]["outcome"] == "waits"
    assert body["members"] == []
    _, body, _ = await served.ask(f"{path}?from={T0}&to={T0 + 9 * ROUND_MS}&host=b&limit=2")
    assert [(told["epoch"], told["rule"]) for told in body["members"]] == [
        (1, "asked"),
        (2, "asked"),
    ]
    assert body["more"] is True
    _, body, _ = await served.ask(f"{path}?at={T0 + ROUND_MS}")
    assert (body["covered"], body["round"]["epoch"], body["span"]) == (True, 2, None)
    assert [told["host"] for told in body["members"]] == ["a", "b"]
    explain = "/destinations/db/explain"
    _, body, _ = await served.ask(f"{explain}?host=b&at={T0 + ROUND_MS}")
    (member,) = body["members"]
    assert (member["epoch"], member["share_permits"]) == (2, 100)
    status, body, _ = await served.ask(f"{explain}?host=b&at={T0 - 1}")
    assert status == 404


@pytest.mark.parametrize(
    "query",
    ["at=soon", "from=x", "to=", "from=now&to=now", "at=now&from=-1h", "limit=0", "host=%00"],
)
async def test_a_wrong_question_about_the_past_is_told(served: Served, query: str) -> None:
    status, body, _ = await served.ask(f"/destinations/db/history?{query}")
    assert (status, query.partition("=")[0] in body["detail"]) == (400, True)
