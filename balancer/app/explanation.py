"""Why members have their shares: the numbers of a round in sentences for people, and as JSON.

Decides which facts are told and in which order. The numbers are the planner's, as stored with the
round; destination and policy are told as they are set now. Knows no store and no way of asking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from balancer.app.instants import date_and_time, time_of_day
from balancer.app.rule_texts import Case, count, percent, words_of
from balancer.core.model import PERCENT_POINTS, Destination, Policy, Strategy
from balancer.core.record import LEFT, NEWCOMER, DetailRecord, reasons_in_force
from balancer.core.reservations import promise_until_ms
from balancer.ports import Repository
from worker_sdk.wire.distribution import Document, Member
from worker_sdk.wire.shares import POINTS

MEMBERS_DEFAULT: Final = 100
MEMBERS_MAX: Final = 10_000
"""At most so many members are explained at once."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the members of a destination have their shares.

    Attributes:
        destination: as it is set now.
        cases: one a member, the largest shares first.
        more: whether there are more members than were asked for.
    """

    destination: Destination
    cases: tuple[Case, ...]
    more: bool


async def explained(
    repository: Repository, name: str, *, host: str | None, limit: int, at_ms: int | None = None
) -> Explanation | None:
    """Return why members have their shares; None where there is no such destination.

    Args:
        repository: asked.
        name: of the destination.
        host: whose members; None for all.
        limit: so many members at most.
        at_ms: they are told as they were at this instant, of a removed destination too; None for
            the last round.
    """
    known = {entry.name: entry for entry in await repository.list_destinations()}
    destination = known.get(name)
    if at_ms is None:
        found = await repository.load_reasons(name, host, limit=limit + 1)
    else:
        details = await repository.load_in_force(name, host=host, at_ms=at_ms)
        found = reasons_in_force(details, host, limit + 1)
        destination = as_it_was(destination, details[-1]) if details else destination
    if destination is None:
        return None
    cases = tuple(Case(epoch, reason, destination) for epoch, reason in found[:limit])
    return Explanation(destination, cases, len(found) > limit)


def as_it_was(known: Destination | None, detail: DetailRecord) -> Destination:
    """Return a destination with the capacity and window of a record; its policy is today's."""
    policy = Policy() if known is None else known.policy
    guard_ms = min(policy.guard_ms, (detail.window_seconds * 1000 - 1) // 2)
    return Destination(
        name=detail.destination,
        capacity=detail.capacity,
        window_seconds=detail.window_seconds,
        policy=replace(policy, guard_ms=guard_ms),
    )


def not_planned(name: str, host: str | None, at_ms: int | None = None) -> str:
    """Return why there is nothing to explain."""
    if at_ms is not None:
        whom = "" if host is None else f" for the host {host!r}"
        return (
            f"history has no members of {name!r}{whom} at {date_and_time(at_ms)} UTC: nothing was "
            "planned, or it is longer ago than PERMIT_HISTORY_DETAIL_HOURS"
        )
    if host is None:
        return f"no round has planned {name!r} yet: no worker has reported"
    return f"no round has planned {name!r} for the host {host!r}: it has not reported, or has left"


def dated(explanation: Explanation, documents: Iterable[Document]) -> Explanation:
    """Return the explanation with the dates of what is reserved, as far as documents tell them."""
    name = explanation.destination.name
    dates: dict[Member, list[tuple[int, int]]] = {}
    wanted = {
        (case.reason.host, case.reason.instance)
        for case in explanation.cases
        if case.reason.reserved_points
    }
    for document in documents if wanted else ():
        for line in document.destinations:
            if line.terms.destination != name:
                continue
            until_ms = promise_until_ms(document, line.terms)
            for entry in line.entries:
                if entry.safe_points and entry.member in wanted:
                    dates.setdefault(entry.member, []).append((document.epoch, until_ms))
    cases = tuple(
        Case(case.epoch, case.reason, case.destination, _latest(case, dates))
        for case in explanation.cases
    )
    return Explanation(explanation.destination, cases, explanation.more)


def _latest(case: Case, dates: dict[Member, list[tuple[int, int]]]) -> int | None:
    known = dates.get((case.reason.host, case.reason.instance), [])
    return max((until_ms for epoch, until_ms in known if epoch < case.epoch), default=None)


def paragraph(case: Case) -> str:
    """Return why one member has its share, and what would change it, in sentences."""
    words = words_of(case)
    facts = (
        _share(case),
        _trial(case),
        _account(case),
        _past(case),
        f"The rule that decided is “{case.reason.rule}”: {words.because}.",
        _bounds(case),
        _reserved(case),
        _safe(case),
        _shadow(case),
        f"What would change it: {words.change[0].lower()}{words.change[1:]}",
    )
    return " ".join(fact for fact in facts if fact)


def _share(case: Case) -> str:
    reason, destination = case.reason, case.destination
    told = (
        f"{reason.host} (instance {reason.instance}) has {percent(reason.share_points)} of "
        f"{reason.destination}, {case.permits(reason.share_points):,} of "
        f"{count(destination.capacity)} in {destination.window_seconds} s, by epoch {case.epoch}."
    )
    part = destination.capacity * reason.share_points
    if 0 < part < POINTS:
        told += (
            " That is less than one permit a window: whole ones go round, and it gets one in "
            f"about {-(-POINTS // part):,} windows."
        )
    return told


def _trial(case: Case) -> str:
    permits = case.would_cut_permits
    if permits is None:
        return ""
    cut = f"about {count(permits)} a window" if permits else "nothing"
    return (
        "This is a trial: everything passes and nothing is refused. Of what it wanted by its last "
        f"account, --enforce would have cut {cut}."
    )


def _account(case: Case) -> str:
    reason = case.reason
    if reason.rule == NEWCOMER:
        return "It has given no account yet."
    if case.is_expectation:
        return (
            "It has not asked for anything: its last account shows no use and no refusal. It was "
            f"planned by {count(reason.asked_permits)} a window, which is expected of it: what it "
            "or one of its host wanted before, else what is common here."
        )
    refused = (
        f"was refused {reason.denied_permits:,}" if reason.denied_permits else "was refused none"
    )
    waited = (
        f" and waited {reason.starved_ms / 1000:.1f} s with none left" if reason.starved_ms else ""
    )
    joint = "," if waited else " and"
    return (
        f"It asked for {count(reason.asked_permits)} a window: in its last account it used "
        f"{reason.used_permits:,}{joint} {refused}{waited}."
    )


def _past(case: Case) -> str:
    reason = case.reason
    if reason.rule == NEWCOMER:
        return ""
    told = f"Its recent peak is {reason.peak_permits:,}, and "
    told += (
        f"{reason.expected_permits:,} are expected by recurrence"
        if reason.expected_permits
        else "nothing is expected by recurrence"
    )
    if case.policy.strategy is Strategy.MAX_MIN and reason.wanted_permits != reason.asked_permits:
        told += f"; it was planned by {reason.wanted_permits:,}, which its past foretells"
    return f"{told}."


def _bounds(case: Case) -> str:
    policy, reason = case.policy, case.reason
    least = (
        f"a minimum of {percent(policy.minimum_points)} "
        f"({count(case.permits(policy.minimum_points))})"
        if policy.minimum_points
        else "no minimum"
    )
    most = (
        f"a maximum of {percent(policy.maximum_points)} "
        f"({count(case.permits(policy.maximum_points))})"
        if policy.maximum_points < POINTS
        else "no maximum"
    )
    told = f"It weighs {reason.weight}; the policy sets {least} and {most}."
    if reason.level_permits is None:
        return f"{told} No level limited anybody."
    if reason.rule == "level":
        return told
    if reason.rule == "even":
        return f"{told} The even part is {count(reason.level_permits)} for a weight of 1."
    return (
        f"{told} Others were limited to a level of {count(reason.level_permits)} for a weight of 1."
    )


def _reserved(case: Case) -> str:
    points = case.reason.reserved_points
    if case.reason.rule == LEFT:  # its goodbye ended what earlier documents promised it
        return ""
    if not points:
        return "Nothing of it is reserved for earlier documents."
    date = (
        ""
        if case.reserved_until_ms is None
        else f", at the latest until {time_of_day(case.reserved_until_ms)} UTC"
    )
    return (
        f"{percent(points)} ({count(case.permits(points))}) of it are reserved for what it may "
        f"still spend by earlier documents, until it reports to hold a newer one{date}."
    )


def _safe(case: Case) -> str:
    points = case.reason.safe_points
    if not points:
        return "None of it is safe: where no document covers a window, it may send nothing."
    return (
        f"{percent(points)} ({count(case.permits(points))}) of it are safe: it may spend them "
        "where no document covers a window."
    )


def _shadow(case: Case) -> str:
    points = case.reason.shadow_points
    if points is None:
        return ""
    named = "" if case.policy.shadow is None else f" {case.policy.shadow.value}"
    more = case.permits(points) - case.permits(case.reason.share_points)
    difference = f"{count(abs(more))} {'more' if more > 0 else 'less'}" if more else "as many"
    return (
        f"The shadow strategy{named} would give it {percent(points)} "
        f"({count(case.permits(points))}), {difference}."
    )


def case_as_json(case: Case) -> dict[str, object]:
    """Return every number of one member's share, the rule in words, and the whole in sentences."""
    reason, words = case.reason, words_of(case)
    shadow = reason.shadow_points
    more = None if shadow is None else shadow - reason.share_points
    return {
        "epoch": case.epoch,
        **asdict(reason),
        "share_percent": reason.share_points / PERCENT_POINTS,
        "share_permits": case.permits(reason.share_points),
        "safe_permits": case.permits(reason.safe_points),
        "reserved_permits": case.permits(reason.reserved_points),
        "reserved_until_ms": case.reserved_until_ms,
        "shadow_permits": None if shadow is None else case.permits(shadow),
        "shadow_difference_points": more,
        "asked_is_expected": case.is_expectation,
        "would_cut_permits": case.would_cut_permits,
        "because": words.because,
        "change": words.change,
        "text": paragraph(case),
    }


def explanation_as_json(explanation: Explanation) -> dict[str, object]:
    """Return an explanation as JSON values."""
    destination, policy = explanation.destination, explanation.destination.policy
    return {
        "destination": destination.name,
        "capacity": destination.capacity,
        "window_seconds": destination.window_seconds,
        "strategy": policy.strategy.value,
        "shadow": None if policy.shadow is None else policy.shadow.value,
        "enforce": policy.enforce,
        "minimum_points": policy.minimum_points,
        "maximum_points": policy.maximum_points,
        "members": [case_as_json(case) for case in explanation.cases],
        "more": explanation.more,
    }


TABLE_HEAD: Final = (
    "host",
    "instance",
    "share",
    "permits",
    "rule",
    "asked",
    "used",
    "refused",
    "weight",
    "safe",
)


def table_rows(explanation: Explanation) -> tuple[list[str], list[Sequence[object]]]:
    """Return head and rows of a table of members.

    With the shadow's difference where there is one, and in a trial with what enforcement would have
    cut.
    """
    is_trial = not explanation.destination.policy.enforce
    has_shadow = any(case.reason.shadow_points is not None for case in explanation.cases)
    rows: list[Sequence[object]] = []
    for case in explanation.cases:
        reason = case.reason
        row: list[object] = [
            reason.host,
            reason.instance,
            percent(reason.share_points),
            case.permits(reason.share_points),
            reason.rule,
            _asked(case),
            reason.used_permits,
            reason.denied_permits,
            reason.weight,
            percent(reason.safe_points),
        ]
        if is_trial:
            row.append(case.would_cut_permits)
        if has_shadow:
            points = reason.shadow_points
            more = 0 if points is None else points - reason.share_points
            row.append("" if points is None else f"{more / PERCENT_POINTS:+.3f} %")
        rows.append(row)
    further = [*(["would cut"] if is_trial else []), *(["shadow"] if has_shadow else [])]
    return [*TABLE_HEAD, *further], rows


def _asked(case: Case) -> object:
    permits = case.reason.asked_permits
    return f"expect {permits}" if case.is_expectation else permits
