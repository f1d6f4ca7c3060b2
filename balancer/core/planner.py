"""One round of one shard: from what is known to a document, with a reason for every share.

Decides which destinations are planned anew, which are amended for newcomers and leavers, and which
stand as they are; puts demand, strategy, reservations and layout together. Knows no store, clock
or log: `plan` is a function of the snapshot, the memory and the present instant.

Rules named in reasons: ``asked`` (got what it asked), ``foreseen`` (got what its past foretells),
``level`` (limited to the max-min level); with spare capacity above its want ``usual`` (its median
demand), ``expected`` (what came back three times), ``head-room``, ``repeated`` (what came back
twice), ``peak`` and ``kept`` (its share until now); ``minimum`` and ``maximum`` (the policy's),
``reserved`` (kept for what it may still spend), ``silent`` (not heard of for 1.4 rounds), ``even``,
``used`` and ``surplus`` (the other strategies), ``held`` (the capacity was lowered below what is
promised).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from balancer.core import invariants
from balancer.core.destination_plan import plan_destination
from balancer.core.early import Lacking, Newcomers, amend, wants_more
from balancer.core.lending import Wants, wants_of
from balancer.core.lineage import Lineage, lineage_of, still_needed
from balancer.core.lowered import lowered
from balancer.core.matched_entries import MatchedEntries
from balancer.core.memory import Memory, Trails, bounded
from balancer.core.model import Destination, MemberRecord, Plan, Policy, RoundKind, Snapshot
from balancer.core.reasons import ReasonColumns, Reasons
from balancer.core.reservations import Promises, gives_permits, oldest_epochs
from balancer.core.rows import Rows
from balancer.core.usage_columns import UsageColumns, UsageTable
from worker_sdk.wire.distribution import DestinationShares, Document, Member, Terms

LATEST_ROUNDS = 2
"""A window much longer than a round is planned at most so many rounds before it begins."""


@dataclass(slots=True)
class _Round:
    """What the destinations of one round have in common."""

    snapshot: Snapshot
    now_ms: int
    members: dict[Member, MemberRecord]
    gone: frozenset[Member]
    usage: UsageTable
    lineage: Lineage
    trails: dict[str, Trails]
    reasons: list[ReasonColumns]
    faults: list[str]
    changed: bool = False
    _oldest: dict[int, dict[Member, int]] = field(default_factory=dict)
    _rows: Rows = field(default_factory=lambda: Rows.of(()))

    def accounts(self, destination: Destination) -> UsageColumns:
        """Return the live members' accounts of a destination."""
        found = self.usage.parts.get(destination.name)
        if found is None or destination.removed:
            return UsageColumns.of(())
        return found.live(self.now_ms - self.snapshot.ttl_ms, self.gone)

    def rows(self, accounts: UsageColumns) -> Rows:
        """Return the rows of a destination's accounts: the last one's, where they are the same."""
        if self._rows.members != accounts.members:
            self._rows = Rows.of(accounts.members)
        return self._rows

    def oldest(self, start_ms: int) -> dict[Member, int]:
        """Return the oldest epoch that members may still go by in windows from ``start_ms`` on."""
        if start_ms not in self._oldest:
            published_ms = {known.epoch: known.published_at_ms for known in self.snapshot.documents}
            self._oldest[start_ms] = oldest_epochs(self.members, published_ms, start_ms=start_ms)
        return self._oldest[start_ms]


def plan(snapshot: Snapshot, memory: Memory, now_ms: int) -> Plan:
    """Plan one round of one shard.

    Args:
        snapshot: everything known.
        memory: what the last round left.
        now_ms: the present Unix instant.

    Returns:
        The plan. Its document is None where nothing is to be published; where ``broken`` is not
        empty it must not be published.
    """
    lineage = lineage_of(snapshot)
    work = _Round(
        snapshot=snapshot,
        now_ms=now_ms,
        members={(known.host, known.instance): known for known in snapshot.members},
        gone=frozenset(known.member for known in snapshot.members if known.left_ms is not None),
        usage=UsageTable.of(snapshot.usage),
        lineage=lineage,
        trails=dict(memory.trails),
        reasons=[],
        faults=[],
    )
    lines: list[DestinationShares] = []
    forget: list[str] = []
    for destination in sorted(snapshot.destinations, key=lambda known: known.name):
        promises = lineage.promises.get(destination.name, ())
        gives = gives_permits(promises, now_ms)
        if destination.removed and not gives:
            forget.append(destination.name)
            continue
        if gives and _has_other_window(promises, destination):
            continue  # made again with windows of another length: the old ones end first
        line = _line(work, destination)
        if line is not None:
            lines.append(line)
    kept = {destination.name for destination in snapshot.destinations}
    work.trails = {name: known for name, known in work.trails.items() if name in kept}
    if set(lineage.base) != {line.terms.destination for line in lines}:
        work.changed = True
    if not work.changed:
        sentence = f"shard {snapshot.shard}: nothing to publish"
        return Plan(None, (), memory, sentence, forget=tuple(forget))
    document = _document(work, lines)
    broken = tuple(_broken(work, document))
    return Plan(
        document=document,
        reasons=Reasons.of(work.reasons),
        memory=Memory(bounded(work.trails)),
        sentence=_sentence(work, document, broken),
        broken=broken,
        forget=tuple(forget),
        keep=still_needed(document, lineage.named, now_ms),
    )


