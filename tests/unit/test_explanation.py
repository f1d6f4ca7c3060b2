"""Why a member has its share, in words: rule by rule, as sentences, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from balancer.app.explanation import (
    Explanation,
    case_as_json,
    dated,
    explained,
    explanation_as_json,
    paragraph,
    table_rows,
)
from balancer.app.rule_texts import RULES, Case, Words, words_of
from balancer.core.model import Destination, Policy, Reason, Strategy
from tests.support.fakes_repository import FakeRepository
from tests.support.http_face import Served
from tests.support.recorded import round_of
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Terms

NAME = "orders-db"
REASON = Reason(
    destination=NAME,
    host="web-1",
    instance="i1",
    rule="level",
    asked_permits=500,
    used_permits=300,
    denied_permits=200,
    starved_ms=4_200,
    peak_permits=510,
    expected_permits=480,
    reserved_points=100_000_000,
    share_points=400_000_000,
    safe_points=90_000_000,
    level_permits=200,
    wanted_permits=500,
    weight=2,
)


def case(
    policy: Mapping[str, Any] | None = None,
    *,
    capacity: int = 1000,
    until_ms: int | None = None,
    **numbers: Any,
) -> Case:
    destination = Destination(NAME, capacity, policy=Policy(**(policy or {})))
    return Case(7, replace(REASON, **numbers), destination, until_ms)


# ---------------------------------------------------------------- a rule each


@pytest.mark.parametrize(
    ("told", "because", "change"),
    [
        (
            case(rule="asked", level_permits=None, wanted_permits=399),
            ["enough for all", "a part"],
            ["with the next"],
        ),
        (
            case(rule="asked", share_points=200_000_000, wanted_permits=200),
            ["no more than the level that limits others, so it gets what it asked for"],
            ["what it is refused counts"],
        ),
        (case(rule="foreseen"), ["by that it will want 500 permits"], ["--no-expect-recurring"]),
        (
            case(),
            ["the level, 200 permits for a weight of 1, 400 permits for its weight of 2"],
            ["it lacks 100 permits", "higher weight"],
        ),
        (case(rule="level", weight=1), ["for a weight of 1"], ["larger capacity"]),
        (
            case({"lend_points": 300_000_000}),
            ["30.000 % is planned for nobody and lent within the window"],
            ["a smaller --lend-percent"],
        ),
        (case(rule="usual"), ["less than it usually does"], ["follows its demand"]),
        (case(rule="expected"), ["480 permits came back three times"], ["--no-expect-recurring"]),
        (
            case({"head_room_permille": 125}, rule="head-room"),
            ["up to 12.5 % above its demand"],
            ["--head-room-percent"],
        ),
        (case(rule="repeated"), ["twice at one lag"], ["Others' demand"]),
        (
            case({"peak_decay_permille": 800}, rule="peak"),
            ["needed up to 510 permits not long ago"],
            ["80 % remain", "--peak-decay-percent"],
        ),
        (case(rule="kept"), ["what it had is left to it"], ["Anybody"]),
        (
            case({"minimum_points": 400_000_000}, rule="minimum", wanted_permits=1),
            ["it wants 1 permit, and the policy gives no live member less than 40.000 %"],
            ["--minimum-percent"],
        ),
        (
            case({"minimum_points": 400_000_001}, rule="minimum", wanted_permits=1),
            ["cut alike"],
            ["demand above"],
        ),
        (
            case({"minimum_points": 400_000_000}, rule="minimum"),
            ["the level would give it less, but the policy gives no live member less than 40.0"],
            ["A larger capacity or less demand of others"],
        ),
        (
            case({"minimum_points": 300_000_000}, rule="minimum", wanted_permits=1),
            ["and a part of what nobody asked for"],
            ["demand above"],
        ),
        (
            case({"maximum_points": 400_000_000}, rule="maximum"),
            ["it wants 500 permits", "no member more than 40.000 %"],
            ["--maximum-percent"],
        ),
        (
            case(rule="maximum", share_points=1_000_000_000),
            ["it wants 500 permits, and it has all there is"],
            ["Only a larger capacity"],
        ),
        (
            case(rule="reserved", reserved_points=450_000_000, share_points=450_000_000, weight=1),
            ["still spend 45.000 %, more than the level would give it, 200 permits for its weight"],
            ["once it reports to hold a newer"],
        ),
        (
            case(rule="reserved", wanted_permits=20, level_permits=None),
            ["more than it wants, so that much stays its own, and a part of what nobody asked for"],
            ["once it reports to hold a newer"],
        ),
        (
            case({"maximum_points": 300_000_000}, rule="reserved"),
            ["more than the policy's maximum allows"],
            ["It falls to that"],
        ),
        (
            case({"strategy": Strategy.EQUAL}, rule="reserved"),
            ["more than the strategy equal would give it"],
            ["It falls to that"],
        ),
        (case(rule="silent"), ["not heard of for 1.4 rounds"], ["A report brings it back"]),
        (case({"strategy": Strategy.EQUAL}, rule="even"), ["asked or not"], ["max_min"]),
        (case({"strategy": Strategy.SURPLUS}, rule="used"), ["and a tenth"], ["nearly all"]),
        (case({"strategy": Strategy.SURPLUS}, rule="surplus"), ["what others leave"], ["drifts"]),
        (case(rule="held"), ["capacity was lowered"], ["at the latest"]),
    ],
    ids=lambda value: value.reason.rule if isinstance(value, Case) else "",
)
def test_a_rule_says_why_and_what_would_change_it(
    told: Case, because: list[str], change: list[str]
) -> None:
    words = words_of(told)
    for part in because:
        assert part in words.because
    for part in change:
        assert part in words.change


@pytest.mark.parametrize("rule", [*RULES, "of-a-newer-version"])
def test_every_rule_makes_whole_sentences(rule: str) -> None:
    words = words_of(case(rule=rule))
    assert isinstance(words, Words)
    assert words.because[0].islower()
    assert not words.because.endswith(".")
    assert words.change[0].isupper()
    assert words.change.endswith(".")
    told = paragraph(case(rule=rule))
    assert "\n" not in told
    assert f"“{rule}”: {words.because}." in told


# ---------------------------------------------------------------- sentences


def test_a_paragraph_tells_every_fact() -> None:
    policy = {"minimum_points": 1_000_000, "shadow": Strategy.EQUAL}
    told = paragraph(case(policy, until_ms=1_800_000_060_000, shadow_points=250_000_000))
    for fact in (
        "web-1 (instance i1) has 40.000 % of orders-db, 400 of 1,000 permits in 60 s, by epoch 7.",
        "It asked for 500 permits a window: in its last account it used 300, was refused 200",
        "refused 200 and waited 4.2 s with none left.",
        "Its recent peak is 510, and 480 are expected by recurrence.",
        "It weighs 2; the policy sets a minimum of 0.100 % (1 permit) and no maximum.",
        "10.000 % (100 permits) of it are reserved for what it may still spend by earlier doc",
        "until it reports to hold a newer one, at the latest until 08:01:00 UTC.",
        "9.000 % (90 permits) of it are safe: it may spend them where no document covers",
        "The shadow strategy equal would give it 25.000 % (250 permits), 150 permits less.",
        "What would change it: a larger capacity, less demand",
    ):
        assert fact in told


def test_nothings_are_told_as_such() -> None:
    told = paragraph(
        case(
            rule="asked",
            denied_permits=0,
            starved_ms=0,
            expected_permits=0,
            reserved_points=0,
            safe_points=0,
            level_permits=None,
        )
    )
    for fact in (
        "it used 300 and was refused none.",
        "nothing is expected by recurrence.",
        "the policy sets no minimum and no maximum. No level limited anybody.",
        "Nothing of it is reserved for earlier documents.",
        "None of it is safe: where no document covers a window, it may send nothing.",
    ):
        assert fact in told
    assert "shadow" not in told


NOTHING_ASKED: dict[str, Any] = {"used_permits": 0, "denied_permits": 0, "starved_ms": 0}


def test_what_is_expected_of_who_has_asked_for_nothing_is_not_told_as_asked() -> None:
    new = case(rule="asked", asked_permits=600, wanted_permits=600, **NOTHING_ASKED)
    told = paragraph(new)
    assert "It has not asked for anything: its last account shows no use and no refusal." in told
    assert "planned by 600 permits a window, which is expected of it" in told
    assert "so it gets what is expected of it" in told
    assert "asked for 600" not in told
    assert case_as_json(new)["asked_is_expected"] is True
    head, rows = table_rows(Explanation(new.destination, (new, case()), more=False))
    assert [row[head.index("asked")] for row in rows] == ["expect 600", 500]


@pytest.mark.parametrize("said", [{"used_permits": 1}, {"denied_permits": 1}, {"starved_ms": 1}])
def test_who_has_asked_for_anything_is_told_to_have_asked(said: dict[str, Any]) -> None:
    told = paragraph(case(**{**NOTHING_ASKED, **said}))
    assert "It asked for 500 permits a window" in told
    assert "asked for anything" not in paragraph(case(asked_permits=0, **NOTHING_ASKED))


def test_a_trial_is_told_with_what_enforcement_would_have_cut() -> None:
    trial = case({"enforce": False}, denied_permits=0)
    assert "This is a trial: everything passes" in paragraph(trial)
    assert "--enforce would have cut about 100 permits a window." in paragraph(trial)
    served = case({"enforce": False}, asked_permits=400)
    assert "--enforce would have cut nothing." in paragraph(served)
    new = case({"enforce": False}, **NOTHING_ASKED)
    told = Explanation(trial.destination, (trial, served, new), more=False)
    head, rows = table_rows(told)
    assert [row[head.index("would cut")] for row in rows] == [100, 0, 0]
    listed = explanation_as_json(told)
    assert listed["enforce"] is False
    assert case_as_json(trial)["would_cut_permits"] == 100


def test_where_shares_are_enforced_nothing_is_said_of_a_trial() -> None:
    assert "trial" not in paragraph(case())
    assert "would cut" not in table_rows(Explanation(case().destination, (case(),), more=False))[0]
    assert case_as_json(case())["would_cut_permits"] is None


def test_what_was_foreseen_is_told_beside_what_was_asked() -> None:
    told = paragraph(case(rule="foreseen", wanted_permits=700))
    assert "it was planned by 700, which its past foretells." in told
    by_use = paragraph(case({"strategy": Strategy.SURPLUS}, rule="used", wanted_permits=700))
    assert "foretells" not in by_use


def test_a_share_below_a_permit_says_how_often_one_comes() -> None:
    told = paragraph(case(capacity=10, share_points=30_000_000))
    assert "it gets one in about 4 windows." in told
    assert "about" not in paragraph(case(capacity=10, share_points=100_000_000))
    assert "whole ones" not in paragraph(case(capacity=0))


def test_a_level_that_limits_others_is_told_too() -> None:
    assert "Others were limited to a level of 200 permits" in paragraph(case(rule="asked"))


@pytest.mark.parametrize(
    ("shadow", "told"), [(400_000_000, "as many."), (400_999_999, "as many."), (0, "400 permits")]
)
def test_the_shadows_difference_is_told_in_permits(shadow: int, told: str) -> None:
    assert told in paragraph(case(shadow_points=shadow))


# ---------------------------------------------------------------- JSON, table, dates


def test_json_has_every_number_of_the_reason() -> None:
    told = case_as_json(case(shadow_points=250_000_000))
    assert told["epoch"] == 7
    for name in Reason.__dataclass_fields__:
        assert name in told
    assert (told["share_permits"], told["safe_permits"], told["reserved_permits"]) == (400, 90, 100)
    assert (told["shadow_permits"], told["shadow_difference_points"]) == (250, -150_000_000)
    assert told["text"] == paragraph(case(shadow_points=250_000_000))
    json.dumps(explanation_as_json(Explanation(case().destination, (case(),), more=False)))


def test_the_table_has_a_column_for_the_shadow_only_where_there_is_one() -> None:
    plain = Explanation(case().destination, (case(),), more=False)
    head, (row,) = table_rows(plain)
    assert len(head) == len(row)
    assert "shadow" not in head
    assert (row[:2], row[4]) == (["web-1", "i1"], "level")
    shadowed = Explanation(case().destination, (case(shadow_points=0), case()), more=False)
    head, rows = table_rows(shadowed)
    assert head[-1] == "shadow"
    assert [row[-1] for row in rows] == ["-40.000 %", ""]


def document(epoch: int, safe_points: int, until_ms: int, name: str = NAME) -> Document:
    entry = Entry("web-1", "i1", ((0, 10**9),), safe_points)
    return Document(
        0, epoch, 1, until_ms, (DestinationShares(Terms(name, 9, 60, 1, 2), (), (entry,)),)
    )


def test_a_reservation_lasts_until_the_latest_date_of_older_documents_that_promise() -> None:
    explanation = Explanation(case().destination, (case(),), more=False)
    documents = [
        document(7, 5, 900),  # the one planned: it reserves, and does not promise to itself
        document(6, 5, 300),
        document(5, 5, 400),
        document(4, 0, 800),
        document(3, 5, 700, "other"),
    ]
    assert dated(explanation, documents).cases[0].reserved_until_ms == 400
    assert dated(explanation, []).cases[0].reserved_until_ms is None


async def test_so_many_members_are_told_and_that_there_are_more() -> None:
    repository = FakeRepository()
    assert await explained(repository, NAME, host=None, limit=5) is None
    await repository.put_destination(Destination(NAME, 1000))
    reasons = [replace(REASON, instance=f"i{n}", share_points=n) for n in range(3)]
    await repository.store_round(
        round_of(*reasons, replace(REASON, host="b", share_points=9), epoch=7)
    )
    found = await explained(repository, NAME, host=None, limit=3)
    assert found is not None
    assert [told.reason.share_points for told in found.cases] == [9, 2, 1]
    assert found.more
    found = await explained(repository, NAME, host="web-1", limit=3)
    assert found is not None
    assert (len(found.cases), found.more) == (3, False)


# ---------------------------------------------------------------- over HTTP


async def test_shares_are_explained_over_http(served: Served) -> None:
    path = f"/destinations/{NAME}/explain"
    assert (await served.ask(path))[0] == 404
    await served.repository.put_destination(Destination(NAME, 1000))
    assert (await served.ask(path))[1]["members"] == []
    status, body, _ = await served.ask(f"{path}?host=web-1")
    assert (status, "no round has planned" in body["detail"]) == (404, True)
    others = [replace(REASON, host=f"h{n}", share_points=n) for n in range(3)]
    await served.repository.store_round(round_of(REASON, *others, epoch=7))
    served.view.publish(0, [document(6, 5, 1_800_000_060_000)])
    status, body, _ = await served.ask(f"{path}?host=web-1")
    (member,) = body["members"]
    assert (status, body["capacity"], member["rule"]) == (200, 1000, "level")
    assert member["reserved_until_ms"] == 1_800_000_060_000
    assert "at the latest until 08:01:00 UTC" in member["text"]
    _, body, _ = await served.ask(f"{path}?limit=2")
    assert ([told["host"] for told in body["members"]], body["more"]) == (["web-1", "h2"], True)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=10001",
        "limit=x",
        "limit=-1",
        "limit=%D9%A3",
        "limit=",
        "host=",
        "host=%00",
    ],
)
async def test_a_wrong_question_is_told(served: Served, query: str) -> None:
    await served.repository.put_destination(Destination(NAME, 1000))
    status, body, _ = await served.ask(f"/destinations/{NAME}/explain?{query}")
    assert (status, query.partition("=")[0] in body["detail"]) == (400, True)
