"""What of one message is stored, and what is refused and why.

Decides from the decoded batch and the instants of its arrival. Knows nothing of storing, and
neither the log nor a driver: the function that decodes is an argument.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from balancer.app.agenda import largest_epoch_by
from balancer.ports import AcceptedBatch, UsageRecord
from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.usage import DecodedBatch, UsageBatch

FUTURE_MAX_MS: Final = 10_000
"""An instant further ahead of the trusted clock is set back to it."""

_log = logging.getLogger("balancer.ingest")

Decode = Callable[[UsageRecord], DecodedBatch | None]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message, or a tuple of one, that is not stored."""

    reason: RejectReason
    detail: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one message: what of it is stored, and what is refused.

    Attributes:
        accepted: what is to be stored; None for nothing.
        refused: each message or tuple left out.
        clamped: how many instants were set back.
        expired: how many tuples were past the TTL.
        skipped: it was backlog whose age nobody can tell.
    """

    accepted: AcceptedBatch | None
    refused: tuple[Refusal, ...] = ()
    clamped: int = 0
    expired: int = 0
    skipped: bool = False


def judge(record: UsageRecord, decode: Decode, *, now_ms: int, ttl_ms: int) -> Judged:
    """Decide what of one message is stored.

    Instants more than ten seconds ahead of the trusted clock are set back to it. Epochs that no
    shard can have reached yet acknowledge nothing and are refused, each by itself. A message past
    the TTL still says goodbye or acknowledges, but its accounts are out of date and left out. Where
    the topic does not tell when a message was appended, it lives from its arrival, so that what lay
    there already at start is skipped: it may be of any age.
    """
    if record.appended_ms is None and record.backlog:
        return Judged(None, skipped=True)
    if record.unreadable:
        detail = "the log's client cannot take the record apart"
        return Judged(None, (Refusal(RejectReason.BAD_COMPRESSION, detail),))
    try:
        decoded = decode(record)
    except WireError as error:
        return Judged(None, (Refusal(error.reason, str(error)),))
    except Exception as error:  # a fault of ours costs this message, not those behind it
        _log.exception("a message could not be decoded", extra={"action": "decode"})
        detail = f"decoding failed with {type(error).__name__}"
        return Judged(None, (Refusal(RejectReason.INCONSISTENT, detail),))
    if decoded is None:
        return Judged(None)
    seen_ms = now_ms if record.appended_ms is None else record.appended_ms
    batch, clamped = _clamp(decoded.batch, seen_ms + FUTURE_MAX_MS, seen_ms)
    batch, impossible = _without_impossible_epochs(batch, largest_epoch_by(now_ms))
    expired = 0
    if now_ms - seen_ms >= ttl_ms:
        expired = len(batch.tuples)
        batch = replace(batch, tuples=())
    refused = tuple(Refusal(bad.reason, bad.message) for bad in decoded.rejected)
    # It did not arrive before it was appended: a clock that is behind must release nothing early.
    accepted = AcceptedBatch(batch, seen_ms, max(now_ms, seen_ms))
    return Judged(accepted, refused + impossible, clamped, expired)


def _clamp(batch: UsageBatch, latest_ms: int, seen_ms: int) -> tuple[UsageBatch, int]:
    newest_ms = max(map(_instant_ms, batch.tuples), default=batch.sent_at_ms)
    if newest_ms <= latest_ms and batch.sent_at_ms <= latest_ms:
        return batch, 0
    late = sum(entry.instant_ms > latest_ms for entry in batch.tuples)
    late += batch.sent_at_ms > latest_ms
    tuples = tuple(
        entry._replace(
            instant_ms=seen_ms,
            from_ms=seen_ms - (entry.instant_ms - entry.from_ms),
        )
        if entry.instant_ms > latest_ms
        else entry
        for entry in batch.tuples
    )
    sent_at_ms = seen_ms if batch.sent_at_ms > latest_ms else batch.sent_at_ms
    return replace(batch, tuples=tuples, sent_at_ms=sent_at_ms), late


_instant_ms: Final = attrgetter("instant_ms")


def _without_impossible_epochs(
    batch: UsageBatch, largest: int
) -> tuple[UsageBatch, tuple[Refusal, ...]]:
    if max(batch.epochs.values(), default=0) <= largest:
        return batch, ()
    impossible = [shard for shard, epoch in batch.epochs.items() if epoch > largest]
    epochs = {shard: epoch for shard, epoch in batch.epochs.items() if epoch <= largest}
    refused = tuple(
        Refusal(RejectReason.BAD_NUMBER, f"no epoch of shard {shard} can be over {largest} yet")
        for shard in impossible
    )
    return replace(batch, epochs=epochs), refused
