"""The usage batch: what one member tells the balancer of itself.

Decides which batches and tuples are well formed. Knows nothing of clocks (whether an instant lies
in the future is the receiver's question), of compression or of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache, partial
from operator import le
from typing import Any, Final, NamedTuple

from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.limits import (
    BATCH_EPOCHS_MAX,
    BATCH_ITEMS_MAX,
    BATCH_MAX_BYTES,
    BATCH_TUPLES_MAX,
    EPOCH_MAX,
    INSTANT_MAX_MS,
    INSTANT_MIN_MS,
    NAME_MAX_BYTES,
    PERMITS_MAX,
    SHARDS_MAX,
    SPAN_MAX_MS,
    WIRE_VERSION,
)
from worker_sdk.wire.strict import (
    as_instant_ms,
    as_int,
    as_list,
    as_name,
    as_object,
    check_version,
    dump_json,
    parse_json,
)

CONTENT_TYPE: Final = "application/vnd.permit-usage.v1+json"
USAGE_TOPIC: Final = "permit-usage"
REJECTED_TOPIC: Final = "permit-usage-rejected"
TUPLE_FIELDS: Final = 9
WINDOW_MAX: Final = INSTANT_MAX_MS // 1000


class MemberState(StrEnum):
    """Where a member is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"


class UsageTuple(NamedTuple):
    """One member's account for one destination and one stretch of time.

    A tuple in the order of the wire, since millions a minute are read and written as rows.

    Attributes:
        destination: its name.
        from_ms: Unix instant at which the stretch begins (instant less the monotonic elapsed).
        instant_ms: Unix instant at which it ends; orders the tuples of one member.
        epoch: epoch of the document in force at the instant; 0 for none.
        granted: permits that the share gave in that time.
        used: permits acquired less those given back.
        denied: permits refused, plus those of waiters still waiting at the instant.
        starved_ms: time in which somebody wanted a permit and none was left.
        busy_ms: time inside delivered work, summed over concurrent deliveries.
    """

    destination: str
    from_ms: int
    instant_ms: int
    epoch: int
    granted: int
    used: int
    denied: int
    starved_ms: int
    busy_ms: int


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """Everything one member sends at once.

    Attributes:
        host: name of the host.
        instance: random id of the client's start.
        sent_at_ms: Unix instant of sending by the member's clock.
        state: where the member is in its life.
        group: optional name by which policies may address the member.
        epochs: shard to the newest epoch *held*; this alone acknowledges a document.
        tuples: at most one for each destination.
        spent: with LEAVING, destination to (window, permits spent in it).
    """

    host: str
    instance: str
    sent_at_ms: int
    state: MemberState
    group: str | None = None
    epochs: Mapping[int, int] = field(default_factory=dict)
    tuples: tuple[UsageTuple, ...] = ()
    spent: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RejectedTuple:
    """A tuple that was left out: its index in the batch, and why."""

    index: int
    reason: RejectReason
    message: str


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """A batch with its good tuples, and an account of the others."""

    batch: UsageBatch
    rejected: tuple[RejectedTuple, ...]


def encode_batch(batch: UsageBatch) -> bytes:
    """Return the batch as the JSON body of a message, uncompressed."""
    body: dict[str, object] = {
        "v": WIRE_VERSION,
        "host": batch.host,
        "instance": batch.instance,
    }
    if batch.group is not None:
        body["group"] = batch.group
    body["sent_at_ms"] = batch.sent_at_ms
    body["state"] = batch.state.value
    body["epochs"] = {str(shard): epoch for shard, epoch in batch.epochs.items()}
    body["tuples"] = batch.tuples
    if batch.spent:
        body["spent"] = {name: list(account) for name, account in batch.spent.items()}
    return dump_json(body)


