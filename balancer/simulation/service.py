"""The simulated balancer: reports in, rounds of the real planner, documents to read.

Decides nothing about shares. Keeps what Kafka, Postgres and S3 keep in the service: reports on
their way, the newest account of each member, published documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from balancer.core.learning import IngestView, Learning, ingest_is_current, next_learning
from balancer.core.memory import Memory
from balancer.core.model import Destination, MemberRecord, Plan, Reason, RoundKind, Snapshot, Usage
from balancer.core.planner import plan
from balancer.core.reservations import promise_until_ms
from balancer.simulation.bounds import bounds_of
from balancer.simulation.scenario import Scenario
from balancer.simulation.worker import DESTINATION
from worker_sdk.wire.distribution import Document, Entry, Member, OwnShare, Terms
from worker_sdk.wire.shares import share_points
from worker_sdk.wire.usage import MemberState, UsageBatch

SHARD: Final = 0
TTL_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class Published:
    """One document as readers find it."""

    document: Document
    terms: Terms
    entries: Mapping[Member, Entry]
    held_points: int

    def own_share(self, member: Member) -> OwnShare:
        """Return what it says to a member."""
        entry = self.entries.get(member)
        document = self.document
        return OwnShare(
            shard=document.shard,
            epoch=document.epoch,
            published_at_ms=document.published_at_ms,
            valid_until_ms=document.valid_until_ms,
            terms=self.terms,
            intervals=() if entry is None else entry.intervals,
            safe_points=0 if entry is None else entry.safe_points,
        )


@dataclass(slots=True)
class SimulatedBalancer:
    """The service as a value.

    Attributes:
        scenario: what is simulated.
        capacity: the destination's capacity now.
        published: every document that may still matter, newest first.
        readable: those that the pointer names, newest first.
        broken: sentences of plans that would have broken an invariant; none are published.
        reasons: of the last regular round.
        largest_sum_points: the most points given and held in any document.
        bounds: absolute window to what may be spent in it, where that may be above its capacity:
            in runs whose capacity changes (rule 10).
    """

    scenario: Scenario
    capacity: int
    published: list[Published] = field(default_factory=list)
    readable: list[Published] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    reasons: Sequence[Reason] = ()
    largest_sum_points: int = 0
    bounds: dict[int, int] = field(default_factory=dict)
    _records: dict[Member, MemberRecord] = field(default_factory=dict)
    _usage: dict[Member, Usage] = field(default_factory=dict)
    _on_their_way: dict[int, list[UsageBatch]] = field(default_factory=dict)
    _memory: Memory = field(default_factory=Memory)
    _learning: Learning = field(default_factory=Learning)
    _early_due: bool = False
    _last_batch_ms: int | None = None

    @property
    def round_ms(self) -> int:
        """Length of a round."""
        return self.scenario.round_windows * self.scenario.window_seconds * 1000

    @property
    def ttl_ms(self) -> int:
        """How long a report keeps its member alive."""
        return TTL_ROUNDS * self.round_ms

    # -- reports

    def send(self, batch: UsageBatch, arrives_in_round: int) -> None:
        """Put a report on its way: it counts from that round of the run on."""
        self._on_their_way.setdefault(arrives_in_round, []).append(batch)

    def receive_due(self, round_number: int, now_ms: int) -> None:
        """Take what has arrived by a round."""
        for number in sorted(number for number in self._on_their_way if number <= round_number):
            # What waited while the balancer was away has the broker's time, as everything has.
            came_ms = now_ms - (round_number - number) * self.round_ms
            for batch in self._on_their_way.pop(number):
                self.receive(batch, came_ms)

    def receive(self, batch: UsageBatch, now_ms: int) -> None:
        """Take a report as ingest does: the newest instant of a member wins, a goodbye is final."""
        self._last_batch_ms = now_ms
        member = (batch.host, batch.instance)
        record = self._records.get(member)
        is_leaving = batch.state is MemberState.LEAVING
        if record is None:
            record = MemberRecord(*member, batch.group, -1, now_ms)
            self._early_due = True
        if record.left_ms is None and (is_leaving or record.instant_ms < batch.sent_at_ms):
            epoch = batch.epochs.get(SHARD, 0)
            is_news = epoch > record.acknowledged_epoch
            self._records[member] = MemberRecord(
                record.host,
                record.instance,
                record.group,
                batch.sent_at_ms,
                now_ms,
                now_ms if is_leaving else None,
                epoch if is_news else record.acknowledged_epoch,
                now_ms if is_news else record.acknowledged_ms,
                batch.spent,
            )
            self._early_due |= is_leaving
        for entry in batch.tuples:
            known = self._usage.get(member)
            if known is None or known.instant_ms < entry.instant_ms:
                self._usage[member] = Usage.of(member, entry, now_ms)

    def forget_everything(self) -> None:
        """Lose the database."""
        self._records.clear()
        self._usage.clear()
        self._memory = Memory()

    # -- rounds

    def ensure_cover(self, window: int) -> bool:
        """Ask for an early round if something was published and nothing covers a window."""
        is_uncovered = bool(self.published) and self.in_force(window) is None
        self._early_due |= is_uncovered
        return is_uncovered

    def early_round(self, now_ms: int) -> None:
        """Run an early round if somebody came or left, or if no document covers the window."""
        if self._early_due:
            self._early_due = False
            self.round(RoundKind.EARLY, now_ms)

    def round(self, kind: RoundKind, now_ms: int) -> None:
        """Plan, and publish what came of it."""
        self._prune(now_ms)
        self._learning = next_learning(
            self._learning,
            current=ingest_is_current(
                IngestView(self._last_batch_ms, 0, caught_up=True), now_ms, self.round_ms
            ),
            ever_published=bool(self.published),
            now_ms=now_ms,
            ttl_ms=self.ttl_ms,
        )
        snapshot = self._snapshot(kind, now_ms)
        outcome = plan(snapshot, self._memory, now_ms)
        if outcome.broken:
            self.broken.extend(outcome.broken)
            return
        if outcome.document is None:
            return
        self._memory = outcome.memory
        if kind is RoundKind.REGULAR:
            self.reasons = outcome.reasons
        if self.scenario.events.capacities:
            self._note_bounds(snapshot, outcome.document)
        self._publish(outcome, outcome.document)

    def _note_bounds(self, snapshot: Snapshot, document: Document) -> None:
        known = {(DESTINATION, window): bound for window, bound in self.bounds.items()}
        for (_, window), bound in bounds_of(document, snapshot, known).items():
            self.bounds[window] = max(bound, self.bounds.get(window, 0))

    def _snapshot(self, kind: RoundKind, now_ms: int) -> Snapshot:
        pointed = tuple(published.document.epoch for published in self.readable)
        newest = self.published[0].document.epoch if self.published else 0
        return Snapshot(
            shard=SHARD,
            kind=kind,
            round_ms=self.round_ms,
            ttl_ms=self.ttl_ms,
            destinations=(
                Destination(
                    DESTINATION,
                    self.capacity,
                    self.scenario.window_seconds,
                    self.scenario.policy,
                ),
            ),
            members=tuple(self._records.values()),
            usage=tuple(self._usage.values()),
            documents=tuple(published.document for published in self.published),
            current_epoch=max(pointed, default=0),
            epoch_floor=newest,
            learning=self._learning.active(now_ms),
            pointed_epochs=pointed,
        )

    def _publish(self, outcome: Plan, document: Document) -> None:
        line = document.destinations[0]
        held = sum(hold.end - hold.start for hold in line.holds)
        given = sum(share_points(entry.intervals) for entry in line.entries)
        self.largest_sum_points = max(self.largest_sum_points, held + given)
        entries = {entry.member: entry for entry in line.entries}
        published = Published(document, line.terms, entries, held)
        self.published.insert(0, published)
        kept = [known for known in self.readable if known.document.epoch in outcome.keep]
        self.readable = [published, *kept]

    def _prune(self, now_ms: int) -> None:
        window_ms = self.scenario.window_seconds * 1000
        readable = {known.document.epoch for known in self.readable}
        self.published = [
            known
            for known in self.published
            if promise_until_ms(known.document, known.terms) > now_ms - window_ms
            or known.document.epoch in readable
        ]
        if len(self._records) > 2 * len(self._usage) or now_ms // self.round_ms % TTL_ROUNDS == 0:
            named = set[Member]().union(*(known.entries for known in self.published))
            gone = [
                member
                for member, record in self._records.items()
                if now_ms - record.seen_ms >= self.ttl_ms and member not in named
            ]
            for member in gone:
                del self._records[member]
        oldest_ms = now_ms - self.ttl_ms
        for member in [m for m, usage in self._usage.items() if usage.seen_ms <= oldest_ms]:
            del self._usage[member]

    # -- reading

    def newest_epoch(self) -> int:
        """Return the newest epoch that the pointer names; 0 for none."""
        return self.readable[0].document.epoch if self.readable else 0

    def read(self, member: Member, after_epoch: int) -> list[OwnShare]:
        """Return what a member finds that has read up to an epoch, newest first.

        What is older than an epoch held is passed over by the engine: it is not even made here.
        """
        return [
            published.own_share(member)
            for published in self.readable
            if published.document.epoch > after_epoch
        ]

    def in_force(self, window: int) -> Published | None:
        """Return the newest document that covers a window (an absolute index); None for none."""
        for known in self.published:
            if known.terms.covers(window):
                return known
        return None

    def shares(self) -> dict[Member, int]:
        """Return each member's points by the newest document."""
        if not self.readable:
            return {}
        entries = self.readable[0].entries
        return {member: share_points(entry.intervals) for member, entry in entries.items()}
