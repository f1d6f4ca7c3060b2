"""A worker that gets nothing, or reports at another pace than rounds go, is told why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from worker_sdk.runtime.member import Member
from worker_sdk.runtime.options import make_options
from worker_sdk.testing import ManualClock
from worker_sdk.transports.base import Reading
from worker_sdk.wire.distribution import OwnShare, Terms
from worker_sdk.wire.shares import POINTS, Interval

WHOLE: tuple[Interval, ...] = ((0, POINTS),)
Told = Callable[[], list[str]]
PLACE = "s3://permits/prod"


def member_of(
    clock: ManualClock,
    *destinations: str,
    distribution: str = PLACE,
    flush_seconds: float = 60,
    kafka: object = "kafka:9092",
) -> Member:
    options = make_options(
        destinations=destinations or ("db",),
        kafka=kafka,  # type: ignore[arg-type]  # of every kind that is legal
        distribution=distribution,
        host="web-1",
        group=None,
        flush_seconds=flush_seconds,
        s3_endpoint_url="http://me:hunter2@127.0.0.1:9000",
        s3_region=None,
        usage_topic="permit-usage",
    )
    return Member(options, "i1", clock)


def share(
    name: str = "db",
    epoch: int = 1,
    windows: tuple[int, int] = (0, 10**9),
    intervals: tuple[Interval, ...] = (),
    **terms: object,
) -> OwnShare:
    given = Terms(name, 100, 60, *windows)
    return OwnShare(
        0,
        epoch,
        1_796_000_000_000,
        1_900_000_000_000,
        replace(given, **terms),  # type: ignore[arg-type]  # values of Terms
        intervals,
        0,
    )


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    """What was warned of until now."""
    with caplog.at_level(logging.WARNING, "worker_sdk"):
        yield lambda: [record.getMessage() for record in caplog.records]


def look(member: Member, clock: ManualClock, reading: Reading, seconds: Sequence[float]) -> None:
    """Take the same reading at once and again after each pause."""
    member.take_reading(reading)
    for pause in seconds:
        clock.advance(pause)
        member.take_reading(reading)


def test_where_nothing_is_found_it_is_said_after_three_periods_and_then_once_a_minute(
    permit_clock: ManualClock, told: Told
) -> None:
    member = member_of(permit_clock)
    look(member, permit_clock, Reading(), [60, 60, 59.9])
    assert len(told()) == 0
    look(member, permit_clock, Reading(), [0.2, 30, 29])
    assert len(told()) == 1
    for part in (
        "no share of 'db' after 180 s: s3://permits/prod (at http://127.0.0.1:9000) has nothing",
        "for the host 'web-1'; is that where the balancer is?",
        "topic 'permit-usage' at kafka:9092",
        "permit-balancer destinations list",
    ):
        assert part in told()[0]
    assert "hunter2" not in told()[0]
    look(member, permit_clock, Reading(), [10])
    assert len(told()) == 2


def test_a_destination_that_no_document_names_is_said_to_be_missing(
    permit_clock: ManualClock, told: Told
) -> None:
    member = member_of(permit_clock, *(f"db{number}" for number in range(5)))
    reading = Reading((share("db4", intervals=WHOLE),))
    look(member, permit_clock, reading, [200])
    assert len(told()) == 1
    assert "no share of 'db0', 'db1', 'db2' and 1 more" in told()[0]
    assert "names other destinations for the host 'web-1'; is there such a desti" in told()[0]


def test_a_member_that_documents_do_not_list_is_told_that_its_reports_do_not_arrive(
    permit_clock: ManualClock, told: Told
) -> None:
    member = member_of(permit_clock, kafka={"bootstrap_servers": ["a:1", "b:2"]})
    look(member, permit_clock, Reading((share(),), instances=frozenset({"i2"})), [200])
    assert len(told()) == 1
    assert "does not list instance i1 of the host 'web-1'; do the reports arrive" in told()[0]
    assert "topic 'permit-usage' at a:1,b:2" in told()[0]


@pytest.mark.parametrize(
    "reading",
    [
        Reading((share(intervals=WHOLE),)),
        Reading((share(),), instances=frozenset({"i1"})),  # it is known, and idle among busy ones
        Reading((share(capacity=0),)),
        Reading((share(enforce=False),)),
    ],
    ids=["a share", "nothing, but listed", "closed", "a trial"],
)
def test_who_is_known_or_locked_out_on_purpose_is_told_nothing(
    permit_clock: ManualClock, told: Told, reading: Reading
) -> None:
    look(member_of(permit_clock), permit_clock, reading, [200, 200])
    assert len(told()) == 0


def test_a_share_that_is_lost_later_is_missed_from_then_on(
    permit_clock: ManualClock, told: Told
) -> None:
    member = member_of(permit_clock)
    look(member, permit_clock, Reading((share(intervals=WHOLE),)), [600])
    look(member, permit_clock, Reading((share(epoch=2),)), [170])
    assert len(told()) == 0
    look(member, permit_clock, Reading(), [20])
    assert len(told()) == 1


def test_an_address_with_a_password_is_told_without_it(
    permit_clock: ManualClock, told: Told
) -> None:
    member = member_of(permit_clock, distribution="http://me:hunter2@balancer:8080/a")
    look(member, permit_clock, Reading(), [200])
    assert "http://balancer:8080/a has never heard of the host 'web-1'; do the reports" in told()[0]
    assert "hunter2" not in told()[0]


def test_a_balancer_that_knows_the_host_and_has_nothing_for_it_misses_the_destination(
    permit_clock: ManualClock, told: Told
) -> None:
    member = member_of(permit_clock, distribution="http://balancer:8080")
    look(member, permit_clock, Reading(instances=frozenset()), [200])
    assert "knows the host 'web-1' and has no share for it; is there such a dest" in told()[0]
    assert "reports" not in told()[0]


# ---------------------------------------------------------------- the round's length


def rounds(member: Member, *covered: tuple[int, int], seconds: int = 10) -> None:
    for epoch, windows in enumerate(covered, start=1):
        read = share(epoch=epoch, windows=windows, intervals=WHOLE, window_seconds=seconds)
        member.take_reading(Reading((read,)))


def test_a_period_that_is_not_the_balancers_round_is_told_once(
    permit_clock: ManualClock, told: Told
) -> None:
    member = member_of(permit_clock, flush_seconds=60)
    rounds(member, (0, 3), (3, 6))
    assert len(told()) == 0  # the first one after an outage may be longer: two must agree
    rounds(member, (0, 3), (3, 6), (6, 9))
    assert len(told()) == 1
    assert "flush_seconds is 60, but a round of the balancer takes 30 s" in told()[0]
    assert "PERMIT_ROUND_SECONDS" in told()[0]
    permit_clock.advance(3600)
    rounds(member, (0, 3), (3, 6), (6, 9), (9, 12), (12, 15))
    assert len(told()) == 1


@pytest.mark.parametrize(
    ("flush_seconds", "covered", "window_seconds", "words"),
    [
        (10, [(0, 6), (6, 12), (12, 18)], 10, "measured over less than a round"),
        (120, [(0, 1), (1, 2), (2, 3)], 60, "takes at most 60 s: it counts as silent"),
    ],
)
def test_a_mismatch_is_told_with_its_harm(
    permit_clock: ManualClock,
    told: Told,
    flush_seconds: float,
    covered: list[tuple[int, int]],
    window_seconds: int,
    words: str,
) -> None:
    rounds(member_of(permit_clock, flush_seconds=flush_seconds), *covered, seconds=window_seconds)
    assert len(told()) == 1
    assert words in told()[0]


@pytest.mark.parametrize(
    ("covered", "window_seconds"),
    [
        ([(0, 6), (6, 12), (12, 18)], 10),  # a round of 60 s, as it should be
        ([(0, 1), (1, 2), (2, 3), (3, 4)], 60),  # 60 s, or less
        ([(0, 1), (1, 2), (2, 3), (3, 4)], 3600),  # a window longer than rounds
        ([(0, 12), (12, 18), (18, 24)], 10),  # the first one after an outage
        ([(0, 3), (6, 9), (12, 15), (18, 21)], 10),  # documents were missed
        ([(3, 6), (3, 6), (6, 12), (6, 12), (12, 18), (12, 18)], 10),  # early ones between
    ],
)
def test_what_fits_or_does_not_show_the_round_is_told_nothing(
    permit_clock: ManualClock, told: Told, covered: list[tuple[int, int]], window_seconds: int
) -> None:
    rounds(member_of(permit_clock, flush_seconds=60), *covered, seconds=window_seconds)
    assert len(told()) == 0


def test_the_round_that_is_told_counts_more_than_what_documents_show(
    permit_clock: ManualClock, told: Told
) -> None:
    member = member_of(permit_clock, flush_seconds=60)
    member.take_reading(Reading(round_seconds=60))
    rounds(member, (0, 3), (3, 6), (6, 9))
    assert len(told()) == 0
    for _ in range(3):
        member.take_reading(Reading(round_seconds=5))
    assert len(told()) == 1
    assert "flush_seconds is 60, but a round of the balancer takes 5 s" in told()[0]
