"""When rounds of a shard are due.

Decides the instants of regular and early rounds and how failed ones are tried again. Reads no clock
and runs nothing.

Of a round of 60 s, aligned to Unix time, the regular round runs at second 38. The first hello or
goodbye starts an early round at once; those of the next min(2 s, round/30) share one. A shard none
of whose documents covers the present window gets an early round too, now and then until it does;
one with a destination that lends gets one every 3 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from balancer.core.model import Destination, RoundKind
from worker_sdk.wire.distribution import Document
from worker_sdk.wire.limits import EPOCH_MAX

PLAN_NUMERATOR, PLAN_DENOMINATOR = 38, 60
"""The part of a round after which the regular round runs; reports have arrived by then."""

SHARE_MAX_MS: Final = 2_000
SHARES_A_ROUND: Final = 30
SHARE_MIN_MS: Final = 100
"""Early rounds of one shard are at least so far apart, however short the rounds."""

EPOCHS_BEGAN_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z: nothing was published before."""

LENDING_PART: Final = 20
"""Where points are lent within the window, early rounds come so often in a round."""

UNCOVERED_PART: Final = 12
"""A shard without cover is tried so many times a round."""

RETRY_FIRST_MS: Final = 250
RETRY_MAX_MS: Final = 5_000


def share_ms(round_ms: int) -> int:
    """Return for how long the hellos behind a first one wait to share an early round."""
    return max(SHARE_MIN_MS, min(SHARE_MAX_MS, round_ms // SHARES_A_ROUND))


def largest_epoch_by(now_ms: int) -> int:
    """Return the largest epoch that any shard can have reached, however often it was planned.

    A report of a larger one is its sender's fault: it acknowledges nothing, and epochs do not go on
    from it, so that nobody can use the numbers up. This bound itself reaches the last number after
    300 years.
    """
    return min(EPOCH_MAX, max(0, now_ms - EPOCHS_BEGAN_MS) // SHARE_MIN_MS)


def plan_at_ms(slot: int, round_ms: int) -> int:
    """Return when the regular round of a slot (index of a round since the epoch) is due."""
    return slot * round_ms + round_ms * PLAN_NUMERATOR // PLAN_DENOMINATOR


@dataclass(slots=True)
class Agenda:
    """What is due for one shard; instants are Unix milliseconds.

    Attributes:
        round_ms: length of a round.
        done_slot: the slot (`plan_at_ms`) whose regular round was begun last.
        early_asked: an early round is wanted.
        regular_asked: the regular round is wanted at once.
        early_at_ms: no early round that is wanted runs before.
        retry_at_ms: nothing runs before, since the last round failed.
        failures: rounds that failed one after another.
        uncovered_at_ms: a shard without cover asks for no early round before.
        lends: whether a policy lends, so that early rounds run unasked; set by whoever knows the
            shard's policies.
        lending_at_ms: when the next of those is due.
        was_early: whether the round begun last was an early one.
    """

    round_ms: int
    done_slot: int = -1
    early_asked: bool = False
    regular_asked: bool = False
    early_at_ms: int = 0
    retry_at_ms: int = 0
    failures: int = 0
    uncovered_at_ms: int = 0
    lends: bool = False
    lending_at_ms: int = 0
    was_early: bool = False
    due_slot: int | None = None

    def due(self, now_ms: int) -> RoundKind | None:
        """Return the round to run now, None where none is due.

        An early round goes first: it serves the present window, a regular one the next. But where a
        regular one is due no two early ones go before it, and loans come last; so however slow
        rounds are, regular ones are run.
        """
        if now_ms < self.retry_at_ms:
            return None
        is_regular = self.regular_asked or self._regular_is_due(now_ms)
        is_early = self.early_asked and now_ms >= self.early_at_ms
        if is_early and not (is_regular and self.was_early):
            return RoundKind.EARLY
        if is_regular:
            return RoundKind.REGULAR
        return RoundKind.EARLY if self.lends and self._loans_are_due(now_ms) else None

    def _regular_is_due(self, now_ms: int) -> bool:
        slot = now_ms // self.round_ms
        # Not "above": a wall clock that stepped back must not stop the rounds.
        return slot != self.done_slot and now_ms >= plan_at_ms(slot, self.round_ms)

    def _loans_are_due(self, now_ms: int) -> bool:
        # Nor long before: a wall clock that stepped back must not stop the loans.
        return not 0 < self.lending_at_ms - now_ms <= self._loans_pause_ms

    @property
    def _loans_pause_ms(self) -> int:
        return max(SHARE_MIN_MS, self.round_ms // LENDING_PART)

    def next_ms(self, now_ms: int, *, with_loans: bool = True) -> int:
        """Return the instant at which something may be due, unless something is asked before."""
        slot = now_ms // self.round_ms
        regular_ms = plan_at_ms(slot + (slot == self.done_slot), self.round_ms)
        found = 0 if self.regular_asked else regular_ms
        if self.early_asked:
            found = min(found, self.early_at_ms)
        if self.lends and with_loans:
            found = min(found, self.lending_at_ms)
        return max(found, self.retry_at_ms)

    def ask_early(self) -> None:
        """Ask for an early round: somebody came or left."""
        self.early_asked = True

    def ask_regular(self) -> None:
        """Ask for the regular round at once: somebody changed a destination by hand."""
        self.regular_asked = True

    def ensure_cover(self, now_ms: int, *, covered: bool) -> None:
        """Ask for an early round where nothing covers the present window, now and then."""
        if not covered and now_ms >= self.uncovered_at_ms:
            self.early_asked = True
            self.uncovered_at_ms = now_ms + max(SHARE_MIN_MS, self.round_ms // UNCOVERED_PART)

    def begin(self, kind: RoundKind, now_ms: int) -> None:
        """Note that a round begins: what is asked from here on is for the next one."""
        self.was_early = kind is RoundKind.EARLY
        if kind is RoundKind.EARLY:
            self.early_asked = False
            self.early_at_ms = now_ms + share_ms(self.round_ms)
            self.lending_at_ms = now_ms + self._loans_pause_ms
        else:
            self.regular_asked = False
            slot = now_ms // self.round_ms
            if self.due_slot is None:
                self.due_slot = slot
            if now_ms >= plan_at_ms(slot, self.round_ms):
                self.done_slot = slot

    def end_regular(self, now_ms: int) -> bool:
        """Note that a regular round came to its end; say whether after the one it was due in."""
        slot, self.due_slot = self.due_slot, None
        return slot is not None and now_ms // self.round_ms > slot

    def succeed(self) -> None:
        """Note that the round begun came to its end."""
        self.failures = 0
        self.retry_at_ms = 0

    def fail(self, kind: RoundKind, now_ms: int) -> None:
        """Note that the round begun failed: it is due again after a pause that doubles."""
        if kind is RoundKind.EARLY:
            self.early_asked = True
        else:
            self.regular_asked = True
        pause_ms = min(RETRY_MAX_MS, RETRY_FIRST_MS << min(self.failures, 10))
        self.failures += 1
        self.retry_at_ms = now_ms + pause_ms


def covers_present(
    documents: Sequence[Document], destinations: Iterable[Destination], now_ms: int
) -> bool:
    """Say whether every destination has a document that covers its present window."""
    covered = {
        line.terms.destination
        for document in documents
        for line in document.destinations
        if line.terms.covers(now_ms // (line.terms.window_seconds * 1000))
    }
    return all(
        destination.name in covered for destination in destinations if not destination.removed
    )
