"""Instants as people write them: each form means one instant, whatever else is refused."""

from __future__ import annotations

import pytest

from balancer.app.instants import date_and_time, parse_instant, time_of_day
from balancer.errors import InstantError

NOW_MS = 1_796_008_500_123  # 2026-11-30 03:15:00.123
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("now", "2026-11-30 03:15:00"),
        ("03:12", "2026-11-30 03:12:00"),
        ("23:59:58", "2026-11-30 23:59:58"),
        (" 03:12 ", "2026-11-30 03:12:00"),
        ("-15m", "2026-11-30 03:00:00"),
        ("-1d", "2026-11-29 03:15:00"),
        ("-2h", "2026-11-30 01:15:00"),
        ("-30s", "2026-11-30 03:14:30"),
        ("2026-11-30T03:12Z", "2026-11-30 03:12:00"),
        ("2026-11-30T03:12:05+01:00", "2026-11-30 02:12:05"),
        ("2026-11-30 03:12:00-03:30", "2026-11-30 06:42:00"),
        ("1796008320000", "2026-11-30 03:12:00"),
    ],
)
def test_an_instant_is_read(text: str, told: str) -> None:
    assert date_and_time(parse_instant(text, NOW_MS)) == told


def test_a_time_of_day_is_that_of_utc() -> None:
    assert time_of_day(1_800_000_060_999) == "08:01:00"


def test_milliseconds_are_exact() -> None:
    assert parse_instant("now", NOW_MS) == NOW_MS
    assert parse_instant("2026-11-30T03:15:00.123Z", 0) == NOW_MS
    assert parse_instant(str(NOW_MS), 0) == NOW_MS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-30T03:12",  # no zone: nobody knows whose
        "2026-11-30",
        "3:12",
        "24:00",
        "03:60",
        "-15",
        "15m",
        "-15w",
        "--1m",
        "-999999999d",
        "-1.5h",
        "123",
        "99999999999999",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00+23:59",
        "2026-02-30T00:00Z",
        "\u0663:12",
        "yesterday",
        "2026-11-30T03:12Z" + "0" * 1000,
    ],
)
def test_what_is_no_instant_is_told_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(InstantError, match="is no instant; write 2026-11-30T03:12Z") as caught:
        parse_instant(text, NOW_MS)
    assert len(str(caught.value)) < 300
