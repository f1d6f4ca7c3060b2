"""A world without servers: the real planner and real engines, joined by bytes.

Members, a log of messages, a database, a store with a pointer, and a leader that plans; what is
spent in each aligned window is counted and held against its bound (rule 10). Who loses, delays and
kills is `tests.support.adversary`. Time is in ticks of a second; a window has ten or more.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from balancer.core.learning import wait_for_lost_documents
from balancer.core.memory import Memory
from balancer.core.model import Destination, MemberRecord, Policy, RoundKind, Snapshot, Usage
from balancer.core.planner import plan
from balancer.simulation.bounds import bounds_of
from worker_sdk.core.engine import Engine
from worker_sdk.wire.distribution import (
    Document,
    Member,
    OwnShare,
    decode_document,
    encode_document,
    read_own_shares,
)
from worker_sdk.wire.usage import MemberState, UsageBatch, decode_batch, encode_batch

TICK_MS = 1000
WINDOW_TICKS = 10
WINDOW_SECONDS = 10
TTL_MS = 30_000
START_MS = 1_800_000_000_000


class OverrunError(AssertionError):
    """More was spent in a window than may be."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What stays the same in one run.

    ``laxity`` names a rule of the world itself that is left out, to see that it is needed:
    ``unconditional puts``, ``serving acknowledges``, ``goodbye without the window``.
    """

    destinations: tuple[tuple[str, int], ...]  # name, window_seconds
    policy: Policy
    round_windows: int
    skew_max_ms: int
    planner_skew_ms: int
    laxity: str = ""

    @property
    def round_ms(self) -> int:
        return self.round_windows * WINDOW_SECONDS * 1000


@dataclass(slots=True)
class Worker:
    """One member as it runs."""

    engine: Engine
    skew_ms: int
    demand: int
    number: int
    alive: bool = True
    paused: bool = False
    spent: Counter[tuple[str, int]] = field(default_factory=Counter)


@dataclass(slots=True)
class Put:
    """A document on its way: its file is put first, the pointer two ticks or more later."""

    file_tick: int
    pointer_tick: int
    tag: int
    document: Document
    keep: tuple[int, ...]
    bounds: dict[tuple[str, int], int]
    has_file: bool = False


class World:
    """Everything that runs; each method is one thing that can happen."""

    def __init__(self, setup: Setup, capacities: dict[str, int], rng: random.Random) -> None:
        self.setup = setup
        self.capacities = capacities
        self.rng = rng
        self.tick_number = 0
        self.workers: list[Worker] = []
        self.messages: list[tuple[int, bytes]] = []
        self.records: dict[Member, MemberRecord] = {}
        self.usage: dict[tuple[Member, str], Usage] = {}
        self.memory = Memory()
        self.fence = 0
        self.learn_until_ms = 0
        self.files: dict[int, Document] = {}
        self.pointers: list[tuple[int, ...]] = [()]
        self.pointed: tuple[int, ...] = ()
        self.tag = 0
        self.confirmed_epoch = 0
        self.confirmed_until_ms = 0
        self.puts: list[Put] = []
        self.early_due = False
        self.published: list[Document] = []
        self.bounds: dict[tuple[str, int], int] = {}
        self.spent: Counter[tuple[str, int]] = Counter()
        self._own: dict[tuple[int, Member], tuple[OwnShare, ...]] = {}

    # ------------------------------------------------------------- time

    @property
    def now_ms(self) -> int:
        return START_MS + self.tick_number * TICK_MS

    @property
    def planner_now_ms(self) -> int:
        return self.now_ms + self.setup.planner_skew_ms

    def window(self, name: str) -> int:
        return self.now_ms // (dict(self.setup.destinations)[name] * 1000)

    # ------------------------------------------------------------- members

    def join(self, host: str, demand: int) -> Worker:
        number = len(self.workers) + 1
        names = [name for name, _ in self.setup.destinations]
        skew_ms = self.rng.randint(-self.setup.skew_max_ms, self.setup.skew_max_ms)
        worker = Worker(Engine(host, f"i{number}", names), skew_ms, demand, number)
        self.workers.append(worker)
        self.send(worker.engine.hello(self.now_ms + skew_ms, self.now_ms))
        return worker

    def send(
        self, batch: UsageBatch, *, delay_ticks: int = 0, again_ticks: int | None = None
    ) -> None:
        body = encode_batch(batch)
        self.messages.append((self.tick_number + delay_ticks, body))
        if again_ticks is not None:
            self.messages.append((self.tick_number + again_ticks, body))

    def report(self, worker: Worker) -> UsageBatch | None:
        return worker.engine.drain(self.now_ms + worker.skew_ms, self.now_ms, MemberState.RUNNING)

    def leave(self, worker: Worker) -> UsageBatch:
        worker.alive = False
        batch = worker.engine.goodbye(self.now_ms + worker.skew_ms, self.now_ms)
        if self.setup.laxity == "goodbye without the window":
            batch = replace(
                batch, spent={name: (window, 0) for name, (window, _) in batch.spent.items()}
            )
        return batch

    def spend(self, worker: Worker, name: str, most: int) -> None:
        """Spend as much as the engine lets, at most so much; what it refuses counts as denied."""
        now_ms = self.now_ms + worker.skew_ms
        ledger = worker.engine.account(name).ledger
        left, step = most, most
        while step and left:
            amount = min(step, left)
            if ledger.take(amount, now_ms):
                left -= amount
            else:
                step //= 2
        if left:
            worker.engine.try_acquire(name, left, now_ms)
        key = (name, self.window(name))
        worker.spent[key] += most - left
        self.spent[key] += most - left
        if self.spent[key] > self.bound(*key):
            raise OverrunError(f"{key}: {self.spent[key]} spent of {self.bound(*key)}")

    def read(self, worker: Worker, *, lag: int = 0, lost: bool = False) -> None:
        """Read what the pointer names; a lagging replica gives the pointer of some puts ago."""
        pointed = self.pointed if not lag else self.pointers[-1 - min(lag, len(self.pointers) - 1)]
        if self.setup.laxity == "serving acknowledges" and pointed:
            self.acknowledge((worker.engine.host, worker.engine.instance), pointed[0])
        if lost:
            return
        shares: list[OwnShare] = []
        for epoch in pointed:
            if epoch in self.files:
                shares.extend(self._own_shares(epoch, worker))
        worker.engine.offer(shares, self.now_ms + worker.skew_ms)

    def _own_shares(self, epoch: int, worker: Worker) -> tuple[OwnShare, ...]:
        member = (worker.engine.host, worker.engine.instance)
        if (epoch, member) not in self._own:
            body = encode_document(self.files[epoch])
            self._own[epoch, member] = tuple(read_own_shares(body, *member))
        return self._own[epoch, member]

    # ------------------------------------------------------------- ingest

    def deliver(self) -> None:
        due = [body for tick, body in self.messages if tick <= self.tick_number]
        self.messages = [item for item in self.messages if item[0] > self.tick_number]
        for body in due:
            self.take(decode_batch(body).batch)

    def take(self, batch: UsageBatch) -> None:
        member = (batch.host, batch.instance)
        now_ms = self.planner_now_ms
        record = self.records.get(member)
        if record is None:
            record = MemberRecord(*member, None, 0, now_ms)
            self.early_due = True
        if record.left_ms is not None:
            return
        self.records[member] = replace(record, seen_ms=now_ms)
        self.acknowledge(member, batch.epochs.get(0, 0))
        for entry in batch.tuples:
            key = (member, entry.destination)
            known = self.usage.get(key)
            if known is None or entry.instant_ms > known.instant_ms:
                self.usage[key] = Usage(
                    *member,
                    entry.destination,
                    entry.from_ms,
                    entry.instant_ms,
                    entry.epoch,
                    entry.granted,
                    entry.used,
                    entry.denied,
                    entry.starved_ms,
                    entry.busy_ms,
                    now_ms,
                )
        if batch.state is MemberState.LEAVING:
            record = self.records[member]
            self.records[member] = replace(record, left_ms=now_ms, spent=batch.spent)
            self.early_due = True

    def acknowledge(self, member: Member, epoch: int) -> None:
        record = self.records.get(member)
        if record is not None and epoch > record.acknowledged_epoch:
            self.records[member] = replace(
                record, acknowledged_epoch=epoch, acknowledged_ms=self.planner_now_ms
            )

    # ------------------------------------------------------------- faults of the balancer's parts

    def lose_postgres(self) -> None:
        self.records.clear()
        self.usage.clear()
        self.memory = Memory()
        self.fence = 0
        if self.files:
            self.learn_until_ms = self.planner_now_ms + TTL_MS

    def set_pointer_back(self, by: int) -> None:
        self.pointed = self.pointers[-1 - min(by, len(self.pointers) - 1)]
        self.tag += 1

    def lose_newest_file(self) -> None:
        if self.files:
            del self.files[max(self.files)]

    # ------------------------------------------------------------- rounds

    def snapshot(self, kind: RoundKind) -> Snapshot:
        now_ms = self.planner_now_ms
        extension_ms = self.setup.policy.on_expiry.for_ms
        known = [self.files[epoch] for epoch in sorted(self.files, reverse=True)]
        return Snapshot(
            shard=0,
            kind=kind,
            round_ms=self.setup.round_ms,
            ttl_ms=TTL_MS,
            destinations=tuple(
                Destination(name, self.capacities[name], seconds, self.setup.policy)
                for name, seconds in self.setup.destinations
            ),
            members=tuple(self.records.values()),
            usage=tuple(self.usage.values()),
            documents=tuple(
                document
                for document in known
                if document.valid_until_ms + extension_ms > now_ms - WINDOW_SECONDS * 1000
            ),
            current_epoch=max(self.pointed, default=0),
            epoch_floor=max(
                [self.fence, *self.files, *(r.acknowledged_epoch for r in self.records.values())],
                default=0,
            ),
            learning=now_ms < self.learn_until_ms,
            pointed_epochs=self.pointed,
        )

    def plan(self, kind: RoundKind, *, file_delay: int = 0, pointer_delay: int = 0) -> None:
        """Run a round as the service does: wait for lost documents, plan, record, put."""
        lost = wait_for_lost_documents(
            recorded_epoch=self.confirmed_epoch,
            largest_stored_epoch=max(self.files, default=0),
            recorded_valid_until_ms=self.confirmed_until_ms,
        )
        if lost.active(self.planner_now_ms):
            return
        snapshot = self.snapshot(kind)
        outcome = plan(snapshot, self.memory, self.planner_now_ms)
        assert not outcome.broken, outcome.broken
        if outcome.document is None:
            return
        self.memory = outcome.memory
        self.fence = max(self.fence, outcome.document.epoch)
        document = decode_document(encode_document(outcome.document))
        file_tick = self.tick_number + file_delay
        self.puts.append(
            Put(
                file_tick=file_tick,
                pointer_tick=file_tick + pointer_delay,
                tag=self.tag,
                document=document,
                keep=outcome.keep,
                bounds=bounds_of(document, snapshot, self.bounds),
            )
        )

    def apply_puts(self) -> None:
        waiting = []
        conditional = self.setup.laxity != "unconditional puts"
        for put in self.puts:
            epoch = put.document.epoch
            if not put.has_file and put.file_tick <= self.tick_number:
                if conditional and epoch in self.files:
                    continue
                self._store(put)
            if not put.has_file or put.pointer_tick > self.tick_number:
                waiting.append(put)
            elif put.tag == self.tag or not conditional:
                self.pointed = (epoch, *put.keep)
                self.pointers = [*self.pointers[-8:], self.pointed]
                self.tag += 1
                self.published.append(put.document)  # from here on somebody may read it
                for key, bound in put.bounds.items():
                    self.bounds[key] = max(bound, self.bounds.get(key, 0))
        self.puts = waiting

    def _store(self, put: Put) -> None:
        document = put.document
        put.has_file = True
        self.files[document.epoch] = document
        extension_ms = self.setup.policy.on_expiry.for_ms
        self.confirmed_epoch = max(self.confirmed_epoch, document.epoch)
        self.confirmed_until_ms = max(
            self.confirmed_until_ms, document.valid_until_ms + extension_ms
        )

    # ------------------------------------------------------------- the bound

    def bound(self, name: str, window: int) -> int:
        """The most that may be spent in a window: of the documents that plan it, else of any valid.

        A window that a document covers has the bound that rule 10 gave it then.
        """
        if (name, window) in self.bounds:
            return self.bounds[name, window]
        bound = 0
        for document in self.published:
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
