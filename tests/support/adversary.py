"""A world without servers: the real planner and real engines, joined by bytes, under an adversary.

Decides nothing about shares: it loses, delays and repeats messages and reads, pauses and kills,
steps capacities, forgets databases, and counts what is spent in each aligned window. Seeded: a
run is a function of its seed.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from balancer.core.model import (
    Destination,
    MemberRecord,
    Memory,
    Plan,
    Policy,
    RoundKind,
    Snapshot,
    Usage,
)
from balancer.core.planner import plan
from worker_sdk.core.engine import Engine
from worker_sdk.wire.distribution import (
    Document,
    Member,
    Pacing,
    decode_document,
    encode_document,
    read_own_shares,
)
from worker_sdk.wire.usage import MemberState, UsageBatch, decode_batch, encode_batch

NAME = "orders-db"
WINDOW_SECONDS = 10
WINDOW_MS = WINDOW_SECONDS * 1000
ROUND_MS = WINDOW_MS
TTL_MS = 3 * WINDOW_MS
TICKS = 10
START_MS = 1_800_000_000_000
PLAN_TICK = 6


@dataclass
class Chances:
    """How often things go wrong, drawn once a run."""

    read: float
    lost_read: float
    lost_report: float
    spend: float
    missed_round: float
    put_delay: tuple[int, ...]
    join: float
    leave: float
    crash: float
    pause: float
    capacity: float
    lose_postgres: float
    new_demand: float

    @classmethod
    def drawn(cls, rng: random.Random, *, capacity_changes: bool) -> Chances:
        return cls(
            read=rng.choice([0.1, 0.3, 0.8]),
            lost_read=rng.choice([0, 0.2, 0.6]),
            lost_report=rng.choice([0, 0.2, 0.6]),
            spend=rng.choice([0.3, 0.9]),
            missed_round=rng.choice([0, 0.1, 0.5]),
            put_delay=rng.choice([(0,), (0, 0, 1, 3), (0, 2, 9, 15)]),
            join=rng.choice([0, 0.01, 0.05]),
            leave=rng.choice([0, 0.01, 0.05]),
            crash=rng.choice([0, 0.01, 0.05]),
            pause=rng.choice([0, 0.01, 0.05]),
            capacity=rng.choice([0.01, 0.05]) if capacity_changes else 0,
            lose_postgres=rng.choice([0, 0.003, 0.015]),
            new_demand=rng.choice([0.02, 0.2]),
        )

    @classmethod
    def calm(cls) -> Chances:
        return cls(1, 0, 0, 1, 0, (0,), 0, 0, 0, 0, 0, 0, 0)


@dataclass
class Worker:
    """One member as it runs."""

    engine: Engine
    skew_ms: int
    demand: int
    alive: bool = True
    paused: bool = False
    spent: Counter[int] = field(default_factory=Counter)


class OverrunError(AssertionError):
    """More was spent in a window than may be."""


class World:
    """Planner, members, database, store, and what connects them."""

    def __init__(self, seed: int, *, members: int, skewed: bool, capacity: int | None = None):
        self.rng = random.Random(seed)
        self.tick_number = 0
        self.capacity = (
            capacity
            if capacity is not None
            else self.rng.choice([1, 2, 3, 5, 7, 10, 20, 50, 100, 1000])
        )
        self.skew_max_ms = 200 if skewed else 0
        self.policy = Policy(
            newcomer_reserve_points=self.rng.choice([0, 10_000_000, 50_000_000]),
            safe_permille=self.rng.choice([1000, 900, 500]),
            valid_for_seconds=self.rng.choice([12, 20, 35, 60]),
            guard_ms=2 * self.skew_max_ms,
            pacing=Pacing.WINDOW,
        )
        self.workers: list[Worker] = []
        self.messages: list[tuple[int, bytes]] = []
        self.records: dict[Member, MemberRecord] = {}
        self.usage: dict[Member, Usage] = {}
        self.memory = Memory()
        self.files: dict[int, bytes] = {}
        self.pointed: list[int] = []
        self.tag = 0
        self.fence = 0
        self.learn_until_ms = 0
        self.puts: list[tuple[int, int, Document, bytes]] = []
        self.spent: Counter[int] = Counter()
        self.early_due = False
        self.instances = 0
        self.published: list[Document] = []
        for number in range(members):
            self.join(f"host-{number}")

    # ------------------------------------------------------------- time

    @property
    def now_ms(self) -> int:
        return START_MS + self.tick_number * 1000 + 500

    @property
    def window(self) -> int:
        return self.now_ms // WINDOW_MS

    # ------------------------------------------------------------- members

    def join(self, host: str) -> None:
        self.instances += 1
        engine = Engine(host, f"i{self.instances}", [NAME])
        skew = self.rng.randint(-self.skew_max_ms, self.skew_max_ms)
        worker = Worker(engine, skew, self.rng.choice([0, 1, 5, 50, 2000]))
        self.workers.append(worker)
        self.send(engine.hello(self.now_ms + skew, self.now_ms), lost=False)

    def send(self, batch: UsageBatch, *, lost: bool) -> None:
        body = encode_batch(batch)
        if not lost:
            self.messages.append((self.tick_number + self.rng.choice([0, 0, 0, 1, 2, 5]), body))
        if self.rng.random() < 0.1:
            self.messages.append((self.tick_number + self.rng.choice([1, 5, 20]), body))

    def report(self, worker: Worker, *, lost: bool) -> None:
        now_ms = self.now_ms + worker.skew_ms
        batch = worker.engine.drain(now_ms, self.now_ms, MemberState.RUNNING)
        if batch is not None:
            self.send(batch, lost=lost)

    def leave(self, worker: Worker, *, lost: bool) -> None:
        worker.alive = False
        goodbye = worker.engine.goodbye(self.now_ms + worker.skew_ms, self.now_ms)
        self.send(goodbye, lost=lost)

    def spend(self, worker: Worker, *, most: int) -> None:
        now_ms = self.now_ms + worker.skew_ms
        left = worker.engine.allowance(NAME, now_ms).left_permits
        amount = min(left, most)
        if amount <= 0:
            if worker.demand:
                worker.engine.try_acquire(NAME, worker.demand, now_ms)
            return
        assert worker.engine.try_acquire(NAME, amount, now_ms)
        worker.spent[self.window] += amount
        self.spent[self.window] += amount
        if amount < worker.demand:
            worker.engine.try_acquire(NAME, worker.demand, now_ms)
        if self.spent[self.window] > self.bound(self.window):
            raise OverrunError(
                f"window {self.window}: {self.spent[self.window]} of {self.bound(self.window)}"
            )

    def bound(self, window: int) -> int:
        """The largest capacity of a document that may count in the window."""
        start_ms = window * WINDOW_MS
        capacities = [
            document.destinations[0].terms.capacity
            for document in self.published
            if document.destinations
            and document.destinations[0].terms.from_window <= window
            and document.valid_until_ms > start_ms
        ]
        return max(capacities, default=0)

    # ------------------------------------------------------------- ingest

    def deliver(self) -> None:
        later = []
        for due, body in self.messages:
            if due > self.tick_number:
                later.append((due, body))
            else:
                self.take(decode_batch(body).batch)
        self.messages = later

    def take(self, batch: UsageBatch) -> None:
        member = (batch.host, batch.instance)
        record = self.records.get(member)
        if record is not None and record.left_ms is not None:
            return
        now_ms = self.now_ms
        if record is None:
            record = MemberRecord(*member, None, 0, now_ms)
            self.early_due = True
        epoch = batch.epochs.get(0, 0)
        if epoch > record.acknowledged_epoch:
            record = replace(record, acknowledged_epoch=epoch, acknowledged_ms=now_ms)
        for entry in batch.tuples:
            known = self.usage.get(member)
            if known is None or entry.instant_ms > known.instant_ms:
                self.usage[member] = Usage(
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
        record = replace(record, seen_ms=now_ms)
        if batch.state is MemberState.LEAVING:
            record = replace(record, left_ms=now_ms, spent=batch.spent)
            self.early_due = True
        self.records[member] = record

    def lose_postgres(self) -> None:
        self.records.clear()
        self.usage.clear()
        self.memory = Memory()
        self.fence = 0
        if self.files:
            self.learn_until_ms = self.now_ms + TTL_MS

    # ------------------------------------------------------------- rounds

    def snapshot(self, kind: RoundKind) -> Snapshot:
        documents = [decode_document(self.files[epoch]) for epoch in sorted(self.files)[::-1]]
        live = [
            document
            for document in documents
            if document.valid_until_ms > self.now_ms - 3 * WINDOW_MS
        ]
        return Snapshot(
            shard=0,
            kind=kind,
            round_ms=ROUND_MS,
            ttl_ms=TTL_MS,
            destinations=(Destination(NAME, self.capacity, WINDOW_SECONDS, self.policy),),
            members=tuple(self.records.values()),
            usage=tuple(
                account for account in self.usage.values() if self.now_ms - account.seen_ms < TTL_MS
            ),
            documents=tuple(live),
            current_epoch=self.pointed[0] if self.pointed else 0,
            epoch_floor=max([self.fence, *self.files, *self.reported()], default=0),
            learning=self.now_ms < self.learn_until_ms,
        )

    def reported(self) -> list[int]:
        return [record.acknowledged_epoch for record in self.records.values()]

    def run_round(self, kind: RoundKind, delay_ticks: int) -> Plan:
        outcome = plan(self.snapshot(kind), self.memory, self.now_ms)
        assert not outcome.broken, outcome.broken
        if outcome.document is not None:
            self.memory = outcome.memory
            self.fence = max(self.fence, outcome.document.epoch)
            body = encode_document(outcome.document)
            self.puts.append((self.tick_number + delay_ticks, self.tag, outcome.document, body))
        return outcome

    def apply_puts(self) -> None:
        later = []
        for due, tag, document, body in self.puts:
            if due > self.tick_number:
                later.append((due, tag, document, body))
            elif tag == self.tag and document.epoch not in self.files:
                self.files[document.epoch] = body
                self.pointed = [document.epoch, *self.pointed][:8]
                self.tag += 1
                self.published.append(document)
        self.puts = later

    def read(self, worker: Worker, *, lag: int) -> None:
        now_ms = self.now_ms + worker.skew_ms
        for epoch in reversed(self.pointed[lag : lag + 4]):
            shares = read_own_shares(self.files[epoch], worker.engine.host, worker.engine.instance)
            worker.engine.offer(shares, now_ms)

    # ------------------------------------------------------------- a tick

    def tick(self, chances: Chances) -> None:
        rng = self.rng
        self.deliver()
        self.apply_puts()
        if self.tick_number % TICKS == PLAN_TICK:
            if rng.random() >= chances.missed_round:
                self.run_round(RoundKind.REGULAR, rng.choice(chances.put_delay))
        elif self.early_due and rng.random() >= chances.missed_round:
            self.early_due = False
            self.run_round(RoundKind.EARLY, rng.choice(chances.put_delay))
        self.apply_puts()
        self.disturb(chances)
        for number, worker in enumerate(self.workers):
            if not worker.alive or worker.paused:
                continue
            if rng.random() < chances.read and rng.random() >= chances.lost_read:
                self.read(worker, lag=0 if chances.read == 1 else rng.choice([0, 0, 0, 1, 2]))
            if rng.random() < chances.spend:
                self.spend(worker, most=worker.demand)
            if (self.tick_number + number * 3) % TICKS == 0:
                self.report(worker, lost=rng.random() < chances.lost_report)
        self.tick_number += 1

    def disturb(self, chances: Chances) -> None:
        rng = self.rng
        alive = [worker for worker in self.workers if worker.alive]
        if rng.random() < chances.join and len(alive) < 10:
            self.join(f"host-{rng.randrange(8)}")  # names clash on purpose
        if alive and rng.random() < chances.leave:
            self.leave(rng.choice(alive), lost=rng.random() < 0.3)
        if alive and rng.random() < chances.crash:
            rng.choice(alive).alive = False
        if alive and rng.random() < chances.pause:
            worker = rng.choice(alive)
            worker.paused = not worker.paused
        if rng.random() < chances.capacity:
            self.capacity = rng.choice([0, 1, 2, 5, 10, 50, 100, 1000])
        if rng.random() < chances.lose_postgres:
            self.lose_postgres()
        for worker in alive:
            if rng.random() < chances.new_demand:
                worker.demand = rng.choice([0, 1, 5, 50, 2000])