def decode_batch(body: bytes) -> DecodedBatch:
    """Return the batch in ``body`` (JSON, already decompressed).

    A bad tuple is left out and accounted for; it does not take its batch with it. Unknown keys and
    surplus items behind a tuple's nine are ignored.

    Raises:
        WireError: where the batch as a whole cannot be accepted.
    """
    if not body:
        raise WireError(RejectReason.EMPTY, "the body is empty")
    if len(body) > BATCH_MAX_BYTES:
        raise WireError(RejectReason.TOO_LARGE, f"a batch is over {BATCH_MAX_BYTES} bytes")
    value = as_object(parse_json(body, items_max=BATCH_ITEMS_MAX), "a batch")
    check_version(value, "a batch", WIRE_VERSION)
    group = value.get("group")
    rows = as_list(value.get("tuples"), "tuples", most=BATCH_TUPLES_MAX)
    all_good = _all_good_tuples(rows)
    good, bad = _decode_tuples(rows) if all_good is None else (all_good, ())
    batch = UsageBatch(
        host=as_name(value.get("host"), "host"),
        instance=as_name(value.get("instance"), "instance"),
        sent_at_ms=as_instant_ms(value.get("sent_at_ms"), "sent_at_ms"),
        state=_decode_state(value.get("state")),
        group=None if group is None else as_name(group, "group"),
        epochs=_decode_epochs(value.get("epochs", {})),
        tuples=good,
        spent=_decode_spent(value.get("spent", {})),
    )
    return DecodedBatch(batch, bad)


_STATES: Final = {state.value: state for state in MemberState}


def _decode_state(value: object) -> MemberState:
    if isinstance(value, str) and value in _STATES:
        return _STATES[value]
    raise WireError(RejectReason.BAD_FIELD, "state is not one known")


_INTEGERS: Final = {int}
_as_usage_tuple: Final = partial(tuple.__new__, UsageTuple)


def _all_good_tuples(rows: Sequence[Any]) -> tuple[UsageTuple, ...] | None:
    """Return the tuples if a look at whole columns finds nothing to object to; else None.

    It accepts nothing that `_decode_tuple` would not, and costs a third. What it leaves (something
    bad, surplus items, names beyond ASCII, stretches far apart) is looked at tuple by tuple.
    """
    try:
        columns = tuple(zip(*rows, strict=True))
        if len(columns) != TUPLE_FIELDS:
            return () if not rows else None
        names, froms, instants, epochs, *counts = columns
        joined = "".join(names)
    except (TypeError, ValueError):  # a row that is no list or of another length, a name no text
        return None
    amounts = (*counts[0], *counts[1], *counts[2], *counts[3], *counts[4])
    if set(map(type, amounts + froms + instants + epochs)) != _INTEGERS:
        return None
    lengths = set(map(len, names))
    newest_ms = max(instants)
    if (
        (joined.isascii() and joined.isprintable())
        and (min(lengths) > 0 and max(lengths) <= NAME_MAX_BYTES)
        and (min(amounts) >= 0 and max(amounts) <= PERMITS_MAX)
        and (min(epochs) >= 0 and max(epochs) <= EPOCH_MAX)
        and (min(instants) >= INSTANT_MIN_MS and newest_ms <= INSTANT_MAX_MS)
        and (min(froms) >= newest_ms - SPAN_MAX_MS and all(map(le, froms, instants)))
    ):
        return tuple(map(_as_usage_tuple, rows))
    return None


def _decode_tuples(
    rows: Iterable[object],
) -> tuple[tuple[UsageTuple, ...], tuple[RejectedTuple, ...]]:
    good: list[UsageTuple] = []
    bad: list[RejectedTuple] = []
    for index, row in enumerate(rows):
        try:
            good.append(_decode_tuple(row))
        except WireError as error:
            bad.append(RejectedTuple(index, error.reason, str(error)))
    return tuple(good), tuple(bad)


