"""The dates of answers, for comparing clocks.

Decides which of them say something: not those of an answer that a cache had kept. Knows nothing of
what follows from them.
"""

from __future__ import annotations

import time
from collections import deque
from email.utils import parsedate_to_datetime
from typing import Final

from worker_sdk.core.clockcheck import Dated

DATES_MAX: Final = 16
"""Of one look; the first ones are given up."""


class Dates:
    """The dates of answers since they were taken last."""

    def __init__(self) -> None:
        self._found: deque[Dated] = deque(maxlen=DATES_MAX)

    def note(self, asked_mono_ms: int, date: str | None, age: str | None) -> None:
        """Take the headers ``Date`` and ``Age`` of an answer whose beginning has just come."""
        answered_mono_ms = mono_ms()
        if date is None or age not in {None, "0"}:  # an old answer out of a cache
            return
        try:
            instant = parsedate_to_datetime(date)
        except ValueError:
            return
        if instant.tzinfo is not None:
            seconds = int(instant.timestamp())
            self._found.append(Dated(seconds * 1000, asked_mono_ms, answered_mono_ms))

    def take(self) -> tuple[Dated, ...]:
        """Hand them over."""
        found = tuple(self._found)
        self._found.clear()
        return found


def mono_ms() -> int:
    """Return the milliseconds of the monotonic clock, as `worker_sdk.runtime.clocks` has them."""
    return time.monotonic_ns() // 1_000_000
