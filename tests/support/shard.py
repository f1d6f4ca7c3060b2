"""The balancer's side of one shard without servers: its rows, its store, and whoever plans it.

The planner is the real one. Around it stand a database that can be lost, a store whose files and
pointer can be lost or set back, and leaders of whom only the newest may record an epoch, while what
earlier ones were about to put still comes. Who does all this is `tests.support.adversary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from balancer.core.learning import wait_for_lost_documents
from balancer.core.model import Destination, MemberRecord, RoundKind, Snapshot, Usage
from balancer.core.planner import plan
from balancer.core.reservations import gives_until_ms
from balancer.simulation.bounds import bounds_of
from tests.support.shard_parts import Leader, Lease, Pointer, Put
from worker_sdk.wire.distribution import Document, Member, Terms, decode_document, encode_document
from worker_sdk.wire.usage import MemberState, UsageBatch

TTL_MS = 30_000
FUTURE_MAX_MS = 10_000
POINTERS_KEPT = 8


class Shard:
    """One shard; instants are the balancer's own, ticks the world's."""

    def __init__(self, number: int, round_ms: int, laxity: str) -> None:
        self.number = number
        self.round_ms = round_ms
        self.is_conditional = laxity != "unconditional puts"
        self.records: dict[Member, MemberRecord] = {}
        self.told: dict[Member, int] = {}
        self.usage: dict[tuple[Member, str], Usage] = {}
        self.lease = Lease()
        self.leader = Leader(0)
        self.learn_until_ms = 0
        self.off_until_ms = 0
        self.files: dict[int, Document] = {}
        self.pointer = Pointer()
        self.pointers: list[Pointer] = [Pointer()]
        self.tag = 0
        self.puts: list[Put] = []
        self.early_due = False
        self.published: list[Document] = []
        self.bounds: dict[tuple[str, int], int] = {}
        self.lengths: dict[str, Terms] = {}
        self.refused: list[str] = []
        self.has_lost_files = False
        self.has_lost_rows = False

    # ------------------------------------------------------------- reports

    def take(self, batch: UsageBatch, now_ms: int) -> None:
        """Store a batch as the database does."""
        member = (batch.host, batch.instance)
        instant_ms, _ = _believed(batch.sent_at_ms, now_ms)
        leaves = batch.state is MemberState.LEAVING
        record = self.records.get(member)
        if record is None:
            self.early_due = True
        if record is None or (
            record.left_ms is None and (leaves or record.instant_ms < instant_ms)
        ):
            before = record or MemberRecord(*member, None, 0, now_ms)
            self.records[member] = replace(
                before,
                instant_ms=instant_ms,
                seen_ms=now_ms,
                left_ms=now_ms if leaves else None,
                spent=batch.spent,
            )
            self.early_due = self.early_due or leaves
        self.acknowledge(member, batch.epochs.get(self.number, 0), now_ms)
        for entry in batch.tuples:
            known = self.usage.get((member, entry.destination))
            instant_ms, back_ms = _believed(entry.instant_ms, now_ms)
            if known is None or instant_ms > known.instant_ms:
                moved = entry._replace(from_ms=entry.from_ms - back_ms, instant_ms=instant_ms)
                self.usage[member, entry.destination] = Usage.of(member, moved, now_ms)

    def acknowledge(self, member: Member, epoch: int, now_ms: int) -> None:
        record = self.records.get(member)
        self.told[member] = max(epoch, self.told.get(member, 0))
        if record is None or not self.is_on_record(epoch):
            return
        if epoch > record.acknowledged_epoch:
            self.records[member] = replace(record, acknowledged_epoch=epoch, acknowledged_ms=now_ms)

    def is_on_record(self, epoch: int) -> bool:
        return epoch <= self.lease.epoch

    def forget_old_rows(self, now_ms: int, keep_ms: int) -> None:
        self.usage = {
            key: known for key, known in self.usage.items() if now_ms - known.seen_ms < TTL_MS
        }
        self.records = {
            member: known
            for member, known in self.records.items()
            if now_ms - known.seen_ms < keep_ms
        }
        self.told = {member: epoch for member, epoch in self.told.items() if member in self.records}

    # ------------------------------------------------------------- faults

    def lose_postgres(self, now_ms: int, *, learns: bool) -> None:
        """Lose every row; the process that plans starts anew, and learns if it knows to."""
        self.has_lost_rows = True
        self.records.clear()
        self.told.clear()
        self.usage.clear()
        self.lease = Lease()
        self.leader = Leader(0)
        if learns:
            self.learn(now_ms)

    def learn(self, now_ms: int) -> None:
        """Plan nothing from reports for a TTL, if anything was published."""
        if self.files:
            self.learn_until_ms = now_ms + TTL_MS

    def take_over(self) -> None:
        """Let another process plan from here on."""
        self.leader = Leader(self.lease.epoch)

    def set_pointer_back(self, by: int) -> None:
        self.pointer = self.pointers[-1 - min(by, len(self.pointers) - 1)]
        self.tag += 1

    def roll_store_back(self, by: int) -> None:
        """Set the whole bucket back: the pointer, and no file is younger."""
        self.set_pointer_back(by)
        newest = max(self.pointer.epochs, default=0)
        self.files = {epoch: kept for epoch, kept in self.files.items() if epoch <= newest}
        self.pointers = [
            pointer for pointer in self.pointers if set(pointer.epochs) <= self.files.keys()
        ] or [Pointer()]

    def lose_file(self, place: int) -> None:
        """Lose for good the newest file, or the next of those that the pointer names."""
        epochs = sorted({max(self.files, default=0), *self.pointer.epochs} & self.files.keys())
        if epochs:
            self.has_lost_files = True
            del self.files[epochs[-1 - min(place, len(epochs) - 1)]]

    def lose_old_file(self, place: int) -> None:
        """Lose for good one of the older files, named or not."""
        epochs = sorted(self.files, reverse=True)[place:]
        if epochs:
            del self.files[epochs[0]]

    def lose_everything(self, *, wait_until_ms: int) -> None:
        """Lose rows and bucket; whoever sets it up again waits until nothing is valid."""
        self.lose_postgres(0, learns=False)
        self.files.clear()
        self.pointer = Pointer()
        self.pointers = [self.pointer]
        self.tag += 1
        self.off_until_ms = wait_until_ms

    # ------------------------------------------------------------- rounds

    def _load(self, now_ms: int) -> tuple[list[Document], bool]:
        """Read the store as its adapter does; say too whether something cannot be read."""
        leader, pointer = self.leader, self.pointer
        oldest = max(leader.unexpired_from, pointer.unexpired_from)
        listed = {epoch for epoch in self.files if epoch >= oldest} | set(pointer.epochs)
        listed |= {epoch for epoch, until_ms in pointer.counting if until_ms > now_ms}
        documents = []
        unreadable: set[int] = set()
        for epoch in sorted(listed - leader.expired, reverse=True):
            document = leader.cached.get(epoch) or self.files.get(epoch)
            if document is None:
                unreadable.add(epoch)
            elif counts_until_ms(document) > now_ms:
                documents.append(document)
            else:
                leader.expired.add(epoch)
        leader.cached = {document.epoch: document for document in documents}
        largest = max([0, *self.files, *pointer.epochs])
        leader.unexpired_from = min([largest, *leader.cached, *unreadable])
        self._mind_losses(largest, unreadable, now_ms)
        return documents, now_ms < leader.wait_until_ms

    def _mind_losses(self, largest: int, unreadable: set[int], now_ms: int) -> None:
        leader = self.leader
        lost = wait_for_lost_documents(
            recorded_epoch=leader.published_epoch,
            largest_stored_epoch=largest,
            recorded_valid_until_ms=self.lease.valid_until_ms,
        )
        leader.published_epoch = min(leader.published_epoch, largest)
        until_ms = lost.until_ms
        if not leader.unreadable.issuperset(unreadable):
            until_ms = self.lease.valid_until_ms
        leader.unreadable = unreadable
        if now_ms < until_ms:
            leader.wait_until_ms = max(leader.wait_until_ms, until_ms)

    def plan(
        self,
        kind: RoundKind,
        destinations: Sequence[Destination],
        *,
        now_ms: int,
        tick: int,
        delays: tuple[int, int] = (0, 0),
    ) -> Sequence[str]:
        """Run a round as the service does; return the destinations to forget."""
        documents, waits = self._load(now_ms)
        if waits or now_ms < self.off_until_ms:
            return ()
        snapshot = Snapshot(
            shard=self.number,
            kind=kind,
            round_ms=self.round_ms,
            ttl_ms=TTL_MS,
            destinations=tuple(destinations),
            members=tuple(self.records.values()),
            usage=tuple(self.usage.values()),
            documents=tuple(documents),
            current_epoch=max(self.pointer.epochs, default=0),
            epoch_floor=max(
                [
                    self.lease.epoch,
                    *self.files,
                    *self.pointer.epochs,
                    *self.told.values(),
                ],
                default=0,
            ),
            learning=now_ms < self.learn_until_ms,
            pointed_epochs=self.pointer.epochs,
        )
        outcome = plan(snapshot, self.lease.memory, now_ms)
        if outcome.broken:  # as the service does: what is in force stays
            self.refused.append(str(outcome.broken))
            return ()
        if outcome.document is None:
            return outcome.forget
        document = decode_document(encode_document(outcome.document))
        self.lease = Lease(
            document.epoch,
            max(self.lease.valid_until_ms, gives_until_ms(document)),
            outcome.memory,
        )
        self.puts.append(
            Put(
                file_tick=tick + delays[0],
                pointer_tick=tick + delays[0] + delays[1],
                tag=self.tag,
                leader=self.leader,
                document=document,
                keep=outcome.keep,
                unexpired_from=self.leader.unexpired_from,
                counting=tuple(
                    (known.epoch, counts_until_ms(known))
                    for known in (document, *self.leader.cached.values())
                ),
                bounds=bounds_of(document, snapshot, self._bounds_in_force(snapshot)),
            )
        )
        return outcome.forget

    def _bounds_in_force(self, snapshot: Snapshot) -> dict[tuple[str, int], int]:
        """Return the bounds of the windows that the newest named document covers."""
        newest = [d for d in snapshot.documents if d.epoch == snapshot.current_epoch]
        keys = [
            (line.terms.destination, line.terms.from_window)
            for document in newest
            for line in document.destinations
        ]
        return {key: self.bounds[key] for key in keys if key in self.bounds}

    def apply_puts(self, tick: int) -> None:
        waiting = []
        for put in self.puts:
            epoch = put.document.epoch
            if not put.has_file and put.file_tick <= tick:
                if self.is_conditional and epoch in self.files:
                    continue  # somebody else's file of that epoch
                put.has_file = True
                self.files[epoch] = put.document
                put.leader.cached[epoch] = put.document
            if not put.has_file or put.pointer_tick > tick:
                waiting.append(put)
            elif put.tag == self.tag or not self.is_conditional:
                self._point(put)
        self.puts = waiting

    def _point(self, put: Put) -> None:
        epoch = put.document.epoch
        self.pointer = Pointer((epoch, *put.keep), put.unexpired_from, put.counting)
        self.pointers = [*self.pointers[-POINTERS_KEPT:], self.pointer]
        self.tag += 1
        put.leader.published_epoch = max(put.leader.published_epoch, epoch)
        self.published.append(put.document)  # from here on somebody may read it
        for line in put.document.destinations:
            self.lengths[line.terms.destination] = line.terms
        for key, bound in put.bounds.items():
            self.bounds[key] = max(bound, self.bounds.get(key, 0))

    def covers(self, name: str, now_ms: int) -> bool:
        """Say whether the newest named documents cover the present window of a destination."""
        return any(
            line.terms.destination == name
            and line.terms.covers(now_ms // (line.terms.window_seconds * 1000))
            for epoch in self.pointer.epochs
            if epoch in self.files
            for line in self.files[epoch].destinations
        )

    # ------------------------------------------------------------- the bound

    def bound(self, name: str, window: int) -> int:
        """The most that may be spent in a window: of the documents that plan it, else of any valid.

        A window that a document covers has the bound that rule 10 gave it then.
        """
        if (name, window) in self.bounds:
            return self.bounds[name, window]
        bound = 0
        for document in self.published[-100:]:
            for line in document.destinations:
                terms = line.terms
                until_ms = document.valid_until_ms + terms.on_expiry.for_ms
                starts_ms = window * terms.window_seconds * 1000
                if (
                    terms.destination == name
                    and terms.from_window <= window
                    and until_ms > starts_ms
                ):
                    bound = max(bound, self.bounds.get((name, terms.from_window), 0))
        return bound


def _believed(instant_ms: int, now_ms: int) -> tuple[int, int]:
    """Return a worker's instant, set back to now if it is far ahead, and by how much it was."""
    believed_ms = now_ms if instant_ms > now_ms + FUTURE_MAX_MS else instant_ms
    return believed_ms, instant_ms - believed_ms


def counts_until_ms(document: Document) -> int:
    """Return until when a document may give somebody permits."""
    return max(
        [
            gives_until_ms(document),
            *(
                line.terms.until_window * line.terms.window_seconds * 1000
                for line in document.destinations
            ),
        ]
    )
