"""The fallback ladder: which document counts in a window, and how many permits it gives.

Decides which documents are kept (rule 1), which of them is in force and what its share gives
(rule 2), and what remains where none covers the window (rule 3, on expiry included). Knows nothing
of what was spent or of how permits are released within a window.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from worker_sdk.wire.distribution import PERMILLE, OwnShare
from worker_sdk.wire.shares import safe_permits, share_permits, window_at, window_start_ms

SHARES_KEPT_MAX: Final = 64
"""Documents kept a destination; more than this ahead of time no planner publishes."""


class Mode(StrEnum):
    """On what ground a member spends.

    STARTING: no document has begun yet. FRESH: a document covers the window. SKEWED: one does, but
    the clock is off by more than the guard, and only its safe points count. STALE: none does, the
    newest one's safe points count. EXPIRED: they do not any more, ``on_expiry`` counts.
    """

    STARTING = "starting"
    FRESH = "fresh"
    SKEWED = "skewed"
    STALE = "stale"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Standing:
    """What the documents say of one window.

    Attributes:
        mode: rung of the ladder.
        share: the document in force; None while starting.
        window: index of the window; None while starting.
        start_ms: Unix instant at which it begins (0 while starting).
        end_ms: Unix instant at which it ends (0 while starting).
        permits: what the share gives in the whole window.
    """

    mode: Mode
    share: OwnShare | None
    window: int | None
    start_ms: int
    end_ms: int
    permits: int


_STARTING: Final = Standing(Mode.STARTING, None, None, 0, 0, 0)


class Ladder:
    """The documents held for one destination."""

    __slots__ = ("_answer", "_fallback_from_epoch", "_is_one_length", "_shares", "skew_ms")

    def __init__(self) -> None:
        self._shares: list[OwnShare] = []  # newest first
        self._fallback_from_epoch = 0
        self.skew_ms = 0
        # What was answered last: it holds for its whole window, while all documents count windows
        # of one length and none is taken that begins by then.
        self._answer = _STARTING
        self._is_one_length = True

    @property
    def newest(self) -> OwnShare | None:
        """The share with the highest epoch held."""
        return self._shares[0] if self._shares else None

    def take(self, share: OwnShare, now_ms: int) -> bool:
        """Keep ``share`` unless its epoch is held already; say whether it was taken."""
        place = 0
        for held in self._shares:
            if held.epoch == share.epoch:
                return False
            if held.epoch < share.epoch:
                break
            place += 1
        self._shares.insert(place, share)
        self._prune(now_ms)
        answer = self._answer
        is_later = answer.window is not None and share.terms.from_window > answer.window
        if not (is_later and self._is_one_length and now_ms < answer.end_ms):
            self._answer = _STARTING
        return True

    def mind_skew(self, skew_ms: int) -> None:
        """Note how far the clock is off at least."""
        self.skew_ms = skew_ms
        self._answer = _STARTING

    def superseded(self, epoch: int) -> None:
        """Give up the safe points of documents older than ``epoch``.

        That epoch is held, and thereby acknowledged, for the shard, and does not name this
        destination: nothing is reserved for the older ones any more.
        """
        self._fallback_from_epoch = max(self._fallback_from_epoch, epoch)
        self._answer = _STARTING

    def _prune(self, now_ms: int) -> None:
        # Rule 1: what lies ahead, and the highest epoch that has begun.
        kept: list[OwnShare] = []
        begun = False
        seconds = window = 0
        lengths = 0
        for share in self._shares:
            terms = share.terms
            if terms.window_seconds != seconds:
                lengths += 1
                seconds = terms.window_seconds
                window = window_at(now_ms, seconds)
            has_begun = terms.from_window <= window
            if terms.until_window > window or (has_begun and not begun):
                kept.append(share)
            begun = begun or has_begun
        self._is_one_length = lengths <= 1
        if len(kept) > SHARES_KEPT_MAX:
            self._answer = _STARTING
            del kept[SHARES_KEPT_MAX:]
        self._shares = kept

    def standing(self, at_ms: int) -> Standing:
        """Return what counts in the window that contains ``at_ms``."""
        answer = self._answer
        if answer.start_ms <= at_ms < answer.end_ms:
            return answer
        answer = self._standing_anew(at_ms)
        if self._is_one_length:
            self._answer = answer
        return answer

    def _standing_anew(self, at_ms: int) -> Standing:
        begun: OwnShare | None = None
        for share in self._shares:
            window = window_at(at_ms, share.terms.window_seconds)
            if share.terms.covers(window):
                # Rule 2: the highest epoch that covers it; no entry, no permits.
                permits = share_permits(share.terms.capacity, share.intervals, window)
                if self.skew_ms <= share.terms.guard_ms:
                    return _standing(Mode.FRESH, share, window, permits)
                # What is spent in a wrong window must be reserved in every one.
                safe = safe_permits(share.terms.capacity, share.safe_points)
                return _standing(Mode.SKEWED, share, window, min(permits, safe))
            if begun is None and share.terms.from_window <= window:
                begun = share
        return _STARTING if begun is None else self._fallback(begun, at_ms)

    def _fallback(self, share: OwnShare, at_ms: int) -> Standing:
        # Rule 3: a window counts by its end, so that nobody spends beyond what is reserved for him.
        terms = share.terms
        window = window_at(at_ms, terms.window_seconds)
        end_ms = window_start_ms(window + 1, terms.window_seconds)
        safe_points = share.safe_points if share.epoch >= self._fallback_from_epoch else 0
        if end_ms <= share.valid_until_ms:
            return _standing(Mode.STALE, share, window, safe_permits(terms.capacity, safe_points))
        permits = 0
        if end_ms <= share.valid_until_ms + terms.on_expiry.for_ms:
            permits = safe_permits(
                terms.capacity, safe_points * terms.on_expiry.permille // PERMILLE
            )
        return _standing(Mode.EXPIRED, share, window, permits)

    def next_begin_ms(self, after_ms: int) -> int | None:
        """Return when the next document held begins, if one does later than ``after_ms``."""
        begins = (
            window_start_ms(share.terms.from_window, share.terms.window_seconds)
            for share in self._shares
        )
        return min((begin for begin in begins if begin > after_ms), default=None)


def _standing(mode: Mode, share: OwnShare, window: int, permits: int) -> Standing:
    seconds = share.terms.window_seconds
    start_ms = window_start_ms(window, seconds)
    return Standing(mode, share, window, start_ms, start_ms + seconds * 1000, permits)
