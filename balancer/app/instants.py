"""Instants as people write them, and as they are told.

Decides which texts name an instant. Knows no clock: the present is an argument. All times of day
are UTC, so that one text means one instant everywhere.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from balancer.errors import InstantError
from worker_sdk.wire.limits import INSTANT_MAX_MS, INSTANT_MIN_MS

FORMS: Final = (
    "2026-11-30T03:12Z (with a zone), 03:12 (today, UTC), -15m (s, m, h or d), now, "
    "or Unix milliseconds"
)
CHARS_MAX: Final = 40

_AGO: Final = re.compile(r"-([0-9]{1,9})([smhd])")
_OF_DAY: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_MILLISECONDS: Final = re.compile(r"[0-9]{12,13}")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_instant(text: str, now_ms: int) -> int:
    """Return the Unix instant in milliseconds that a text names.

    Args:
        text: in one of `FORMS`.
        now_ms: the present.

    Raises:
        InstantError: says which forms are good.
    """
    at_ms = _parsed(text.strip(), now_ms)
    if at_ms is None or not INSTANT_MIN_MS <= at_ms <= INSTANT_MAX_MS:
        raise InstantError(f"{text[:CHARS_MAX]!r} is no instant; write {FORMS}")
    return at_ms


def _parsed(text: str, now_ms: int) -> int | None:
    if text == "now":
        return now_ms
    if found := _AGO.fullmatch(text):
        return now_ms - int(found[1]) * _UNIT_MS[found[2]]
    if found := _OF_DAY.fullmatch(text):
        seconds = int(found[1]) * 3_600 + int(found[2]) * 60 + int(found[3] or 0)
        return now_ms // 86_400_000 * 86_400_000 + seconds * 1_000
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    return _of_calendar(text) if len(text) <= CHARS_MAX else None


def _of_calendar(text: str) -> int | None:
    try:
        instant = datetime.fromisoformat(text)
        return None if instant.tzinfo is None else (instant - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None


def date_and_time(at_ms: int) -> str:
    """Return an instant as date and time of day, UTC."""
    return (_EPOCH + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%d %H:%M:%S")


def time_of_day(at_ms: int) -> str:
    """Return an instant as time of day, UTC."""
    return (_EPOCH + timedelta(milliseconds=at_ms)).strftime("%H:%M:%S")
