"""The life of the service: when rounds run, what runs beside them, and how all of it ends.

Decides which rounds are started and the order of stopping. Knows no rule of planning and no driver.
Whatever fails is tried again; nothing here ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from balancer.app import catalogue
from balancer.app.agenda import covers_present, share_ms
from balancer.app.cancellation import ended, is_cancelled
from balancer.app.clocks import SteadyClock
from balancer.app.cycle import Cycle, CycleLimits
from balancer.app.history import RoundHistory
from balancer.app.ingest import Ingest
from balancer.app.leadership import Leadership, LedShard
from balancer.app.peers import Board, Peers
from balancer.app.view import DistributionView
from balancer.core.learning import IngestView
from balancer.core.model import Destination, RoundKind
from balancer.errors import BalancerError
from balancer.ports import DocumentStore, Metrics, Repository
from worker_sdk.wire.pointer import shard_of

ROUNDS_AT_ONCE: Final = 4
STOP_ROUNDS_SECONDS: Final = 2.0
STOP_INGEST_SECONDS: Final = 3.0
STOP_LEASES_SECONDS: Final = 1.0
RESTART_FIRST_SECONDS: Final = 0.5
RESTART_MAX_SECONDS: Final = 10.0
LONGEST_SLEEP_SECONDS: Final = 1.0
REMOVE_ROWS: Final = 10_000
REMOVE_ROWS_SECONDS: Final = 60.0
FOLLOW_AT_ONCE: Final = 4

_log = logging.getLogger("balancer.supervisor")


@dataclass(frozen=True, slots=True)
class Options:
    """What the supervisor runs by.

    Attributes:
        holder: name of this process, unlike that of any other, also of an earlier one.
        lease_ms: how long a lease lasts unless it is renewed.
        keep_files_ms: documents that nobody needs are removed after so long.
        keep_details_ms: history names members for so long.
        keep_history_ms: history is kept for so long.
    """

    holder: str
    lease_ms: int
    keep_files_ms: int
    keep_details_ms: int = 48 * 3_600_000
    keep_history_ms: int = 30 * 86_400_000


class Supervisor:
    """Runs everything but HTTP, from `run` until its ``stop`` is set."""

    def __init__(
        self,
        *,
        cycle: Cycle,
        ingest: Ingest,
        repository: Repository,
        board: Board,
        store: DocumentStore,
        view: DistributionView,
        clock: SteadyClock,
        metrics: Metrics,
        limits: CycleLimits,
        options: Options,
    ) -> None:
        self._cycle = cycle
        self._ingest = ingest
        self._repository = repository
        self._store = store
        self._view = view
        self._clock = clock
        self._metrics = metrics
        self._history = RoundHistory(repository, clock, metrics, limits.round_ms)
        self._limits = limits
        self._options = options
        self._peers = Peers(board, options.holder, limits.round_ms)
        self._leadership = Leadership(
            repository,
            clock,
            metrics,
            holder=options.holder,
            shards=view.shards,
            lease_ms=options.lease_ms,
            limits=limits,
            on_lost=cycle.forget,
        )
        self._held = self._leadership.held
        self._leads = self._leadership.leads
        self._destinations: dict[str, Destination] | None = None
        self._of_shard: dict[int, list[Destination]] = {}
        self._tags: dict[int, str | None] = {}
        self._wake = asyncio.Event()
        self._look_at_leases = asyncio.Event()
        self._looked = asyncio.Event()
        self._look = asyncio.Event()
        self._rounds: set[asyncio.Task[None]] = set()
        self._stop_ingest = asyncio.Event()
        self._stopping = False

    # ---------------------------------------------------------------- what others tell

    def note_change(self, destinations: Collection[str]) -> None:
        """Take note of hellos and goodbyes for these destinations: an early round is due."""
        shards = {shard_of(name, self._view.shards) for name in destinations}
        self._ask_early(shards)
        led_elsewhere = {
            shard
            for shard in shards
            if (held := self._held.get(shard)) is None or not self._leads(held)
        }
        if led_elsewhere:
            self._peers.tell(led_elsewhere)

    def _ask_early(self, shards: Collection[int]) -> None:
        for shard in shards:
            if shard in self._held:
                self._held[shard].agenda.ask_early()
        self._wake.set()

    def look_at_destinations(self) -> None:
        """Look at once whether destinations were changed by hand."""
        self._look.set()

    # ---------------------------------------------------------------- life

    async def run(self, stop: asyncio.Event) -> None:
        """Run until told to stop, then stop in order; takes at most about seven seconds for it."""
        ingest = asyncio.create_task(self._kept_alive("ingest", self._ingest_once))
        leases = asyncio.create_task(self._kept_alive("leases", self._renew))
        peers = asyncio.create_task(self._kept_alive("peers", self._exchange))
        others = [
            asyncio.create_task(self._kept_alive(name, once))
            for name, once in (
                ("rounds", self._start_rounds),
                ("destinations", self._watch_destinations),
                ("rows", self._remove_rows),
                ("history", self._clean_history),
                ("files", self._remove_files),
            )
        ]
        if self._view.follows:
            others.append(asyncio.create_task(self._kept_alive("follow", self._follow)))
        try:
            await stop.wait()
        finally:
            # Leases last, since rounds under way and the batch in hand need them.
            self._stopping = True
            self._stop_ingest.set()
            await asyncio.gather(
                ended(others, 0),
                ended(self._rounds, STOP_ROUNDS_SECONDS),
                ended([ingest], STOP_INGEST_SECONDS),
            )
            await ended([leases, peers], 0)
            await ended([asyncio.create_task(self._release())], STOP_LEASES_SECONDS)

    async def _release(self) -> None:
        with contextlib.suppress(BalancerError):
            await self._leadership.release()
            await self._peers.leave()

    async def _kept_alive(self, name: str, once: Callable[[], Awaitable[None]]) -> None:
        """Call ``once`` again and again; after a failure with a pause that grows."""
        pause_seconds = RESTART_FIRST_SECONDS
        while not (name == "ingest" and self._stop_ingest.is_set()):
            try:
                await once()
                pause_seconds = RESTART_FIRST_SECONDS
                continue
            except BalancerError as error:
                _log.warning("%s: %s", name, error, extra={"action": f"{name}_failed"})
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                _log.exception("%s failed", name, extra={"action": f"{name}_crashed"})
            except Exception:  # a fault in one part must not end the others
                _log.exception("%s failed", name, extra={"action": f"{name}_crashed"})
            if self._stopping:  # a driver may answer its cancellation with an error of its own
                return
            self._metrics.count(catalogue.TASK_RESTARTS, 1, {"task": name})
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(RESTART_MAX_SECONDS, pause_seconds * 2)

    async def _ingest_once(self) -> None:
        if not self._clock.shared.is_told:  # reports live by it from the first one on
            await self._compare_clocks()
        await self._ingest.run(self._stop_ingest)

    async def _compare_clocks(self) -> int:
        asked_ms = self._clock.monotonic_ms()
        now_ms = await self._repository.now_ms()
        ahead_ms = self._clock.compare(now_ms, self._clock.monotonic_ms() - asked_ms)
        self._metrics.gauge(catalogue.CLOCK_AHEAD, ahead_ms / 1000)
        return now_ms

    async def _exchange(self) -> None:
        # The repository's clock, so that nobody seems silent whose machine's time is wrong.
        now_ms = await self._compare_clocks()
        replicas = self._peers.replicas
        await self._peers.look(
            now_ms, self._ingest.view(), self._ingest.partitions, self._ask_early
        )
        self._looked.set()
        if self._peers.replicas != replicas:
            self._look_at_leases.set()
        await self._peers.pause()

    async def _renew(self) -> None:
        # Else the first to start would take what is the others' part; but not for ever.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.lease_ms / 1000):
                await self._looked.wait()
        self._looked.set()
        self._look_at_leases.clear()
        replicas = self._peers.replicas
        await self._leadership.renew(replicas)
        self._wake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._leadership.pause_ms(replicas) / 1000):
                await self._look_at_leases.wait()

    # ---------------------------------------------------------------- rounds

    async def _start_rounds(self) -> None:
        self._wake.clear()
        now_ms = self._clock.now_ms()
        next_ms = now_ms + int(LONGEST_SLEEP_SECONDS * 1000)
        for held in list(self._held.values()):
            if held.running or not self._leads(held):
                continue
            self._mind(held, now_ms)
            kind = held.agenda.due(now_ms)
            if kind is None:
                next_ms = min(next_ms, held.agenda.next_ms(now_ms))
            elif len(self._rounds) < ROUNDS_AT_ONCE:
                held.running = True
                task = asyncio.create_task(self._run_round(held, kind))
                self._rounds.add(task)
                task.add_done_callback(self._rounds.discard)
        learning = sum(held.state.learning.active(now_ms) for held in self._held.values())
        self._metrics.gauge(catalogue.LEARNING, learning)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, (next_ms - now_ms) / 1000)):
                await self._wake.wait()

    def _mind(self, held: LedShard, now_ms: int) -> None:
        mine = self._of_shard.get(held.state.shard, [])
        documents = self._view.documents_of(held.state.shard)
        held.agenda.ensure_cover(now_ms, covered=covers_present(documents, mine, now_ms))
        held.agenda.lends = any(known.policy.lend_points for known in mine)

    async def _run_round(self, held: LedShard, kind: RoundKind) -> None:
        agenda, shard = held.agenda, held.state.shard
        agenda.begin(kind, self._clock.now_ms())
        try:
            ingest = self._peers.view(self._ingest_view())
            await self._cycle.run(held.state, kind, ingest, may_publish=lambda: self._leads(held))
            agenda.succeed()
            if kind is RoundKind.REGULAR and agenda.end_regular(self._clock.now_ms()):
                self._metrics.count(catalogue.ROUNDS_LATE)
        except BalancerError as error:
            agenda.fail(kind, self._clock.now_ms())
            self._metrics.count(catalogue.ROUNDS, 1, {"outcome": "failed"})
            _log.warning(
                "shard %d: %s round failed: %s",
                shard,
                kind.value,
                error,
                extra={"action": "round_failed"},
            )
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            self._note_crash(held, kind)
        except Exception:  # a fault in one shard must not stop the others
            self._note_crash(held, kind)
        finally:
            held.running = False
            self._wake.set()

    def _note_crash(self, held: LedShard, kind: RoundKind) -> None:
        held.agenda.fail(kind, self._clock.now_ms())
        self._metrics.count(catalogue.ROUNDS, 1, {"outcome": "crashed"})
        _log.exception(
            "shard %d: %s round crashed",
            held.state.shard,
            kind.value,
            extra={"action": "round_crashed"},
        )

    def _ingest_view(self) -> IngestView:
        """Return what is known of ingest; instants by the clock that rounds are planned by."""
        view = self._ingest.view()
        if view.last_batch_ms is None:
            return view
        ahead_ms = self._clock.now_ms() - self._clock.shared.now_ms()
        return replace(view, last_batch_ms=view.last_batch_ms + ahead_ms)

    # ---------------------------------------------------------------- what runs beside

    async def _watch_destinations(self) -> None:
        self._look.clear()
        found = await self._repository.list_destinations(include_removed=True)
        known, self._destinations = self._destinations, {entry.name: entry for entry in found}
        self._of_shard = {}
        for destination in found:
            shard = shard_of(destination.name, self._view.shards)
            self._of_shard.setdefault(shard, []).append(destination)
        for destination in found if known is not None else ():
            held = self._held.get(shard_of(destination.name, self._view.shards))
            before = (known or {}).get(destination.name)
            if held is None or before == destination:
                continue
            if before is None:
                held.agenda.ask_early()
            else:
                held.agenda.ask_regular()
            self._wake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(500, share_ms(self._limits.round_ms)) / 1000):
                await self._look.wait()

    async def _follow(self) -> None:
        """Take what other processes publish, to serve it."""
        followed = [
            shard
            for shard in range(self._view.shards)
            if (held := self._held.get(shard)) is None or not self._leads(held)
        ]
        at_once = asyncio.Semaphore(FOLLOW_AT_ONCE)

        async def follow(shard: int) -> None:
            async with at_once:
                found = await self._store.current(shard, tag=self._tags.get(shard))
            if found is not None:
                await self._view.show(shard, found.documents)
                self._tags[shard] = found.tag

        for shard in self._held:
            self._tags.pop(shard, None)
        outcomes = await asyncio.gather(*map(follow, followed), return_exceptions=True)
        faults = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if faults:
            raise faults[0]
        await asyncio.sleep(max(250, share_ms(self._limits.round_ms)) / 1000)

    async def _remove_rows(self) -> None:
        await asyncio.sleep(REMOVE_ROWS_SECONDS)
        destinations = await self._repository.list_destinations(include_removed=True)
        keep_ms = self._limits.keep_ms(destinations)
        while True:
            removed = await self._repository.remove_expired(
                # Old by both clocks: were one of them fast, everybody's live rows would go.
                now_ms=min(await self._repository.now_ms(), self._clock.now_ms()),
                ttl_ms=self._limits.ttl_ms,
                keep_ms=keep_ms,
                limit=REMOVE_ROWS,
            )
            self._metrics.count(catalogue.ROWS_REMOVED, removed)
            if removed < REMOVE_ROWS:
                return

    async def _clean_history(self) -> None:
        await asyncio.sleep(REMOVE_ROWS_SECONDS)
        removed = await self._history.clean(
            keep_ms=self._options.keep_history_ms,
            keep_details_ms=self._options.keep_details_ms,
        )
        self._metrics.count(catalogue.HISTORY_REMOVED, removed)

    async def _remove_files(self) -> None:
        keep_files_ms = self._options.keep_files_ms
        await asyncio.sleep(min(3_600_000, max(1_000, keep_files_ms // 4)) / 1000)
        for shard, held in list(self._held.items()):
            if self._leads(held) and not held.running:
                removed = await self._cycle.clean(shard, keep_files_ms=keep_files_ms)
                self._metrics.count(catalogue.FILES_REMOVED, removed)