def _decode_tuple(row: object) -> UsageTuple:
    if not isinstance(row, list) or len(row) < TUPLE_FIELDS:
        raise WireError(RejectReason.BAD_FIELD, f"a tuple is not a list of {TUPLE_FIELDS} items")
    destination = as_name(row[0], "destination")
    from_ms, instant_ms, epoch = row[1], row[2], row[3]
    counts = row[4:TUPLE_FIELDS]
    if type(from_ms) is not int or type(instant_ms) is not int or type(epoch) is not int:
        raise WireError(RejectReason.BAD_NUMBER, "an instant or an epoch is not an integer")
    for count in counts:
        if type(count) is not int or not 0 <= count <= PERMITS_MAX:
            raise WireError(RejectReason.BAD_NUMBER, f"a count is not in [0, {PERMITS_MAX}]")
    if not 0 <= epoch <= EPOCH_MAX:
        raise WireError(RejectReason.BAD_NUMBER, f"epoch is not in [0, {EPOCH_MAX}]")
    if not INSTANT_MIN_MS <= instant_ms <= INSTANT_MAX_MS:
        raise WireError(RejectReason.BAD_NUMBER, "instant_ms is not in milliseconds")
    if not instant_ms - SPAN_MAX_MS <= from_ms <= instant_ms:
        raise WireError(RejectReason.BAD_SPAN, "from_ms is behind instant_ms or too far before it")
    return UsageTuple(destination, from_ms, instant_ms, epoch, *counts)


@lru_cache(maxsize=SHARDS_MAX)
def _shard_of_key(key: str) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) <= len(str(SHARDS_MAX))):
        raise WireError(RejectReason.BAD_FIELD, "a shard is not a decimal number")
    return as_int(int(key), "a shard", least=0, most=SHARDS_MAX - 1)


def _decode_epochs(value: object) -> dict[int, int]:
    pairs = as_object(value, "epochs")
    if len(pairs) > BATCH_EPOCHS_MAX:
        raise WireError(RejectReason.TOO_MANY, f"epochs has over {BATCH_EPOCHS_MAX} shards")
    epochs: dict[int, int] = {}
    for key, epoch in pairs.items():
        shard = _shard_of_key(key)
        if type(epoch) is int and 0 <= epoch <= EPOCH_MAX:
            epochs[shard] = epoch
        else:
            epochs[shard] = as_int(epoch, "an epoch", least=0, most=EPOCH_MAX)
    return epochs


def _decode_spent(value: object) -> dict[str, tuple[int, int]]:
    pairs = as_object(value, "spent")
    if len(pairs) > BATCH_TUPLES_MAX:
        raise WireError(RejectReason.TOO_MANY, f"spent has over {BATCH_TUPLES_MAX} destinations")
    spent: dict[str, tuple[int, int]] = {}
    for name, account in pairs.items():
        destination = as_name(name, "a destination of spent")
        items = as_list(account, "an account of spent", most=TUPLE_FIELDS)
        if len(items) < 2:
            raise WireError(RejectReason.BAD_FIELD, "an account of spent has no two items")
        window = as_int(items[0], "a window of spent", least=0, most=WINDOW_MAX)
        spent[destination] = (window, as_int(items[1], "spent", least=0, most=PERMITS_MAX))
    return spent


def merge_tuples(older: UsageTuple, newer: UsageTuple) -> UsageTuple:
    """Return one tuple that accounts for both stretches of one destination.

    Counts and times add up, but for ``denied``: waiters still waiting stand in both, so the newer
    count of those cannot be told apart and the sum is kept (demand is never understated). The
    earliest from and the latest instant are kept. What would pass a limit of the wire stops at it,
    so that a long outage leaves a tuple that is still accepted.
    """
    instant_ms = max(older.instant_ms, newer.instant_ms)
    return UsageTuple(
        destination=newer.destination,
        from_ms=max(min(older.from_ms, newer.from_ms), instant_ms - SPAN_MAX_MS),
        instant_ms=instant_ms,
        epoch=max(older.epoch, newer.epoch),
        granted=min(older.granted + newer.granted, PERMITS_MAX),
        used=min(older.used + newer.used, PERMITS_MAX),
        denied=min(older.denied + newer.denied, PERMITS_MAX),
        starved_ms=min(older.starved_ms + newer.starved_ms, PERMITS_MAX),
        busy_ms=min(older.busy_ms + newer.busy_ms, PERMITS_MAX),
    )
