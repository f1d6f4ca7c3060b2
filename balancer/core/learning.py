"""When nothing may be planned from what is known, so that the last shares are repeated.

Decides two questions: is ingest current, and how long must a planner learn before it plans anew.
Knows no log and no store; it is told instants and counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SILENCE_TENTHS: Final = 14
"""No batch from anyone for 1.4 rounds: ingest is not current."""


@dataclass(frozen=True, slots=True)
class IngestView:
    """What is known of ingest.

    Attributes:
        last_batch_ms: when the last batch was stored; None for never in this process.
        lag_ms: age of the oldest batch not yet stored; 0 where all are.
        caught_up: whether the backlog found at start has been worked off.
    """

    last_batch_ms: int | None
    lag_ms: int
    caught_up: bool


def ingest_is_current(view: IngestView, now_ms: int, round_ms: int) -> bool:
    """Say whether reports arrive: caught up, one within 1.4 rounds, at most a round behind."""
    if not view.caught_up or view.last_batch_ms is None or view.lag_ms > round_ms:
        return False
    return (now_ms - view.last_batch_ms) * 10 <= SILENCE_TENTHS * round_ms


@dataclass(frozen=True, slots=True)
class Learning:
    """Whether a shard is learning.

    Attributes:
        until_ms: it lasts at least so long; 0 where it does not last.
    """

    until_ms: int = 0

    def active(self, now_ms: int) -> bool:
        """Say whether the last shares are to be repeated now."""
        return now_ms < self.until_ms


def next_learning(
    learning: Learning, *, current: bool, ever_published: bool, now_ms: int, ttl_ms: int
) -> Learning:
    """Return the state after looking at ingest once more.

    While ingest is not current, learning lasts until a TTL after it was last seen so. Where
    nothing was ever published there is nothing to repeat, hence no learning.
    """
    if not ever_published:
        return Learning()
    if current:
        return learning
    return Learning(max(learning.until_ms, now_ms + ttl_ms))


def wait_for_lost_documents(
    *, recorded_epoch: int, largest_stored_epoch: int, recorded_valid_until_ms: int
) -> Learning:
    """Return how long to wait where documents were published that the store does not have.

    Their holders may spend by them until their validity ends, and nobody knows how much. Nothing
    at all may be published meanwhile: repeating an older document's shares would overlap with the
    lost one's.

    Args:
        recorded_epoch: largest epoch that may have been published. One that was recorded but whose
            put certainly failed need not count, for the process that saw it fail.
        largest_stored_epoch: of the store's listing.
        recorded_valid_until_ms: latest end of validity of any recorded document.
    """
    if recorded_epoch > largest_stored_epoch:
        return Learning(recorded_valid_until_ms)
    return Learning()
