"""History: what is kept of each round, and for how long.

Decides which rows a round leaves behind, that keeping them never delays or fails a publish, and
when they are summed up and removed. Members are kept where a round planned their destination; of an
early round those whose share it changed. What stays as it was leaves no row. Knows no store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from balancer.app import catalogue
from balancer.app.holds import held_of
from balancer.core.columns import total
from balancer.core.entry_columns import EntryColumns
from balancer.core.model import MemberRecord, Reason, RoundKind
from balancer.core.reasons import parts_of, values_of
from balancer.core.record import (
    LEFT,
    NEWCOMER,
    SPAN_MS,
    TOPPED_UP,
    DestinationRecord,
    DetailRecord,
    Recorded,
    RoundRecord,
)
from balancer.errors import BalancerError
from balancer.ports import Clock, Metrics, Repository
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Member
from worker_sdk.wire.shares import POINTS, share_points

DETAIL_MEMBERS_MAX: Final = 100_000
"""So many members of one round are kept; beyond that those with the smallest shares are not."""

SENTENCE_MAX_CHARS: Final = 1_000
WAIT_LEAST_MS: Final = 500
WAIT_MOST_MS: Final = 5_000
WAIT_PART: Final = 12
"""Keeping a round may take this part of a round, within these bounds."""

ROWS_A_STEP: Final = 500
STEPS_MAX: Final = 2_000
"""So many rows go at once, and so many times in a row; the rest waits for the next cleaning."""

ROLL_UP_AFTER_MS: Final = 86_400_000

_log = logging.getLogger("balancer.history")


@dataclass(frozen=True, slots=True)
class FinishedRound:
    """A round of a shard that published, was found broken, or waits.

    Attributes:
        shard: its number.
        kind: regular or early.
        outcome: ``published``, ``broken`` or ``waits``.
        planned_at_ms: Unix instant of planning.
        took_ms: from the snapshot to the published pointer.
        sentence: what was done and why.
        document: what was published; None for nothing.
        before: what the pointer named before, newest first.
        reasons: of what was planned.
        members: that are known, for their groups.
    """

    shard: int
    kind: RoundKind
    outcome: str
    planned_at_ms: int
    took_ms: int = 0
    sentence: str = ""
    document: Document | None = None
    before: Sequence[Document] = ()
    reasons: Iterable[Reason] = ()
    members: Iterable[MemberRecord] = ()


class RoundHistory:
    """Keeps rounds in the repository.

    Args:
        repository: keeps them.
        clock: for the instant to which rows are removed.
        metrics: counts what is lost.
        round_ms: length of a round.
    """

    def __init__(
        self, repository: Repository, clock: Clock, metrics: Metrics, round_ms: int
    ) -> None:
        self._repository = repository
        self._clock = clock
        self._metrics = metrics
        self._wait_seconds = min(WAIT_MOST_MS, max(WAIT_LEAST_MS, round_ms // WAIT_PART)) / 1000

    async def keep(self, finished: FinishedRound) -> None:
        """Keep a round; a failure, or waiting for too long, is logged and counted and no more."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                # On a thread: each reason is made when it is looked at, many thousands take long.
                record = await asyncio.to_thread(recorded, finished)
                await self._repository.store_round(record)
        except (BalancerError, TimeoutError) as error:
            told = str(error) or f"it took more than {self._wait_seconds:.1f} s"
            self._lost(finished, told)
        except Exception:  # what has been published stays published
            _log.exception("history crashed", extra={"action": "history_crashed"})
            self._lost(finished, "a fault of its own")

    def _lost(self, finished: FinishedRound, told: str) -> None:
        self._metrics.count(catalogue.HISTORY_LOST)
        _log.warning(
            "shard %d: a round is not kept in history: %s",
            finished.shard,
            told,
            extra={"action": "history_lost"},
        )

    async def clean(self, *, keep_ms: int, keep_details_ms: int) -> int:
        """Sum up and remove what is old, in small steps; return how many rows went.

        Args:
            keep_ms: how long rounds and destinations are kept; older than a day in sums.
            keep_details_ms: how long members are kept after the windows they were planned for.

        Raises:
            UnavailableError: what was done until then stays done.
        """
        now_ms = self._clock.now_ms()
        removed = 0
        for _ in range(STEPS_MAX):
            gone = await self._repository.clean_history(
                roll_up_before_ms=(now_ms - ROLL_UP_AFTER_MS) // SPAN_MS * SPAN_MS,
                before_ms=now_ms - keep_ms,
                details_before_ms=now_ms - keep_details_ms,
                limit=ROWS_A_STEP,
            )
            removed += gone
            if not gone:
                break
        return removed


