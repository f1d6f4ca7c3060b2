"""One destination's ledger: documents and time in, permits out.

Decides whether permits may be spent now. The rules stand elsewhere, each in one place (`ladder`:
which document counts and what it gives; `spending`: what is gone; `pacing`: what is released); here
they meet, with the guard. Knows nothing of other destinations, of who waits or of reports.

Between two changes the answer is a number and the time it holds for: granting is a comparison and
a subtraction, and so is refusing. A part of it may be laid out in the `purse`, which is taken back
before anything is counted or answered anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from worker_sdk.core.ladder import Ladder, Mode, Standing
from worker_sdk.core.purse import PURSE_PERMITS, Purse
from worker_sdk.core.released import Released, release_of
from worker_sdk.core.spending import Spending
from worker_sdk.core.waiters import Ahead
from worker_sdk.wire.distribution import OwnShare
from worker_sdk.wire.limits import PERMITS_MAX
from worker_sdk.wire.shares import most_permits, share_permits, share_points, window_at

WINDOWS_AHEAD_MAX: Final = 64
"""Windows looked through for the next permit."""

_NEVER_MS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Allowance:
    """What may be spent on one destination at one instant, and why.

    Attributes:
        mode: rung of the ladder.
        window: index of the present window; None while starting.
        granted_permits: what the share gives in the whole window.
        spent_permits: what was spent in it.
        left_permits: what may be spent now; pacing, guard and spending are applied.
        opens_at_ms: the soonest Unix instant at which a permit can be had, as far as is known now
            (a window not covered yet is expected to be like the newest one known); None where none
            is in sight.
        epoch: of the document in force; 0 for none.
        share_points: points of its intervals.
        safe_points: its safe points.
        capacity: permits a window for all members together; 0 while starting.
        published_at_ms: when that document was planned; None while starting.
    """

    mode: Mode
    window: int | None
    granted_permits: int
    spent_permits: int
    left_permits: int
    opens_at_ms: int | None
    epoch: int
    share_points: int
    safe_points: int
    capacity: int
    published_at_ms: int | None

    def retry_after_ms(self, now_ms: int) -> int | None:
        """Return the milliseconds until ``opens_at_ms``."""
        return None if self.opens_at_ms is None else max(0, self.opens_at_ms - now_ms)


@dataclass(frozen=True, slots=True)
class Counters:
    """What a ledger counted since the last drain, in permits."""

    granted: int
    used: int
    refused: int


def check_permits(permits: object) -> None:
    """Refuse anything but a whole number of at least 1; a fraction would spoil every count.

    Raises:
        ValueError: saying so.
    """
    if type(permits) is not int or permits < 1:
        raise ValueError(f"permits must be a whole number of at least 1, not {permits!r:.40}")


class Ledger:
    """Rules 1 to 5 of one destination, at work.

    Attributes:
        purse: permits laid out by `lay_out`.
        used_by_mode: permits taken since the start, by mode.
        refused_total: permits refused since the start.
        refunded_total: permits given back that could be spent again.
    """

    __slots__ = (
        *("_from_ms", "_grows_ms", "_is_closed", "_ladder", "_left", "_refused", "_released"),
        *("_slice", "_spending", "_standing", "_until_ms", "_used", "purse", "refunded_total"),
        *("refused_total", "used_by_mode"),
    )

    def __init__(self) -> None:
        self.purse = Purse()
        self._ladder = Ladder()
        self._released = Released(self._ladder)
        self._spending = Spending()
        self._standing: Standing | None = None
        self._is_closed = False
        # The answer in force: `_left` of `_slice` permits within [_from_ms, _until_ms), and those
        # in the purse; before `_grows_ms` asking again gives no more.
        self._from_ms = 0
        self._until_ms = 0
        self._left = 0
        self._slice = 0
        self._grows_ms = 0
        self._used = 0
        self._refused = 0
        self.used_by_mode = dict.fromkeys(Mode, 0)
        self.refused_total = 0
        self.refunded_total = 0

    # -- the hot path

    def try_acquire(self, permits: int, now_ms: int) -> bool:
        """Spend ``permits`` if they may be spent at ``now_ms``; say whether. A refusal counts."""
        if (
            permits.__class__ is int  # NaN would be less than nothing and more than everything
            and self._from_ms <= now_ms < self._until_ms
            and 0 < permits <= self._left
        ):
            self._left -= permits
            return True
        if self.take(permits, now_ms):
            return True
        self.refuse(permits)
        return False

    def take(self, permits: int, now_ms: int) -> bool:
        """As `try_acquire`, but a refusal is not counted.

        Raises:
            ValueError: if ``permits`` is not a whole number of at least 1.
        """
        check_permits(permits)
        holds = self._from_ms <= now_ms < self._until_ms
        if not holds or (permits > self._left and now_ms >= self._grows_ms):
            self._refresh(now_ms)
        if permits > self._left:
            self._left += self.purse.take_back()
            if permits > self._left:
                return False
        self._left -= permits
        return True

    @property
    def has_more(self) -> bool:
        """Whether the answer in force has permits beside those laid out."""
        return self._left > 0

    def lay_out(self) -> None:
        """Lay out what is left of the answer in force, or a good part of it, in the purse."""
        self._left += self.purse.take_back()
        permits = min(self._left, PURSE_PERMITS)
        self._left -= permits
        self.purse.lay_out(permits, self._from_ms, self._until_ms)

    def take_up_to(self, permits: int, now_ms: int) -> int:
        """Spend as many of ``permits`` as may be spent at ``now_ms``; return how many.

        What is not granted is not counted as refused.

        Raises:
            ValueError: if ``permits`` is not at least 1.
        """
        if self.take(permits, now_ms):
            return permits
        taken = self._left
        self._left = 0
        return taken

    def refuse(self, permits: int) -> None:
        """Count permits that were asked for and not granted."""
        self._refused += permits
        self.refused_total += permits

    # -- changes

    def offer(self, share: OwnShare, now_ms: int) -> bool:
        """Take a document's share; say whether it was new. The caller watches the epochs."""
        self._released.advance(now_ms)
        taken = self._ladder.take(share, now_ms)
        if taken:
            self.forget_answer()
        return taken

    def mind_skew(self, skew_ms: int, now_ms: int) -> bool:
        """Note how far the clock is off at least, and say whether that is beyond the guard.

        Only safe points are spent then.
        """
        if skew_ms != self._ladder.skew_ms:
            self._released.advance(now_ms)
            self._ladder.mind_skew(skew_ms)
            self.forget_answer()
        newest = self._ladder.newest
        return newest is not None and skew_ms > newest.terms.guard_ms

    def superseded(self, epoch: int, now_ms: int) -> None:
        """Note that ``epoch`` of the shard is held and does not name this destination."""
        self._released.advance(now_ms)
        self._ladder.superseded(epoch)
        self.forget_answer()

    def refund(self, permits: int, now_ms: int) -> int:
        """Give unspent permits back; return how many may be spent again in this window.

        Raises:
            ValueError: if ``permits`` is not a whole number of at least 1.
        """
        check_permits(permits)
        self.forget_answer()
        standing = self._ladder.standing(now_ms)
        back = 0
        if standing.window is not None:
            back = self._spending.give_back(standing.start_ms, standing.end_ms, permits)
        self._used -= permits
        self.refunded_total += back
        return back

    def forget_answer(self) -> None:
        """Book what was taken and compute anew at the next question."""
        self._book()
        if not self._is_closed:
            self._until_ms = 0
        self._left = self._slice = 0

    def _book(self) -> None:
        self._left += self.purse.take_back()
        taken = self._slice - self._left
        if taken == 0 or self._standing is None:
            return
        self._spending.add(self._standing.start_ms, self._standing.end_ms, taken)
        self._used += taken
        self.used_by_mode[self._standing.mode] += taken
        self._slice = self._left

    def _refresh(self, now_ms: int) -> None:
        self._book()
        if self._is_closed:
            return
        self._released.advance(now_ms)
        standing = self._ladder.standing(now_ms)
        self._standing = standing
        self._from_ms = now_ms
        self._left = self._slice = 0
        if standing.share is None:
            begin_ms = self._ladder.next_begin_ms(now_ms)
            # Nothing to grant until a document comes, and that makes the answer forgotten.
            self._until_ms = now_ms + 1000 if begin_ms is None else begin_ms
            self._grows_ms = self._until_ms
            return
        if not standing.share.terms.enforce:
            self._left = self._slice = PERMITS_MAX
            self._until_ms = self._grows_ms = standing.end_ms
            return
        release = self._released.of(standing)
        if not release.is_open(now_ms):
            before = now_ms < release.opens_ms < release.closes_ms
            self._until_ms = release.opens_ms if before else standing.end_ms
            self._grows_ms = self._until_ms
            return
        self._until_ms = release.closes_ms
        spent = self._spending.spent(standing.start_ms, standing.end_ms)
        if spent is None:
            self._grows_ms = self._until_ms
            return
        released = release.released(now_ms)
        self._left = self._slice = max(0, released - spent)
        grows_ms = release.reaches_at_ms(max(released, spent) + 1)
        self._grows_ms = self._until_ms if grows_ms is None else grows_ms

    def close(self) -> None:
        """Grant nothing any more, whoever still holds this ledger."""
        self._book()
        self._from_ms, self._until_ms = 0, _NEVER_MS
        self._left = self._slice = 0
        self._grows_ms = _NEVER_MS
        self._is_closed = True

    # -- questions

    def epoch_at(self, now_ms: int) -> int:
        """Return the epoch of the document in force; 0 for none."""
        share = self._ladder.standing(now_ms).share
        return 0 if share is None else share.epoch

    @property
    def newest(self) -> OwnShare | None:
        """The share with the highest epoch held."""
        return self._ladder.newest

    def can_ever_give(self, permits: int) -> bool:
        """Say whether some window may give so many at once under the newest document.

        A share of nothing, or no document yet, says nothing about later: then it may.
        """
        newest = self._ladder.newest
        if newest is None or not newest.terms.enforce:
            return True
        most = most_permits(newest.terms.capacity, newest.intervals)
        return most == 0 or permits <= most

    def spent_now(self, now_ms: int) -> tuple[int, int] | None:
        """Return (window, permits spent in it); None while starting.

        Spending that is forgotten counts as the whole capacity.
        """
        self._book()
        standing = self._ladder.standing(now_ms)
        if standing.window is None or standing.share is None:
            return None
        spent = self._spending.spent(standing.start_ms, standing.end_ms)
        return standing.window, standing.share.terms.capacity if spent is None else spent

    def allowance(self, now_ms: int) -> Allowance:
        """Return what may be spent at ``now_ms``, and why."""
        self._refresh(now_ms)
        standing = self._ladder.standing(now_ms)
        share = standing.share
        spent = 0
        if standing.window is not None:
            spent = self._spending.spent(standing.start_ms, standing.end_ms) or 0
        return Allowance(
            mode=standing.mode,
            window=standing.window,
            granted_permits=standing.permits,
            spent_permits=spent,
            left_permits=self._left,
            opens_at_ms=self.opens_at_ms(1, now_ms),
            epoch=0 if share is None else share.epoch,
            share_points=0 if share is None else share_points(share.intervals),
            safe_points=0 if share is None else share.safe_points,
            capacity=0 if share is None else share.terms.capacity,
            published_at_ms=None if share is None else share.published_at_ms,
        )

    def opens_at_ms(self, permits: int, now_ms: int, ahead: Ahead | None = None) -> int | None:
        """Return when so many can be had at once, by who comes after others, as known now."""
        self._book()
        at_ms = now_ms
        for _ in range(WINDOWS_AHEAD_MAX):
            standing = self._ladder.standing(at_ms)
            if standing.share is None:
                begin_ms = self._ladder.next_begin_ms(at_ms)
                if begin_ms is None:
                    return None
                at_ms = begin_ms
                continue
            if not standing.share.terms.enforce:
                return at_ms
            release = release_of(standing, self._expected_permits(standing, now_ms))
            spent = self._spending.spent(standing.start_ms, standing.end_ms)
            if spent is not None and at_ms < release.closes_ms:
                if ahead is not None and release.opens_ms < release.closes_ms:
                    spent += ahead.take(release.permits - spent)
                opens_ms = release.reaches_at_ms(spent + permits)
                is_next = ahead is None or ahead.is_over
                if is_next and opens_ms is not None and max(opens_ms, at_ms) < release.closes_ms:
                    return max(opens_ms, at_ms)
            at_ms = standing.end_ms
        return None

    def _expected_permits(self, standing: Standing, now_ms: int) -> int:
        # A later window not covered yet will most likely be covered in time, by a like share.
        newest = self._ladder.newest
        is_later = standing.start_ms > now_ms
        if standing.mode in {Mode.FRESH, Mode.SKEWED} or not is_later or newest is None:
            return standing.permits
        if self._ladder.skew_ms > newest.terms.guard_ms:
            return standing.permits
        window = window_at(standing.start_ms, newest.terms.window_seconds)
        return max(standing.permits, share_permits(newest.terms.capacity, newest.intervals, window))

    # -- the account

    def drain(self, now_ms: int) -> Counters:
        """Hand over what was counted since the last drain."""
        self._book()
        self._released.advance(now_ms)
        counters = Counters(self._released.drain(), max(0, self._used), self._refused)
        # What was given back of an earlier account lowers the next one.
        self._used = min(0, self._used)
        self._refused = 0
        return counters
