"""The engine of one member: documents and time in, decisions and reports out.

Decides nothing itself: it composes a ledger, a queue and a delivery account a destination, watches
the epochs of shards (rules 1 and 5) and owns the report. Knows no clock, thread, loop or transport;
instants are Unix milliseconds (``now_ms``), elapsed time is from monotonic ones (``mono_ms``). Not
safe for threads: the caller holds a lock.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from worker_sdk.core.account import Account
from worker_sdk.core.ledger import Allowance
from worker_sdk.core.report import ReportBuffer
from worker_sdk.core.waiters import Ahead, Delivery, Waiter
from worker_sdk.errors import ConfigurationError
from worker_sdk.wire.distribution import OwnShare
from worker_sdk.wire.limits import BATCH_TUPLES_MAX
from worker_sdk.wire.shares import window_start_ms
from worker_sdk.wire.strict import check_name
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple

DESTINATIONS_MAX: Final = BATCH_TUPLES_MAX
"""A member's destinations: one report names them all."""


class Engine:
    """One member's decisions and counters.

    Raises:
        WireError: on construction, if a name is not legal.
        ConfigurationError: on construction, if there are more than `DESTINATIONS_MAX` destinations.
    """

    def __init__(
        self, host: str, instance: str, destinations: Iterable[str], *, group: str | None = None
    ) -> None:
        self.host = check_name(host, "host")
        self.instance = check_name(instance, "instance")
        self.group = None if group is None else check_name(group, "group")
        self._accounts = {check_name(name, "destination"): Account() for name in destinations}
        if len(self._accounts) > DESTINATIONS_MAX:
            raise ConfigurationError(f"a client has at most {DESTINATIONS_MAX} destinations")
        self._epochs: dict[int, int] = {}
        self._shards: dict[str, int] = {}
        self._names: dict[int, set[str]] = {}
        self._reports = ReportBuffer()
        self._since_mono_ms: int | None = None
        self._last_instant_ms = 0
        self._left = False

    @property
    def destinations(self) -> tuple[str, ...]:
        """The names given, each once."""
        return tuple(self._accounts)

    def account(self, destination: str) -> Account:
        """Return the account of a destination, for the hot path.

        Raises:
            KeyError: if it is none of this member's.
        """
        return self._accounts[destination]

    # -- documents

    def offer(self, shares: Iterable[OwnShare], now_ms: int) -> bool:
        """Take documents as read, in any order; say whether something new was taken.

        Epochs of a shard older than the newest held before are ignored. Shares of one document may
        come in several calls. All documents that a pointer names belong in one call.
        """
        offered = sorted(shares, key=_epoch_of)
        held = self._epochs.copy()
        named: dict[int, set[str]] = {}
        taken = False
        for share in offered:
            shard, epoch = share.shard, share.epoch
            if epoch < held.get(shard, 0):
                continue
            if epoch > self._epochs.get(shard, 0):
                self._epochs[shard] = epoch
                named[shard] = set()
                taken = True
            name = share.terms.destination
            account = self._accounts.get(name)
            if account is not None:
                if self._shards.get(name) != shard:
                    self._move(name, shard)
                named.setdefault(shard, set()).add(name)
                taken = account.ledger.offer(share, now_ms) or taken
        for shard, names in named.items():
            if self._epochs[shard] != held.get(shard):
                self._supersede(shard, self._epochs[shard], names, now_ms)
        return taken

    def _supersede(self, shard: int, epoch: int, named: set[str], now_ms: int) -> None:
        names = self._names.get(shard)
        if names is not None and not names <= named:
            for name in names - named:
                self._accounts[name].ledger.superseded(epoch, now_ms)

    def _move(self, name: str, shard: int) -> None:
        self._names.get(self._shards.get(name, shard), set()).discard(name)
        self._shards[name] = shard
        self._names.setdefault(shard, set()).add(name)

    def lacks_entry(self) -> bool:
        """Say whether some destination has no interval in its newest document, or none at all."""
        newest = (account.ledger.newest for account in self._accounts.values())
        return any(share is None or not share.intervals for share in newest)

    def covered_until_ms(self, now_ms: int) -> int:
        """Return until when the newest documents cover every destination; now if some do not."""
        ends = [now_ms] if not self._accounts else []
        for account in self._accounts.values():
            share = account.ledger.newest
            if share is None:
                return now_ms
            terms = share.terms
            ends.append(window_start_ms(terms.until_window, terms.window_seconds))
        return max(now_ms, min(ends))

    def epochs(self) -> Mapping[int, int]:
        """Return the newest epoch held of each shard: what a report acknowledges."""
        return dict(self._epochs)

    # -- permits

    def try_acquire(self, destination: str, permits: int, now_ms: int) -> bool:
        """Spend permits if they may be spent now and nobody waits; a refusal is counted as denied.

        Raises:
            KeyError: if the destination is none of this member's.
            ValueError: if ``permits`` is not a whole number of at least 1.
        """
        return self._accounts[destination].try_acquire(permits, now_ms)

    def refund(self, destination: str, permits: int, now_ms: int) -> int:
        """Give back permits that were not used; return how many may be spent again.

        Only what was spent in the present window comes back; what is beyond that lowers the use
        reported and gives nothing.
        """
        return self._accounts[destination].ledger.refund(permits, now_ms)

    def allowance(self, destination: str, now_ms: int) -> Allowance:
        """Return what may be spent now, and why; ``opens_at_ms`` minds who waits."""
        account = self._accounts[destination]
        allowance = account.ledger.allowance(now_ms)
        if account.queue.is_waiting:
            return replace(allowance, opens_at_ms=self.retry_at_ms(destination, 1, now_ms))
        return allowance

    def can_ever_give(self, destination: str, permits: int) -> bool:
        """Say whether waiting for so many at once can have an end, by the newest document."""
        return self._accounts[destination].ledger.can_ever_give(permits)

    # -- waiters

    def enqueue(
        self, destination: str, permits: int, caller: Hashable, now_ms: int, mono_ms: int
    ) -> Waiter | None:
        """Ask for permits and wait if need be; None if too many wait already (counted as denied).

        The waiter comes back granted if there are permits and nobody is before it.

        Args:
            destination: what for.
            permits: how many, at least 1.
            caller: who asks; a `Delivery` if its end will be reported.
            now_ms: Unix instant.
            mono_ms: monotonic instant.

        Raises:
            ValueError: if ``permits`` is not a whole number of at least 1.
        """
        waiter = Waiter(destination, permits, caller)
        return waiter if self.join(waiter, now_ms, mono_ms) else None

    def join(self, waiter: Waiter, now_ms: int, mono_ms: int) -> bool:
        """As `enqueue`, with a waiter that its caller knows, and gives up, whatever interrupts."""
        account = self._accounts[waiter.destination]
        waiter.granted = account.take(waiter.permits, waiter.caller, now_ms, mono_ms)
        if waiter.granted:
            return True
        if self._left or account.queue.is_full:
            account.ledger.refuse(waiter.permits)
            return False
        account.queue.join(waiter)
        return True

    def top_up(
        self, destination: str, permits: int, caller: Hashable, now_ms: int, mono_ms: int
    ) -> int:
        """Spend up to so many more for one who was just granted one permit; return how many.

        Nothing while others wait. What is not granted is not counted as refused.
        """
        account = self._accounts[destination]
        if permits < 1 or account.queue.is_waiting:
            return 0
        more = account.ledger.take_up_to(permits, now_ms)
        if more:
            account.advance(mono_ms)
            account.deliveries.begin(1 + more, caller)
        return more

    def pump(
        self, destination: str, now_ms: int, mono_ms: int, granted: list[Waiter] | None = None
    ) -> list[Waiter]:
        """Grant to waiters in order what may be spent now; return those granted.

        They are put at the end of ``granted``, if it is given, one by one: a caller that is
        interrupted knows whom to wake.
        """
        account = self._accounts[destination]
        account.advance(mono_ms)
        granted = [] if granted is None else granted
        while (head := account.queue.head()) is not None:
            if not account.ledger.take(head.permits, now_ms):
                break
            account.queue.serve(head)
            granted.append(head)
            account.deliveries.begin(head.permits, head.caller)
        return granted

    def give_up(self, waiter: Waiter, mono_ms: int) -> bool:
        """Take a waiter out that will not wait longer; say whether it was still waiting.

        False: it has its permits already (refund them if they are not wanted).
        """
        account = self._accounts[waiter.destination]
        if waiter.granted:
            return False
        account.advance(mono_ms)
        denied = account.queue.give_up(waiter)
        if denied:
            account.ledger.refuse(denied)
        return True

    def waiting(self, destination: str) -> int:
        """Return how many wait."""
        return len(self._accounts[destination].queue)

    def head(self, destination: str) -> Waiter | None:
        """Return the next waiter; None if nobody waits."""
        return self._accounts[destination].queue.head()

    def opens_at_ms(self, destination: str, permits: int, now_ms: int) -> int | None:
        """Return the soonest instant at which so many can be had at once, by who is next."""
        return self._accounts[destination].ledger.opens_at_ms(permits, now_ms)

    def retry_at_ms(self, destination: str, permits: int, now_ms: int) -> int | None:
        """Return when so many can be had by who comes after all that wait now, as known now."""
        account = self._accounts[destination]
        return account.ledger.opens_at_ms(permits, now_ms, Ahead(account.queue))

    def end_delivery(self, destination: str, delivery: Delivery, mono_ms: int) -> None:
        """Note the end of a delivery; once it has ended, or if it never began, nothing happens."""
        account = self._accounts[destination]
        account.deliveries.ended.append(delivery)
        account.advance(mono_ms)

    def dismiss(self, mono_ms: int) -> list[Waiter]:
        """Take all waiters of all destinations out unserved and return them."""
        dismissed: list[Waiter] = []
        for account in self._accounts.values():
            account.advance(mono_ms)
            for waiter in account.queue.clear():
                if not waiter.reported:
                    account.ledger.refuse(waiter.permits)
                dismissed.append(waiter)
        return dismissed

    # -- reports

    def hello(self, now_ms: int, mono_ms: int | None = None) -> UsageBatch:
        """Return the batch that announces this member and the destinations it wants.

        Time is counted from the first one on.
        """
        if mono_ms is not None and self._since_mono_ms is None:
            self._since_mono_ms = mono_ms
        self._last_instant_ms = max(self._last_instant_ms, now_ms)
        tuples = tuple(
            UsageTuple(name, now_ms, now_ms, 0, 0, 0, 0, 0, 0) for name in self._accounts
        )
        return self._batch(now_ms, MemberState.STARTING, tuples)

    def drain(self, now_ms: int, mono_ms: int, state: MemberState) -> UsageBatch | None:
        """Take the counters as a batch; None if nothing happened and no time passed.

        Without a tuple's merging back by `restore` the counters are gone.
        """
        elapsed_ms = 0 if self._since_mono_ms is None else max(0, mono_ms - self._since_mono_ms)
        self._since_mono_ms = mono_ms
        instant_ms = now_ms
        if instant_ms == self._last_instant_ms:
            instant_ms += 1  # an equal instant changes nothing at the balancer
        tuples = tuple(
            self._tuple(name, account, now_ms - elapsed_ms, instant_ms, mono_ms)
            for name, account in self._accounts.items()
        )
        said = any(entry.used or entry.denied or entry.granted for entry in tuples)
        if not said and elapsed_ms == 0 and now_ms == self._last_instant_ms:
            return None
        self._last_instant_ms = instant_ms
        return self._batch(now_ms, state, tuples)

    def beside(self, now_ms: int, tuples: tuple[UsageTuple, ...]) -> UsageBatch:
        """Return a batch beside those of `drain`, which will say all of it again, and later."""
        self._last_instant_ms = max(self._last_instant_ms, now_ms)
        return self._batch(now_ms, MemberState.RUNNING, tuples)

    def _tuple(
        self, name: str, account: Account, from_ms: int, instant_ms: int, mono_ms: int
    ) -> UsageTuple:
        account.advance(mono_ms)
        counters = account.ledger.drain(instant_ms)
        starved_ms, busy_ms = account.deliveries.drain()
        return self._reports.merged(
            UsageTuple(
                destination=name,
                from_ms=from_ms,
                instant_ms=instant_ms,
                epoch=account.ledger.epoch_at(instant_ms),
                granted=counters.granted,
                used=counters.used,
                denied=counters.refused + account.queue.report(),
                starved_ms=starved_ms,
                busy_ms=busy_ms,
            )
        )

    def restore(self, batch: UsageBatch) -> None:
        """Merge a drained batch back that was not delivered; the next drain accounts for it."""
        tuples: list[UsageTuple] = []
        for entry in batch.tuples:
            account = self._accounts.get(entry.destination)
            if account is not None:
                back = account.queue.unreport()
                tuples.append(entry._replace(denied=max(0, entry.denied - back)))
        self._reports.restore(tuples)

    def goodbye(self, now_ms: int, mono_ms: int) -> UsageBatch:
        """Return the batch that ends this member; from here on nothing is granted.

        It says what was spent in the present window of each destination.
        """
        self._left = True
        batch = self.drain(now_ms, mono_ms, MemberState.LEAVING)
        spent: dict[str, tuple[int, int]] = {}
        for name, account in self._accounts.items():
            account.ledger.close()
            account_now = account.ledger.spent_now(now_ms)
            if account_now is not None:
                spent[name] = account_now
        return self._batch(now_ms, MemberState.LEAVING, batch.tuples if batch else (), spent)

    def _batch(
        self,
        now_ms: int,
        state: MemberState,
        tuples: tuple[UsageTuple, ...],
        spent: Mapping[str, tuple[int, int]] | None = None,
    ) -> UsageBatch:
        return UsageBatch(
            host=self.host,
            instance=self.instance,
            sent_at_ms=now_ms,
            state=state,
            group=self.group,
            epochs=self.epochs(),
            tuples=tuples,
            spent=spent or {},
        )


def _epoch_of(share: OwnShare) -> int:
    return share.epoch
