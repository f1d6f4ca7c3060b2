"""The stateful simulation can tell right from wrong: each rule left out makes it fail.

Every mutation replaces the one function that holds a rule. Lives are drawn from seeds until one
fails; most need a handful.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from balancer.core import destination_plan, early, invariants, planner, reservations
from balancer.core.learning import Learning
from balancer.core.lineage import Lineage
from balancer.core.model import MemberRecord
from balancer.core.reservations import Promises
from tests.simulation.test_adversary import check_calm, run
from tests.support import world as world_module
from tests.support.adversary import LIVES
from worker_sdk.core import engine, ladder, ledger
from worker_sdk.core.ladder import Ladder, Standing
from worker_sdk.core.spending import Spending
from worker_sdk.wire.distribution import Entry, Hold, Member, OwnShare
from worker_sdk.wire.shares import POINTS, window_at

SEEDS_MOST = 40
SEEDS_MOST_LONG = 400
Patch = pytest.MonkeyPatch

# ------------------------------------------------------------- the planner's rules


def nothing_is_reserved(patch: Patch) -> None:
    patch.setattr(destination_plan, "reserved_permits", lambda *_, **__: {})


def releases_count_at_once(patch: Patch) -> None:
    real = reservations.reserved_permits

    def lax(
        promises: Sequence[Promises],
        members: Mapping[Member, MemberRecord],
        **rest: Any,
    ) -> dict[Member, tuple[int, int]]:
        seen = {
            member: replace(
                record,
                acknowledged_ms=0,
                left_ms=None if record.left_ms is None else 0,
            )
            for member, record in members.items()
        }
        return real(promises, seen, **rest)

    patch.setattr(destination_plan, "reserved_permits", lax)


def reservations_end_with_the_reports(patch: Patch) -> None:
    real = destination_plan.plan_destination

    def lax(*args: Any, **kwargs: Any) -> destination_plan.Outcome:
        live = kwargs["accounts"]
        kept = [
            replace(
                document,
                destinations=tuple(
                    replace(line, entries=tuple(e for e in line.entries if e.member in live))
                    for line in document.destinations
                ),
            )
            for document in kwargs["documents"]
        ]
        return real(*args, **{**kwargs, "documents": kept})

    patch.setattr(planner, "plan_destination", lax)


def only_the_newest_document_is_reserved(patch: Patch) -> None:
    real = reservations.promises_of
    patch.setattr(
        destination_plan, "promises_of", lambda documents, name: real(documents[:1], name)
    )


def promises_end_a_window_early(patch: Patch) -> None:
    real = reservations.promise_until_ms
    patch.setattr(
        reservations, "promise_until_ms", lambda *given: real(*given) - world_module.TTL_MS // 3
    )


def on_expiry_is_not_reserved(patch: Patch) -> None:
    patch.setattr(reservations, "promise_until_ms", lambda document, _: document.valid_until_ms)


def reserved_points_are_rounded_down(patch: Patch) -> None:
    patch.setattr(
        reservations,
        "points_for_permits",
        lambda permits, capacity: permits * POINTS // capacity,
    )


def points_are_reserved_instead_of_permits(patch: Patch) -> None:
    real = destination_plan.plan_destination

    def lax(*args: Any, **kwargs: Any) -> destination_plan.Outcome:
        capacity = kwargs["terms"].capacity
        rescaled = [
            replace(
                document,
                destinations=tuple(
                    replace(line, terms=replace(line.terms, capacity=capacity))
                    for line in document.destinations
                ),
            )
            for document in kwargs["documents"]
        ]
        return real(*args, **{**kwargs, "documents": rescaled})

    patch.setattr(planner, "plan_destination", lax)


def the_gone_get_no_hold(patch: Patch) -> None:
    def nothing(*_: object) -> tuple[tuple[Hold, ...], int]:
        return (), 0

    patch.setattr(destination_plan, "lay_holds", nothing)
    patch.setattr(invariants, "promises_kept", lambda *_: [])


def regular_documents_overlap(patch: Patch) -> None:
    patch.setattr(planner, "first_window", lambda present, _: present + 1)
    patch.setattr(invariants, "windows_agree", lambda *_: [])


def an_early_round_plans_everything(patch: Patch) -> None:
    real = planner._early_line

    def lax(work: Any, destination: Any, before: Any) -> Any:
        present = work.now_ms // (destination.window_seconds * 1000)
        if before is None or work.snapshot.learning or not before.terms.covers(present):
            return real(work, destination, before)
        work.changed = True
        windows = (present, before.terms.until_window)
        return planner._planned(work, destination, before, windows, notes_demand=False)

    patch.setattr(planner, "_early_line", lax)
    patch.setattr(invariants, "windows_agree", lambda *_: [])


def an_early_round_changes_the_capacity(patch: Patch) -> None:
    real = planner._early_line

    def lax(work: Any, destination: Any, before: Any) -> Any:
        line = real(work, destination, before)
        if line is None:
            return None
        return replace(line, terms=replace(line.terms, capacity=destination.capacity))

    patch.setattr(planner, "_early_line", lax)
    patch.setattr(invariants, "windows_agree", lambda *_: [])


def a_leavers_whole_interval_is_free_at_once(patch: Patch) -> None:
    patch.setattr(
        early,
        "_without_free_part",
        lambda entry, *_: Entry(entry.host, entry.instance, (), 0),
    )


def unread_documents_points_are_given_away(patch: Patch) -> None:
    real = early.amend
    patch.setattr(
        planner, "amend", lambda *given, others, present: real(*given, others=(), present=present)
    )


def unread_documents_windows_are_planned_again(patch: Patch) -> None:
    def only_named(self: Lineage, destination: str, _: int) -> int:
        before = self.base.get(destination)
        return 0 if before is None else before.terms.until_window

    patch.setattr(Lineage, "until_window", only_named)


def copies_stretch_safe_points_into_later_windows(patch: Patch) -> None:
    patch.setattr(Lineage, "carried", lambda _, line: line)


def lost_documents_are_not_waited_for(patch: Patch) -> None:
    patch.setattr(world_module, "wait_for_lost_documents", lambda **_: Learning())


def newcomers_get_points_where_all_is_promised(patch: Patch) -> None:
    patch.setattr(destination_plan, "_without_gaps", lambda line, _: line)


# ------------------------------------------------------------- the worker's rules


def validity_counts_by_the_start_of_a_window(patch: Patch) -> None:
    real = Ladder._fallback

    def lax(self: Ladder, share: OwnShare, at_ms: int) -> Standing:
        longer_ms = share.terms.window_seconds * 1000 - 1
        return real(self, replace(share, valid_until_ms=share.valid_until_ms + longer_ms), at_ms)

    patch.setattr(Ladder, "_fallback", lax)


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


def whoever_has_no_entry_goes_by_an_older_document(patch: Patch) -> None:
    real = Ladder.standing

    def lax(self: Ladder, at_ms: int) -> Standing:
        shares = self._shares
        self._shares = [share for share in shares if share.intervals]
        standing = real(self, at_ms)
        self._shares = shares
        return standing

    patch.setattr(Ladder, "standing", lax)


def an_older_epoch_counts(patch: Patch) -> None:
    real = Ladder.standing

    def lax(self: Ladder, at_ms: int) -> Standing:
        self._shares.reverse()
        standing = real(self, at_ms)
        self._shares.reverse()
        return standing

    patch.setattr(Ladder, "standing", lax)


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


def a_guard_is_not_kept(patch: Patch) -> None:
    real = engine.Engine.offer

    def lax(self: engine.Engine, shares: Iterable[OwnShare], now_ms: int) -> bool:
        without = [replace(share, terms=replace(share.terms, guard_ms=0)) for share in shares]
        return real(self, without, now_ms)

    patch.setattr(engine.Engine, "offer", lax)


MUTATIONS: tuple[Callable[[Patch], None], ...] = (
    nothing_is_reserved,
    only_the_newest_document_is_reserved,
    promises_end_a_window_early,
    points_are_reserved_instead_of_permits,
    regular_documents_overlap,
    an_early_round_plans_everything,
    an_early_round_changes_the_capacity,
    a_leavers_whole_interval_is_free_at_once,
    unread_documents_windows_are_planned_again,
    validity_counts_by_the_start_of_a_window,
    a_document_counts_before_it_begins,
    spending_is_forgotten_with_each_document,
    a_guard_is_not_kept,
)
RARE: tuple[Callable[[Patch], None], ...] = (
    unread_documents_points_are_given_away,
    the_gone_get_no_hold,
    an_older_epoch_counts,
    reservations_end_with_the_reports,
    releases_count_at_once,
    on_expiry_is_not_reserved,
    reserved_points_are_rounded_down,
    copies_stretch_safe_points_into_later_windows,
    lost_documents_are_not_waited_for,
    newcomers_get_points_where_all_is_promised,
    whoever_has_no_entry_goes_by_an_older_document,
)
"""Rare in the lives drawn here, or caught by a second rule as well; the long run looks for them.

The first four are found within 40 seeds a life; the others were not, and may need other lives.
"""

LAXITIES = ("unconditional puts", "goodbye without the window")
RARE_LAXITIES = ("serving acknowledges",)


def first_failure(seeds: int = SEEDS_MOST, **how: Any) -> int | None:
    """Return the first seed at which some life goes wrong; None if none does."""
    for seed in range(seeds):
        for life in LIVES:
            try:
                check_calm(run(seed, life=life, **how), seed)
            except AssertionError:
                return seed
    return None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_rule_left_out_is_found(
    mutation: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert first_failure() is not None


@pytest.mark.parametrize("laxity", LAXITIES)
def test_a_lax_world_is_found(laxity: str) -> None:
    assert first_failure(laxity=laxity) is not None


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutation", RARE, ids=lambda mutation: mutation.__name__)
def test_a_rule_left_out_is_found_in_the_long_run(
    mutation: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert first_failure(SEEDS_MOST_LONG) is not None


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("laxity", RARE_LAXITIES)
def test_a_lax_world_is_found_in_the_long_run(laxity: str) -> None:
    assert first_failure(SEEDS_MOST_LONG, laxity=laxity) is not None
