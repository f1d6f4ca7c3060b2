"""Who leads which shard, and until when: leases taken, kept, spread over replicas and handed over.

Decides how many shards are one replica's part, which of them it gives up and at what moment, and
until when it leads. The instants of leases are by the repository's clock, and a leader's own
deadline is a difference on a clock that never steps: a machine whose time is wrong neither takes a
lease from anybody nor keeps one too long. Knows no rule of planning and no driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from balancer.app import catalogue
from balancer.app.agenda import Agenda
from balancer.app.clock_check import check_clock
from balancer.app.cycle import CycleLimits, ShardState
from balancer.core.learning import Learning
from balancer.ports import Clock, LeaseRecord, Metrics, Repository

KEEP_MS: Final = 600_000
"""A replica that gets back what it has handed over keeps all its shards for so long: one of those
that count as live does not lead."""

LOOK_FOR_LEASES_MS: Final = 1_000
"""How often a replica that may lead more shards looks for free leases."""

_log = logging.getLogger("balancer.leadership")


@dataclass(slots=True)
class LedShard:
    """A shard led by this process; ``deadline_ms`` is on the clock that never steps."""

    state: ShardState
    agenda: Agenda
    deadline_ms: int
    running: bool = False


def part_of(shards: int, replicas: int) -> int:
    """Return how many shards one of so many replicas leads at most: an even part, rounded up."""
    return -(-shards // max(1, replicas))


def to_hand_over(held: Mapping[int, LedShard], most: int, now_ms: int, round_ms: int) -> list[int]:
    """Return which shards of too many can be given up now, so that no round of theirs is missed.

    None of their rounds is under way, and the next one (loans apart, whose rounds run all the time)
    is at least half a round away. Those that have most time come first.
    """
    left_ms = {
        shard: entry.agenda.next_ms(now_ms, with_loans=False) - now_ms
        for shard, entry in held.items()
        if not entry.running
    }
    ready = [shard for shard, ms in left_ms.items() if 2 * ms >= round_ms]
    return sorted(ready, key=lambda shard: -left_ms[shard])[: max(0, len(held) - most)]


class Leadership:
    """The leases of one process; `renew` is called again and again, `pause_ms` apart.

    ``on_lost`` is told each shard that is led no longer.
    """

    def __init__(
        self,
        repository: Repository,
        clock: Clock,
        metrics: Metrics,
        *,
        holder: str,
        shards: int,
        lease_ms: int,
        limits: CycleLimits,
        on_lost: Callable[[int], None],
    ) -> None:
        self.held: dict[int, LedShard] = {}
        self._repository = repository
        self._on_lost = on_lost
        self._clock = clock
        self._metrics = metrics
        self._holder = holder
        self._shards = shards
        self._lease_ms = lease_ms
        self._limits = limits
        self._given_up: dict[int, int] = {}
        self._keep_until_ms = 0

    def leads(self, held: LedShard) -> bool:
        """Say whether this process still leads a shard, by a clock that never steps."""
        return (
            self.held.get(held.state.shard) is held
            and self._clock.monotonic_ms() < held.deadline_ms
        )

    def pause_ms(self, replicas: int) -> int:
        """Return how long to wait before leases are renewed again."""
        pause_ms = self._lease_ms // 3
        has_room = len(self.held) < part_of(self._shards, replicas)
        return min(pause_ms, LOOK_FOR_LEASES_MS) if has_room else pause_ms

    async def renew(self, replicas: int) -> None:
        """Give up what is more than an even part, renew what is held, take what is free.

        Raises:
            UnavailableError: what is held is led until its deadline.
        """
        await check_clock(self._repository, self._clock, self._limits.round_ms)
        most = part_of(self._shards, replicas)
        await self._hand_over(most)
        # The deadline is taken before the call: however long it takes, the lease lasts longer.
        asked_ms = self._clock.monotonic_ms()
        records = await self._repository.acquire_leases(
            self._holder,
            range(self._shards),
            now_ms=await self._repository.now_ms(),
            ttl_ms=self._lease_ms,
            most=most,
            known={shard: held.state.number for shard, held in self.held.items()},
        )
        gained = [record.shard for record in records if self._take(record, asked_ms)]
        lost = [record.shard for record in records if not record.held and self._drop(record.shard)]
        for words, shards in (("takes %d shards", gained), ("no longer leads %d shards", lost)):
            self._tell(words, shards)
        self._metrics.gauge(catalogue.LEADING, len(self.held))

    async def release(self) -> None:
        """Let go of everything, at the end."""
        await self._repository.release_leases(self._holder)

    async def _hand_over(self, most: int) -> None:
        if self._clock.monotonic_ms() < self._keep_until_ms:
            return
        shards = to_hand_over(self.held, most, self._clock.now_ms(), self._limits.round_ms)
        if shards:
            self._given_up.update((shard, self.held[shard].state.number) for shard in shards)
            for shard in shards:  # first here, so that nothing of theirs begins any more
                self._drop(shard)
            await self._repository.release_leases(self._holder, shards)
            self._tell("hands over %d shards", shards)

    def _tell(self, words: str, shards: Sequence[int]) -> None:
        if shards:
            told = f"{words}: leads %d of %d shards now"
            counts = (len(shards), len(self.held), self._shards)
            _log.info(told, *counts, extra={"action": "lease"})

    def _drop(self, shard: int) -> bool:
        if self.held.pop(shard, None) is None:
            return False
        self._on_lost(shard)
        return True

    def _take(self, record: LeaseRecord, asked_ms: int) -> bool:
        """Take note of a lease that is held; True where it was not before."""
        if not record.held:
            return False
        deadline_ms = asked_ms + self._lease_ms
        held = self.held.get(record.shard)
        if held is not None and held.state.number == record.number:
            held.deadline_ms = deadline_ms
            if record.epoch < held.state.published_epoch:
                # The database was set back: what members said since then is lost.
                held.state.learning = Learning(self._clock.now_ms() + self._limits.ttl_ms)
                _log.warning(
                    "shard %d: the database is older than what was published; learning",
                    record.shard,
                    extra={"action": "learning"},
                )
            return False
        if self._given_up.pop(record.shard, None) == record.number - 1:  # nobody had it since
            self._keep_until_ms = asked_ms + KEEP_MS
        agenda = Agenda(self._limits.round_ms)
        agenda.ask_early()
        self.held[record.shard] = LedShard(ShardState.of(record), agenda, deadline_ms)
        return True
