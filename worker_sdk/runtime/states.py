"""What a client shows of itself.

Decides the shape of ``client.state`` and of a destination's ``state``; knows nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from worker_sdk.core.ladder import Mode
from worker_sdk.runtime.guard import entered
from worker_sdk.runtime.member import Member
from worker_sdk.wire.shares import POINTS


@dataclass(frozen=True, slots=True)
class DestinationState:
    """One destination, at one instant. Counts are in permits and since the start.

    Attributes:
        destination: its name.
        instance: the member's id; empty if the client does not run.
        mode: ``starting``, ``fresh``, ``skewed``, ``stale`` or ``expired``.
        epoch: of the document in force; 0 for none.
        age_seconds: since that document was planned; None for none.
        window: index of the present window; None for none.
        share_points: of 1,000,000,000 for the whole capacity.
        share_percent: the same in percent.
        safe_points: what could still be spent without a newer document.
        granted_permits: what the share gives in the present window.
        spent_permits: what was spent in it.
        left_permits: what may be spent now.
        retry_after_seconds: until a permit can be had; None where none is in sight.
        waiting: requests that wait for permits.
        in_delivery: deliveries under way, as far as their end is reported.
        concurrency: how many of these there may be; None for any number.
        used: permits taken.
        denied: permits refused, timed out waiters included.
        refunded: permits given back that could be spent again.
        used_by_mode: permits taken, by mode.
    """

    destination: str
    instance: str
    mode: Mode
    epoch: int
    age_seconds: float | None
    window: int | None
    share_points: int
    share_percent: float
    safe_points: int
    granted_permits: int
    spent_permits: int
    left_permits: int
    retry_after_seconds: float | None
    waiting: int
    in_delivery: int
    concurrency: int | None
    used: int
    denied: int
    refunded: int
    used_by_mode: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ClientState:
    """The client as a whole; counts are since the start.

    Attributes:
        host: name of the host.
        instance: the member's id.
        machines: how many seem to use the host's name, this one included; 1 is right.
        clock_ahead_seconds: how far the clock is ahead of those of the answers at least; negative
            if it is behind, 0 if no difference is certain.
        epochs: newest epoch held of each shard.
        flushes_delivered: batches that arrived, hello included.
        flushes_failed: attempts that did not.
        tuples_delivered: usage tuples that arrived.
        tuples_undelivered: usage tuples of failed attempts; they are merged into the next one.
        tuples_dropped: usage tuples lost for good, with a goodbye that could not be delivered.
        reads: looks at the distribution that were answered.
        documents_taken: newer documents found by them.
        failures: failures by ``what:cause``.
    """

    host: str
    instance: str
    machines: int
    clock_ahead_seconds: float
    epochs: Mapping[int, int]
    flushes_delivered: int
    flushes_failed: int
    tuples_delivered: int
    tuples_undelivered: int
    tuples_dropped: int
    reads: int
    documents_taken: int
    failures: Mapping[str, int]


def client_state(member: Member) -> ClientState:
    """Return the state of a member."""
    with entered(member.lock):
        counted = member.statistics
        return ClientState(
            host=member.identity.host,
            instance=member.instance,
            machines=member.machines.count,
            clock_ahead_seconds=member.clock_ahead_ms / 1000,
            epochs=member.engine.epochs(),
            flushes_delivered=counted.flushes_delivered,
            flushes_failed=counted.flushes_failed,
            tuples_delivered=counted.tuples_delivered,
            tuples_undelivered=counted.tuples_undelivered,
            tuples_dropped=counted.tuples_dropped,
            reads=counted.reads,
            documents_taken=counted.documents_taken,
            failures=dict(counted.failures),
        )


def destination_state(
    destination: str, member: Member, concurrency: int | None
) -> DestinationState:
    """Return the state of one of a member's destinations."""
    with entered(member.lock):
        now_ms = member.clock.wall_ms()
        allowance = member.engine.allowance(destination, now_ms)
        account = member.engine.account(destination)
        ledger = account.ledger
        retry_after_ms = allowance.retry_after_ms(now_ms)
        published_at_ms = allowance.published_at_ms
        return DestinationState(
            destination=destination,
            instance=member.instance,
            mode=allowance.mode,
            epoch=allowance.epoch,
            age_seconds=None if published_at_ms is None else (now_ms - published_at_ms) / 1000,
            window=allowance.window,
            share_points=allowance.share_points,
            share_percent=allowance.share_points * 100 / POINTS,
            safe_points=allowance.safe_points,
            granted_permits=allowance.granted_permits,
            spent_permits=allowance.spent_permits,
            left_permits=allowance.left_permits,
            retry_after_seconds=None if retry_after_ms is None else retry_after_ms / 1000,
            waiting=member.engine.waiting(destination),
            in_delivery=account.deliveries.in_delivery,
            concurrency=concurrency,
            used=sum(ledger.used_by_mode.values()),
            denied=ledger.refused_total,
            refunded=ledger.refunded_total,
            used_by_mode={mode.value: used for mode, used in ledger.used_by_mode.items()},
        )