def recorded(finished: FinishedRound, *, members_max: int = DETAIL_MEMBERS_MAX) -> Recorded:
    """Return what is kept of a round.

    Args:
        finished: the round.
        members_max: so many members of it.
    """
    document = finished.document
    lines = () if document is None else document.destinations
    held = [held_of(line) for line in lines]
    whole = RoundRecord(
        shard=finished.shard,
        epoch=0 if document is None else document.epoch,
        kind=finished.kind,
        outcome=finished.outcome,
        planned_at_ms=finished.planned_at_ms,
        took_ms=finished.took_ms,
        destinations=len(lines),
        entries=sum(len(line.entries) for line in lines),
        holds=sum(found.count for found in held),
        held_points=sum(found.points for found in held),
        sentence=finished.sentence[:SENTENCE_MAX_CHARS],
    )
    if document is None:
        return Recorded(whole)
    reasons = parts_of(finished.reasons)
    before = _newest_lines(finished.before)
    groups = {record.member: record.group for record in finished.members if record.group}
    destinations: list[DestinationRecord] = []
    details: list[DetailRecord] = []
    room = members_max
    for line in lines:
        name = line.terms.destination
        known = before.get(name)
        planned = reasons.get(name)
        if planned is None and known == line:
            continue
        destinations.append(_destination(finished, document, line, planned))
        told = _changes(line, known) if planned is None else planned
        if planned is None and not told:
            continue
        detail = _detail(document, line, told, room, is_whole=planned is not None)
        room -= len(detail.reasons)
        details.append(_with_groups(detail, groups))
    return Recorded(whole, tuple(destinations), tuple(details))


def _newest_lines(documents: Iterable[Document]) -> Mapping[str, DestinationShares]:
    lines: dict[str, DestinationShares] = {}
    for document in sorted(documents, key=lambda known: -known.epoch):
        for line in document.destinations:
            lines.setdefault(line.terms.destination, line)
    return lines


def _destination(
    finished: FinishedRound,
    document: Document,
    line: DestinationShares,
    planned: Sequence[Reason] | None,
) -> DestinationRecord:
    terms = line.terms
    given = total(EntryColumns.of(line.entries).intervals.points())
    held = held_of(line).points
    told = planned if planned is not None else ()
    levels = [level for level in values_of(told, "level_permits") if level is not None]
    gains = [
        max(0, shadow_points - share_points)
        for shadow_points, share_points in zip(
            values_of(told, "shadow_points"), values_of(told, "share_points"), strict=True
        )
        if shadow_points is not None
    ]
    return DestinationRecord(
        destination=terms.destination,
        shard=document.shard,
        epoch=document.epoch,
        kind=finished.kind,
        planned_at_ms=document.published_at_ms,
        from_ms=terms.from_window * terms.window_seconds * 1000,
        until_ms=terms.until_window * terms.window_seconds * 1000,
        window_seconds=terms.window_seconds,
        capacity=terms.capacity,
        members=len(line.entries),
        asked_permits=_sum(planned, "asked_permits"),
        wanted_permits=_sum(planned, "wanted_permits"),
        used_permits=_sum(planned, "used_permits"),
        denied_permits=_sum(planned, "denied_permits"),
        level_permits=max(levels, default=None),
        given_points=given,
        held_points=held,
        free_points=POINTS - given - held,
        shadow_moved_points=sum(gains) if gains else None,
    )


def _sum(planned: Sequence[Reason] | None, name: str) -> int | None:
    return None if planned is None else sum(values_of(planned, name))


def _detail(
    document: Document,
    line: DestinationShares,
    told: Sequence[Reason],
    room: int,
    *,
    is_whole: bool,
) -> DetailRecord:
    kept = told
    if len(told) > room:
        kept = sorted(told, key=lambda reason: -reason.share_points)[: max(0, room)]
    terms = line.terms
    return DetailRecord(
        destination=terms.destination,
        epoch=document.epoch,
        planned_at_ms=document.published_at_ms,
        from_ms=terms.from_window * terms.window_seconds * 1000,
        until_ms=terms.until_window * terms.window_seconds * 1000,
        window_seconds=terms.window_seconds,
        capacity=terms.capacity,
        whole=is_whole,
        reasons=tuple(kept) if isinstance(kept, list) else kept,
        left_out=len(told) - len(kept),
    )


def _with_groups(detail: DetailRecord, groups: Mapping[Member, str]) -> DetailRecord:
    if not groups:
        return detail
    members = zip(
        values_of(detail.reasons, "host"), values_of(detail.reasons, "instance"), strict=True
    )
    own = tuple(map(groups.get, members))
    return replace(detail, groups=own) if any(own) else detail


def _changes(line: DestinationShares, before: DestinationShares | None) -> list[Reason]:
    """Return a reason for each member whose share an early round gave, changed or ended."""
    known = {} if before is None else {entry.member: entry for entry in before.entries}
    have: set[Member] = set()
    told: list[Reason] = []
    for entry in line.entries:
        have.add(entry.member)
        old = known.get(entry.member)
        points = share_points(entry.intervals)
        if old is None:
            told.append(_reason(line, entry, NEWCOMER, points))
        elif old.intervals != entry.intervals:
            # Only of somebody who said goodbye is anything taken away.
            grew = points > share_points(old.intervals)
            told.append(_reason(line, entry, TOPPED_UP if grew else LEFT, points))
    told.extend(
        _reason(line, entry, LEFT, 0) for member, entry in known.items() if member not in have
    )
    return told


def _reason(line: DestinationShares, entry: Entry, rule: str, points: int) -> Reason:
    return Reason(
        destination=line.terms.destination,
        host=entry.host,
        instance=entry.instance,
        rule=rule,
        asked_permits=0,
        used_permits=0,
        denied_permits=0,
        starved_ms=0,
        peak_permits=0,
        expected_permits=0,
        reserved_points=0,
        share_points=points,
        safe_points=entry.safe_points if points else 0,
    )
