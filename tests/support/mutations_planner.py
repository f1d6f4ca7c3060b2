"""Rules left out on purpose: the planner's (rules 6 to 12, and the three for use under churn)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from balancer.core import (
    destination_plan,
    early,
    invariants,
    layout,
    lineage,
    lowered,
    planner,
    reservations,
)
from balancer.core.lineage import Lineage
from tests.support import shard as shard_module
from tests.support.lives_of_rules import (
    DUST,
    EXPIRING,
    EXTENDED,
    FORGOTTEN,
    FULL,
    GONE,
    JOINS,
    LATE_PUTS,
    LATE_ROUNDS,
    LEAVERS,
    LIARS,
    LOSSES,
    LOWERED,
    ODD_SHARES,
    PRESSED,
    RARE_READERS,
    SET_BACK,
    SEVERAL_HELD,
    SHRINKING,
    TOTAL_LOSSES,
)
from tests.support.mutations import MUTATIONS, Patch, is_lax, leaves_out
from worker_sdk.wire.distribution import Entry, Hold
from worker_sdk.wire.shares import POINTS

__all__ = ["MUTATIONS", "the_silent_keep_safe_points"]

# ------------------------------------------------------------- rule 6


@leaves_out("6", SEVERAL_HELD)
def regular_documents_overlap(patch: Patch) -> None:
    patch.setattr(planner, "first_window", lambda present, _: present + 1)
    patch.setattr(invariants, "windows_agree", lambda *_: [])


@leaves_out("6", LEAVERS)
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


@leaves_out("6", JOINS)
def an_early_round_changes_the_capacity(patch: Patch) -> None:
    real = planner._early_line

    def lax(work: Any, destination: Any, before: Any) -> Any:
        line = real(work, destination, before)
        if line is None:
            return None
        return replace(line, terms=replace(line.terms, capacity=destination.capacity))

    patch.setattr(planner, "_early_line", lax)
    patch.setattr(invariants, "windows_agree", lambda *_: [])


@leaves_out("6", LEAVERS, SEVERAL_HELD)
def an_early_document_begins_before_the_one_it_copies(patch: Patch) -> None:
    real = planner._early_line

    def lax(work: Any, destination: Any, before: Any) -> Any:
        line = real(work, destination, before)
        if line is None:
            return None
        present = work.now_ms // (destination.window_seconds * 1000)
        first = min(line.terms.from_window, present)
        return replace(line, terms=replace(line.terms, from_window=first))

    patch.setattr(planner, "_early_line", lax)
    patch.setattr(invariants, "windows_agree", lambda *_: [])


@leaves_out("6", PRESSED)
def newcomers_get_points_that_are_held(patch: Patch) -> None:
    patch.setattr(early, "free_gaps", lambda entries, _: layout.free_gaps(entries, ()))
    patch.setattr(invariants, "shares_fit", lambda *_: [])


@leaves_out("6", SET_BACK)
def unread_documents_points_are_given_away(patch: Patch) -> None:
    real = early.amend
    patch.setattr(
        planner, "amend", lambda *given, others, present: real(*given, others=(), present=present)
    )


@leaves_out("6", LATE_PUTS)
def unread_documents_windows_are_planned_again(patch: Patch) -> None:
    def only_named(self: Lineage, destination: str, _: int) -> int:
        before = self.base.get(destination)
        return 0 if before is None else before.terms.until_window

    patch.setattr(Lineage, "until_window", only_named)


@leaves_out("6", SET_BACK, is_rare=True)
def copies_stretch_safe_points_into_later_windows(patch: Patch) -> None:
    patch.setattr(Lineage, "carried", lambda _, line: line)


@leaves_out("6", FORGOTTEN)
def what_is_learned_by_heart_is_always_repeated(patch: Patch) -> None:
    patch.setattr(Lineage, "may_repeat", lambda *_: True)


# ------------------------------------------------------------- rule 7


@leaves_out("7", LATE_ROUNDS)
def releases_count_at_once(patch: Patch) -> None:
    real = reservations.oldest_epochs

    def lax(members: Any, published_ms: Any, *, start_ms: int) -> Any:
        seen = {
            member: replace(
                record,
                acknowledged_ms=min(record.acknowledged_ms, start_ms - 1),
                left_ms=None if record.left_ms is None else 0,
            )
            for member, record in members.items()
        }
        return real(seen, published_ms, start_ms=start_ms)

    patch.setattr(planner, "oldest_epochs", lax)


@leaves_out("7", LEAVERS)
def a_leavers_whole_interval_is_free_at_once(patch: Patch) -> None:
    patch.setattr(
        early,
        "_without_free_part",
        lambda entry, *_: Entry(entry.host, entry.instance, (), 0),
    )


@leaves_out("7", LEAVERS)
def a_killed_members_interval_is_inherited(patch: Patch) -> None:
    real = early.amend

    def lax(line: Any, newcomers: Any, lacking: Any, members: Any, **rest: Any) -> Any:
        hosts = {host for host, _ in newcomers.members}
        gone = {
            member: replace(record, left_ms=0)
            if record.host in hosts and member in {entry.member for entry in line.entries}
            else record
            for member, record in members.items()
        }
        return real(line, newcomers, lacking, gone, **rest)

    patch.setattr(planner, "amend", lax)
    patch.setattr(invariants, "windows_agree", lambda *_: [])


# ------------------------------------------------------------- rule 8


@leaves_out("8", RARE_READERS)
def nothing_is_reserved(patch: Patch) -> None:
    real = reservations.reserved_permits
    patch.setattr(
        destination_plan, "reserved_permits", lambda _, *given, **rest: real((), *given, **rest)
    )


@leaves_out("8", LOWERED)
def nothing_is_reserved_where_it_is_lowered_by_heart(patch: Patch) -> None:
    real = destination_plan.promised_points
    patch.setattr(lowered, "promised_points", lambda terms, _, *given: real(terms, (), *given))


@leaves_out("8, 12", RARE_READERS)
def only_the_newest_document_is_reserved(patch: Patch) -> None:
    real = reservations.reserved_permits
    patch.setattr(
        destination_plan,
        "reserved_permits",
        lambda promises, *given, **rest: real(promises[:1], *given, **rest),
    )


@leaves_out("8", EXPIRING)
def promises_end_a_window_early(patch: Patch) -> None:
    real = reservations.promise_until_ms
    patch.setattr(reservations, "promise_until_ms", lambda *given: real(*given) - 10_000)


@leaves_out("8", GONE)
def reservations_end_with_the_reports(patch: Patch) -> None:
    real = destination_plan.plan_destination

    def lax(*args: Any, **kwargs: Any) -> destination_plan.Outcome:
        live = set(kwargs["accounts"].members)
        kept = [
            replace(
                known,
                line=replace(
                    known.line, entries=tuple(e for e in known.line.entries if e.member in live)
                ),
            )
            for known in kwargs["promises"]
        ]
        return real(*args, **{**kwargs, "promises": kept})

    patch.setattr(planner, "plan_destination", lax)


@leaves_out("8", PRESSED)
def the_gone_get_no_hold(patch: Patch) -> None:
    def nothing(*_: object) -> tuple[tuple[Hold, ...], int]:
        return (), 0

    patch.setattr(destination_plan, "lay_holds", nothing)
    patch.setattr(invariants, "promises_kept", lambda *_: [])


@leaves_out("8", ODD_SHARES)
def reserved_points_are_rounded_down(patch: Patch) -> None:
    patch.setattr(
        reservations,
        "points_of",
        lambda permits, capacity: permits * (POINTS if capacity else 0) // max(1, capacity),
    )


@leaves_out("8", LIARS)
def an_epoch_never_published_acknowledges(patch: Patch) -> None:
    real = reservations.oldest_epochs

    def lax(members: Any, _: Any, *, start_ms: int) -> Any:
        epochs = {record.acknowledged_epoch: 0 for record in members.values()}
        return real(members, epochs, start_ms=start_ms)

    patch.setattr(planner, "oldest_epochs", lax)
    # Nor does the database mind whether an epoch is on record.
    patch.setattr(shard_module.Shard, "is_on_record", lambda *_: True)


@leaves_out("9", FULL, shows="starves")
def a_whole_share_is_safe(patch: Patch) -> None:
    patch.setattr(
        destination_plan,
        "_safe_points",
        lambda policy, claims, division, *_: division.points,
    )


def the_silent_keep_safe_points(patch: Patch) -> None:
    real = destination_plan._safe_points

    def lax(policy: Any, claims: Any, *rest: Any) -> Any:
        return real(policy, replace(claims, silent=np.zeros_like(claims.silent)), *rest)

    patch.setattr(destination_plan, "_safe_points", lax)


# ------------------------------------------------------------- rules 10 and 11


@leaves_out("10", SHRINKING)
def points_are_reserved_instead_of_permits(patch: Patch) -> None:
    real = destination_plan.plan_destination

    def lax(*args: Any, **kwargs: Any) -> destination_plan.Outcome:
        capacity = kwargs["terms"].capacity
        rescaled = [
            replace(
                known,
                line=replace(known.line, terms=replace(known.line.terms, capacity=capacity)),
            )
            for known in kwargs["promises"]
        ]
        return real(*args, **{**kwargs, "promises": rescaled})

    patch.setattr(planner, "plan_destination", lax)


@leaves_out("10", DUST, is_rare=True)
def newcomers_get_points_where_all_is_promised(patch: Patch) -> None:
    patch.setattr(destination_plan, "_without_gaps", lambda line, _: line)


@leaves_out("11", EXTENDED)
def on_expiry_is_not_reserved(patch: Patch) -> None:
    patch.setattr(reservations, "promise_until_ms", lambda document, _: document.valid_until_ms)


# ------------------------------------------------------------- rule 12 and the store


@leaves_out("12", LOSSES)
def lost_documents_are_not_waited_for(patch: Patch) -> None:
    patch.setattr(shard_module.Shard, "_mind_losses", lambda *_: None)


@leaves_out("12", LATE_PUTS)
def documents_that_no_pointer_names_are_not_loaded(patch: Patch) -> None:
    real = lineage.lineage_of

    def lax(snapshot: Any) -> Lineage:
        named = tuple(d for d in snapshot.documents if d.epoch in snapshot.pointed_epochs)
        return real(replace(snapshot, documents=named))

    patch.setattr(planner, "lineage_of", lax)


is_lax("12", "unconditional puts", LATE_PUTS)
is_lax("12", "a total loss is not waited for", TOTAL_LOSSES)
