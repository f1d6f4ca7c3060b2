"""Rules left out on purpose: the worker's, the world's, and what all of them have in common.

Every mutation replaces the one function that holds a rule, and names the lives in which it shows.
`tests.support.mutations_planner` has the planner's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest

from tests.support.lives import Life
from tests.support.lives_of_rules import (
    ANSWERS_LOST,
    CLOCKS,
    EXPIRING,
    GROWING,
    LEAVERS,
    PACED,
    RARE_READERS,
    SEVERAL_HELD,
    STRAYING,
    UNHEARD,
)
from worker_sdk.core import engine, ladder, ledger
from worker_sdk.core.ladder import Ladder, Standing
from worker_sdk.core.spending import Spending
from worker_sdk.wire.distribution import OwnShare
from worker_sdk.wire.shares import window_at

__all__ = ["MUTATIONS", "Mutation", "Patch", "is_lax", "leaves_out"]

Patch = pytest.MonkeyPatch
Apply = Callable[[Patch], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A rule left out.

    ``shows`` says what goes wrong: ``over`` or ``starves`` (anything that must hold in the calm).
    ``laxity`` is the world's part of it. ``seeds`` are tried in order; where one life in a
    hundred needs the rule it is rare, and looked for in long runs.
    """

    rule: str
    name: str
    lives: tuple[Life, ...]
    apply: Apply | None = None
    shows: str = "over"
    laxity: str = ""
    is_rare: bool = False

    @property
    def seeds(self) -> range:
        return range(1000 if self.is_rare else 150)


MUTATIONS: list[Mutation] = []


def leaves_out(
    rule: str, *lives: Life, shows: str = "over", is_rare: bool = False
) -> Callable[[Apply], Apply]:
    """Register a mutation by the rule that it leaves out and the lives in which that shows."""

    def register(apply: Apply) -> Apply:
        MUTATIONS.append(Mutation(rule, apply.__name__, lives, apply, shows, is_rare=is_rare))
        return apply

    return register


def is_lax(rule: str, laxity: str, *lives: Life) -> None:
    MUTATIONS.append(Mutation(rule, laxity.replace(" ", "_"), lives, laxity=laxity))


# ------------------------------------------------------------- the worker's rules


@leaves_out("1", SEVERAL_HELD)
def an_older_epoch_counts(patch: Patch) -> None:
    real = Ladder._standing_anew

    def lax(self: Ladder, at_ms: int) -> Standing:
        self._shares.reverse()
        standing = real(self, at_ms)
        self._shares.reverse()
        return standing

    patch.setattr(Ladder, "_standing_anew", lax)


@leaves_out("1", PACED, shows="starves")
def only_the_newest_document_is_kept(patch: Patch) -> None:
    real = Ladder.take

    def lax(self: Ladder, share: OwnShare, now_ms: int) -> bool:
        taken = real(self, share, now_ms)
        del self._shares[1:]
        self._answer = ladder._STARTING
        return taken

    patch.setattr(Ladder, "take", lax)


@leaves_out("2", UNHEARD, is_rare=True)
def whoever_has_no_entry_goes_by_an_older_document(patch: Patch) -> None:
    real = Ladder._standing_anew

    def lax(self: Ladder, at_ms: int) -> Standing:
        shares = self._shares
        self._shares = [share for share in shares if share.intervals]
        standing = real(self, at_ms)
        self._shares = shares
        return standing

    patch.setattr(Ladder, "_standing_anew", lax)


@leaves_out("3", RARE_READERS)
def the_whole_share_counts_without_a_document(patch: Patch) -> None:
    real = Ladder._fallback

    def lax(self: Ladder, share: OwnShare, at_ms: int) -> Standing:
        points = sum(end - start for start, end in share.intervals)
        return real(self, replace(share, safe_points=points), at_ms)

    patch.setattr(Ladder, "_fallback", lax)


@leaves_out("3", EXPIRING)
def validity_counts_by_the_start_of_a_window(patch: Patch) -> None:
    real = Ladder._fallback

    def lax(self: Ladder, share: OwnShare, at_ms: int) -> Standing:
        longer_ms = share.terms.window_seconds * 1000 - 1
        return real(self, replace(share, valid_until_ms=share.valid_until_ms + longer_ms), at_ms)

    patch.setattr(Ladder, "_fallback", lax)


@leaves_out("3", GROWING)
def a_document_counts_before_it_begins(patch: Patch) -> None:
    real = Ladder.standing

    def lax(self: Ladder, at_ms: int) -> Standing:
        standing = real(self, at_ms)
        newest = self.newest
        if newest is None or standing.mode is ladder.Mode.FRESH:
            return standing
        window = window_at(at_ms, newest.terms.window_seconds)
        return self._fallback(newest, at_ms) if newest.terms.from_window > window else standing

    patch.setattr(Ladder, "standing", lax)


@leaves_out("4", SEVERAL_HELD, LEAVERS)
def spending_is_forgotten_with_each_document(patch: Patch) -> None:
    real = ledger.Ledger.offer

    def lax(self: ledger.Ledger, share: OwnShare, now_ms: int) -> bool:
        taken = real(self, share, now_ms)
        if taken:
            self._book()
            self._spending = Spending()
            self._until_ms = 0
        return taken

    patch.setattr(ledger.Ledger, "offer", lax)


@leaves_out("4", STRAYING)
def spending_is_forgotten_when_a_clock_steps_back(patch: Patch) -> None:
    real = Spending.spent

    def lax(self: Spending, start_ms: int, end_ms: int) -> int | None:
        latest = max((account.start_ms for account in self._accounts), default=0)
        return real(self, start_ms, end_ms) if start_ms >= latest else 0

    patch.setattr(Spending, "spent", lax)


@leaves_out("4", CLOCKS)
def a_guard_is_not_kept(patch: Patch) -> None:
    real = engine.Engine.offer

    def lax(self: engine.Engine, shares: Iterable[OwnShare], now_ms: int) -> bool:
        without = [replace(share, terms=replace(share.terms, guard_ms=0)) for share in shares]
        return real(self, without, now_ms)

    patch.setattr(engine.Engine, "offer", lax)


@leaves_out("5", LEAVERS)
def a_goodbye_does_not_end_the_spending(patch: Patch) -> None:
    patch.setattr(ledger.Ledger, "close", lambda self: self._book())


is_lax("5", "serving acknowledges", ANSWERS_LOST)
is_lax("5", "goodbye without the window", LEAVERS)