def _has_other_window(promises: Sequence[Promises], destination: Destination) -> bool:
    return any(known.line.terms.window_seconds != destination.window_seconds for known in promises)


def _line(work: _Round, destination: Destination) -> DestinationShares | None:
    """Return the destination's line in the new document, None where it has none yet."""
    before = work.lineage.base.get(destination.name)
    if before is not None and before.terms.window_seconds != destination.window_seconds:
        before = None  # made again: windows of another length have other numbers
    if before is not None:
        before = work.lineage.carried(before)
    if work.snapshot.kind is RoundKind.EARLY:
        return _early_line(work, destination, before)
    return _regular_line(work, destination, before)


def first_window(present: int, until_window: int) -> int:
    """Return where a regular document begins: where the last one ends, at once if it has ended."""
    return present if until_window <= present else max(present + 1, until_window)


def _regular_line(
    work: _Round, destination: Destination, before: DestinationShares | None
) -> DestinationShares | None:
    window_ms = destination.window_seconds * 1000
    round_ms = work.snapshot.round_ms
    present = work.now_ms // window_ms
    covered_until = work.lineage.until_window(destination.name, destination.window_seconds)
    from_window = first_window(present, covered_until)
    round_windows = max(1, round_ms // window_ms)
    if from_window > present + round_windows:
        return before  # what is in force reaches far enough
    if from_window > present and from_window * window_ms - work.now_ms > LATEST_ROUNDS * round_ms:
        return before  # a long window is planned late, by the newest reports
    windows = (from_window, _round_end(work, from_window, window_ms, round_windows))
    if work.snapshot.learning:
        return _learning_line(work, destination, before, windows)
    work.changed = True
    return _planned(work, destination, before, windows, notes_demand=True)


def _learning_line(
    work: _Round,
    destination: Destination,
    before: DestinationShares | None,
    windows: tuple[int, int],
) -> DestinationShares | None:
    """Repeat the last shares; at once at a lower capacity, but a higher one waits for reports."""
    if before is None:
        return None
    capacity = _capacity(destination)
    is_lowered = capacity < before.terms.capacity
    if not is_lowered and not work.lineage.may_repeat(before):
        return before
    work.changed = True
    terms = replace(
        before.terms,
        capacity=min(capacity, before.terms.capacity),
        from_window=windows[0],
        until_window=windows[1],
    )
    if not is_lowered:
        return replace(before, terms=terms)
    line, faults = lowered(
        before,
        terms,
        work.lineage.promises.get(destination.name, ()),
        work.oldest(windows[0] * terms.window_seconds * 1000),
    )
    work.faults.extend(faults)
    return line


def _early_line(
    work: _Round, destination: Destination, before: DestinationShares | None
) -> DestinationShares | None:
    window_ms = destination.window_seconds * 1000
    round_ms = work.snapshot.round_ms
    present = work.now_ms // window_ms
    if before is None or before.terms.until_window <= present:
        covered_until = work.lineage.until_window(destination.name, destination.window_seconds)
        if work.snapshot.learning or covered_until > present:
            return before
        # To the end of the present round: the next regular document follows.
        until_window = max(present + 1, (work.now_ms // round_ms + 1) * round_ms // window_ms)
        work.changed = True
        windows = (present, until_window)
        return _planned(work, destination, before, windows, notes_demand=False)
    accounts = work.accounts(destination)
    matched = MatchedEntries.of(before.entries, accounts, work.rows(accounts))
    first = max(present, before.terms.from_window)
    others = [
        line
        for line in work.lineage.lines(destination.name, destination.window_seconds)
        if line.terms.from_window < before.terms.until_window and first < line.terms.until_window
    ]
    amended = amend(
        before,
        Newcomers(matched.newcomers(), len(matched.accounts)),
        _lacking(work, destination.policy, before.terms, matched),
        work.members,
        others=others,
        present=present,
    )
    if amended != before:
        work.changed = True
    return amended


def _lacking(
    work: _Round, policy: Policy, terms: Terms, matched: MatchedEntries
) -> Lacking | Wants:
    """Return who is to get more than it has by an early round."""
    spare_points = policy.newcomer_reserve_points
    if work.snapshot.learning:
        return Lacking([], spare_points)
    if policy.lend_points:
        present = work.now_ms // (terms.window_seconds * 1000)
        return wants_of(terms, matched, spare_points=spare_points, present=present)
    return Lacking(wants_more(terms, matched), spare_points)


def _round_end(work: _Round, from_window: int, window_ms: int, round_windows: int) -> int:
    """Return the first window not planned: the end of the next round, or one round's worth."""
    next_round_end_ms = (work.now_ms // work.snapshot.round_ms + 2) * work.snapshot.round_ms
    aligned = next_round_end_ms // window_ms
    if from_window < aligned <= from_window + 2 * round_windows:
        return aligned
    return from_window + round_windows


def _planned(
    work: _Round,
    destination: Destination,
    before: DestinationShares | None,
    windows: tuple[int, int],
    *,
    notes_demand: bool,
) -> DestinationShares:
    accounts = work.accounts(destination)
    outcome = plan_destination(
        destination,
        terms=_terms(destination, windows),
        before=before,
        accounts=accounts,
        rows=work.rows(accounts),
        members=work.members,
        oldest=work.oldest(windows[0] * destination.window_seconds * 1000),
        promises=work.lineage.promises.get(destination.name, ()),
        known=work.trails.get(destination.name) or Trails(),
        round_ms=work.snapshot.round_ms,
        now_ms=work.now_ms,
        notes_demand=notes_demand,
    )
    work.trails[destination.name] = outcome.trails
    work.reasons.append(outcome.reasons)
    work.faults.extend(outcome.faults)
    return outcome.line


def _capacity(destination: Destination) -> int:
    return 0 if destination.removed else destination.capacity


def _terms(destination: Destination, windows: tuple[int, int]) -> Terms:
    policy = destination.policy
    return Terms(
        destination=destination.name,
        capacity=_capacity(destination),
        window_seconds=destination.window_seconds,
        from_window=windows[0],
        until_window=windows[1],
        on_expiry=policy.on_expiry,
        guard_ms=policy.guard_ms,
        pacing=policy.pacing,
        enforce=policy.enforce,
        lends=policy.lend_points > 0,
    )


def _document(work: _Round, lines: list[DestinationShares]) -> Document:
    snapshot = work.snapshot
    known = [document.epoch for document in snapshot.documents]
    policies = {destination.name: destination.policy for destination in snapshot.destinations}
    valid_until_ms = work.now_ms
    for line in lines:
        window_ms = line.terms.window_seconds * 1000
        valid_for_ms = policies[line.terms.destination].valid_for_ms(snapshot.round_ms, window_ms)
        valid_until_ms = max(
            valid_until_ms,
            max(work.now_ms, line.terms.from_window * window_ms) + valid_for_ms,
            line.terms.until_window * window_ms,
        )
    return Document(
        shard=snapshot.shard,
        epoch=max([snapshot.epoch_floor, snapshot.current_epoch, *known]) + 1,
        published_at_ms=work.now_ms,
        valid_until_ms=valid_until_ms,
        destinations=tuple(lines),
    )


def _broken(work: _Round, document: Document) -> list[str]:
    snapshot = work.snapshot
    return [
        *work.faults,
        *invariants.shares_fit(document),
        *invariants.epoch_grows(document, snapshot.documents),
        *invariants.windows_agree(document, work.lineage.named, work.members),
        *invariants.begins_soon(document, work.now_ms, snapshot.round_ms),
        *invariants.valid_over_coverage(document),
        *invariants.readers_take_it(document),
    ]


def _sentence(work: _Round, document: Document, broken: tuple[str, ...]) -> str:
    counts: Mapping[str, int] = {
        "destinations": len(document.destinations),
        "entries": sum(len(line.entries) for line in document.destinations),
        "holds": sum(len(line.holds) for line in document.destinations),
    }
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    manner = "learning, repeats shares" if work.snapshot.learning else work.snapshot.kind.value
    outcome = f"broken: {'; '.join(broken)[:500]}" if broken else "sound"
    return f"shard {work.snapshot.shard}: {manner} round, epoch {document.epoch}, {told}, {outcome}"
