"""A world without servers: the real planner and real engines, joined by bytes.

Members, a log of messages, and shards, each planned by itself; what is spent in each aligned window
is counted and held against its bound (rule 10). Who loses, delays and kills is
`tests.support.adversary`. Time is in ticks of a second; a window has ten or more.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from balancer.core.model import Destination, Policy, RoundKind
from tests.support.shard import TTL_MS, Shard, counts_until_ms
from worker_sdk.core.engine import Engine
from worker_sdk.core.ladder import Mode
from worker_sdk.wire.distribution import OwnShare, Terms, encode_document, read_own_shares
from worker_sdk.wire.pointer import shard_of
from worker_sdk.wire.shares import safe_permits, share_permits
from worker_sdk.wire.usage import MemberState, UsageBatch, decode_batch, encode_batch

TICK_MS = 1000
WINDOW_TICKS = 10
WINDOW_SECONDS = 10
KEEP_MS = 4 * TTL_MS + 100_000
START_MS = 1_800_000_000_000


class OverrunError(AssertionError):
    """More was spent in a window than may be."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What stays the same in one run.

    ``laxity`` names a rule of the world itself that is left out, to see that it is needed:
    ``unconditional puts``, ``serving acknowledges``, ``goodbye without the window``, ``a total
    loss is not waited for``.
    """

    destinations: tuple[tuple[str, int], ...]  # name, window_seconds
    policy: Policy
    round_windows: int
    skew_max_ms: int
    planner_skew_ms: int
    laxity: str = ""
    shards: int = 1

    @property
    def round_ms(self) -> int:
        return self.round_windows * WINDOW_SECONDS * 1000


@dataclass(slots=True)
class Worker:
    """One member as it runs; ``skew_ms`` is by how much its wall clock is wrong."""

    engine: Engine
    skew_ms: int
    demand: int
    number: int
    alive: bool = True
    paused: bool = False
    spent: Counter[tuple[str, int]] = field(default_factory=Counter)
    left_tick: int = -1000
    astray: Counter[tuple[str, int]] = field(default_factory=Counter)
    held: dict[tuple[str, int], OwnShare] = field(default_factory=dict)


class World:
    """Everything that runs; each method is one thing that can happen."""

    def __init__(self, setup: Setup, capacities: dict[str, int], rng: random.Random) -> None:
        self.setup = setup
        self.rng = rng
        self.tick_number = 0
        self.planner_skew_ms = setup.planner_skew_ms
        self.was_ahead = False
        self.behind_ms = 0
        self.workers: list[Worker] = []
        self.messages: list[tuple[int, bytes]] = []
        self.shards = [
            Shard(number, setup.round_ms, setup.laxity) for number in range(setup.shards)
        ]
        self.destinations = {
            name: Destination(name, capacities[name], seconds, setup.policy)
            for name, seconds in setup.destinations
        }
        self.spent: Counter[tuple[str, int]] = Counter()
        self.uncovered: Counter[tuple[str, int]] = Counter()
        self.to_make: list[tuple[int, str, int, int]] = []
        self._own: dict[tuple[int, Any], tuple[OwnShare, ...]] = {}
        self._documents: list[object] = []

    # ------------------------------------------------------------- time

    @property
    def now_ms(self) -> int:
        return START_MS + self.tick_number * TICK_MS

    @property
    def planner_now_ms(self) -> int:
        return self.now_ms + self.planner_skew_ms

    def window(self, name: str) -> int:
        return self.now_ms // (self.destinations[name].window_seconds * 1000)

    def window_ticks(self, name: str) -> int:
        known = self.destinations.get(name)
        return known.window_seconds if known else 3 * WINDOW_TICKS

    def shard(self, name: str) -> Shard:
        return self.shards[shard_of(name, len(self.shards))]

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

    def send_lie(self, worker: Worker, epochs_ahead: int) -> None:
        """Let a report name epochs that were never published, or not yet."""
        batch = self.report(worker)
        if batch is not None:
            lies = {
                shard.number: max([0, *shard.files, shard.lease.epoch]) + epochs_ahead
                for shard in self.shards
            }
            self.send(replace(batch, epochs=lies))

    def leave(self, worker: Worker) -> UsageBatch:
        worker.alive = False
        worker.left_tick = self.tick_number
        batch = worker.engine.goodbye(self.now_ms + worker.skew_ms, self.now_ms)
        if self.setup.laxity == "goodbye without the window":
            batch = replace(
                batch, spent={name: (window, 0) for name, (window, _) in batch.spent.items()}
            )
        for name, _ in self.setup.destinations:  # whoever still holds the client gets nothing
            self.spend(worker, name, max(1, worker.demand))
        return batch

    def spend(self, worker: Worker, name: str, most: int) -> None:
        """Spend as much as the engine lets, at most so much; what it refuses counts as denied.

        Raises:
            OverrunError: if more was spent in a window than may be. What a clock lets through that
                shows a wrong window counts apart: each such window gives the member at most what
                it gives anyhow.
        """
        now_ms = self.now_ms + worker.skew_ms
        ledger = worker.engine.account(name).ledger
        taken = ledger.take_up_to(most, now_ms)
        if taken < most:
            worker.engine.try_acquire(name, most - taken, now_ms)
        if not taken:
            return
        share = worker.held[name, ledger.epoch_at(now_ms)]
        window_ms = share.terms.window_seconds * 1000
        other = self.shard(name).lengths.get(name, share.terms)
        if other.window_seconds != share.terms.window_seconds and (
            other.from_window * other.window_seconds * 1000 <= self.now_ms
        ):
            raise OverrunError(f"{name}: windows of two lengths in force at a time")
        own, true = now_ms // window_ms, self.now_ms // window_ms
        if own != true and abs(worker.skew_ms) > self.setup.skew_max_ms:
            worker.astray[name, own] += taken
            if worker.astray[name, own] > self._most_given(worker, share.terms, own):
                raise OverrunError(f"{name}: a wrong clock gave more than its own share")
            return
        worker.spent[name, true] += taken
        self.spent[name, true] += taken
        if ledger._standing is not None and ledger._standing.mode is not Mode.FRESH:
            self.uncovered[name, true] += taken
        bound = self.shard(name).bound(name, true) + self._released_late(name, true)
        if self.spent[name, true] > bound:
            raise OverrunError(f"{name}, {true}: {self.spent[name, true]} spent of {bound}")

    def _released_late(self, name: str, window: int) -> int:
        """Return what a planner whose clock is behind may add to a window's bound.

        It takes acknowledgements and goodbyes for earlier than they were, and gives away once more
        what was spent without a document that covers the window, or by those who left since.
        """
        if not self.behind_ms:
            return 0
        since = self.tick_number - self.behind_ms // TICK_MS - self.window_ticks(name)
        return self.uncovered[name, window] + sum(
            worker.spent[name, window] for worker in self.workers if worker.left_tick > since
        )

    @staticmethod
    def _most_given(worker: Worker, terms: Terms, window: int) -> int:
        """Return the most that any document which a member read gives it in a window."""
        shares = [
            share
            for (name, _), share in worker.held.items()
            if name == terms.destination and share.terms.window_seconds == terms.window_seconds
        ]
        return max(
            share_permits(share.terms.capacity, share.intervals, window)
            if share.terms.covers(window)
            else safe_permits(share.terms.capacity, share.safe_points)
            for share in shares
        )

    def read(self, worker: Worker, shard: Shard, *, lag: int = 0, lost: bool = False) -> None:
        """Read what a pointer names; a lagging replica gives the pointer of some puts ago."""
        pointer = shard.pointer
        if lag:
            pointer = shard.pointers[-1 - min(lag, len(shard.pointers) - 1)]
        if self.setup.laxity == "serving acknowledges" and pointer.epochs:
            member = (worker.engine.host, worker.engine.instance)
            shard.acknowledge(member, pointer.epochs[0], self.planner_now_ms)
        if lost:
            return
        shares: list[OwnShare] = []
        for epoch in pointer.epochs:
            if epoch in shard.files:
                shares.extend(self._own_shares(shard, epoch, worker))
        worker.engine.offer(shares, self.now_ms + worker.skew_ms)
        for share in shares:
            worker.held.setdefault((share.terms.destination, share.epoch), share)

    def _own_shares(self, shard: Shard, epoch: int, worker: Worker) -> tuple[OwnShare, ...]:
        member = (worker.engine.host, worker.engine.instance)
        document = shard.files[epoch]
        key = (id(document), member)
        if key not in self._own:
            self._documents.append(document)  # kept, so that its id stays its own
            self._own[key] = tuple(read_own_shares(encode_document(document), *member))
        return self._own[key]

    # ------------------------------------------------------------- destinations

    def set_capacity(self, name: str, capacity: int) -> None:
        if name in self.destinations:
            self.destinations[name] = replace(self.destinations[name], capacity=capacity)

    def change_policy(self, name: str, **values: Any) -> None:
        known = self.destinations.get(name)
        if known is not None:
            self.destinations[name] = replace(known, policy=replace(known.policy, **values))

    def remove(self, name: str) -> None:
        if name in self.destinations:
            self.destinations[name] = replace(self.destinations[name], removed=True)

    def make(self, name: str, capacity: int, window_seconds: int) -> None:
        """Make a destination, or make a removed one again.

        While it is not forgotten its windows keep their length.
        """
        known = self.destinations.get(name)
        self.destinations[name] = Destination(
            name,
            capacity,
            known.window_seconds if known is not None else window_seconds,
            known.policy if known is not None else self.setup.policy,
        )

    def make_later(self, name: str, capacity: int, window_seconds: int, ticks: int) -> None:
        self.to_make.append((self.tick_number + ticks, name, capacity, window_seconds))

    def make_what_is_due(self) -> None:
        due = [item for item in self.to_make if item[0] <= self.tick_number]
        self.to_make = [item for item in self.to_make if item[0] > self.tick_number]
        for _, name, capacity, window_seconds in due:
            self.make(name, capacity, window_seconds)

    # ------------------------------------------------------------- losses

    def lose_postgres(self, *, learns: bool = True, destinations: bool = False) -> None:
        """Lose every row; with ``destinations`` those too, which are made again in a while."""
        for shard in self.shards:
            shard.lose_postgres(self.planner_now_ms, learns=learns)
        if destinations:
            for name, known in self.destinations.items():
                self.make_later(name, known.capacity or 1, known.window_seconds, 7)
            self.destinations.clear()

    def lose_everything(self) -> None:
        """Lose rows and files; whoever sets up anew waits until no document is valid any more."""
        waits = self.setup.laxity != "a total loss is not waited for"
        for shard in self.shards:
            known = [*shard.published, *(put.document for put in shard.puts)]
            until_ms = max((counts_until_ms(document) for document in known), default=0)
            shard.lose_everything(wait_until_ms=until_ms + 1000 if waits else 0)

    # ------------------------------------------------------------- rounds

    def deliver(self) -> None:
        due = [body for tick, body in self.messages if tick <= self.tick_number]
        self.messages = [item for item in self.messages if item[0] > self.tick_number]
        for body in due:
            for shard in self.shards:
                shard.take(decode_batch(body).batch, self.planner_now_ms)

    def plan(self, shard: Shard, kind: RoundKind, *delays: int) -> None:
        """Run a round; the file comes ``delays[0]`` ticks later, the pointer ``delays[1]`` more."""
        shard.forget_old_rows(self.planner_now_ms, KEEP_MS)
        forget = shard.plan(
            kind,
            [known for name, known in self.destinations.items() if self.shard(name) is shard],
            now_ms=self.planner_now_ms,
            tick=self.tick_number,
            delays=delays if len(delays) == 2 else (0, 0),
        )
        # A planner whose clock was ahead must not begin what would then come too late.
        ahead = "too late" if self.was_ahead else None
        wrong = [told for told in shard.refused if ahead is None or ahead not in told]
        assert not wrong, wrong
        for name in forget:
            del self.destinations[name]

    def apply_puts(self) -> None:
        for shard in self.shards:
            shard.apply_puts(self.tick_number)
