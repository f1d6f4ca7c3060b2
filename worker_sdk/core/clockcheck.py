"""What the dates of answers say of one's own clock.

Decides how far it is certainly off. A date is cut to whole seconds and was written at some instant
between question and answer, so one answer leaves a span in which the other side's clock may be; of
several the spans' common part counts. Spans are kept against the monotonic clock: a step of the
wall's is seen at once. Knows neither where dates come from nor what follows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

DATE_SPAN_MS: Final = 1100
"""A date is of the last second, and of a moment before that where a server is slow to renew it."""

KEPT_MS: Final = 900_000
"""Longer ago, clocks may have drifted apart."""

KEPT_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Dated:
    """One answer's date.

    Attributes:
        date_ms: Unix instant that it names.
        asked_mono_ms: before the question left.
        answered_mono_ms: after the answer's beginning came.
    """

    date_ms: int
    asked_mono_ms: int
    answered_mono_ms: int


class ClockCheck:
    """Compares one's clock with the dates of answers."""

    def __init__(self) -> None:
        # Each: when it was answered, and the least and most of (other clock - monotonic clock).
        self._spans: deque[tuple[int, int, int]] = deque(maxlen=KEPT_MAX)

    def note(self, dated: Dated) -> None:
        """Take one more date. One that contradicts those before replaces them all."""
        least = dated.date_ms - dated.answered_mono_ms
        most = dated.date_ms + DATE_SPAN_MS - dated.asked_mono_ms
        self._spans.append((dated.answered_mono_ms, least, most))
        first_ms = dated.answered_mono_ms - KEPT_MS
        while self._spans[0][0] < first_ms:
            self._spans.popleft()
        known_least, known_most = self._known()
        if known_least > known_most:
            self._spans.clear()
            self._spans.append((dated.answered_mono_ms, least, most))

    def _known(self) -> tuple[int, int]:
        return max(span[1] for span in self._spans), min(span[2] for span in self._spans)

    def ahead_ms(self, wall_ms: int, mono_ms: int) -> int:
        """Return how far one's clock is ahead at least; negative if it is behind; 0 if unknown."""
        if not self._spans:
            return 0
        least, most = self._known()
        own = wall_ms - mono_ms
        return own - most if own > most else min(0, own - least)
