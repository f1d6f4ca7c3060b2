"""What happened to a destination, at an instant or in a stretch of time: for people and as JSON.

Decides which records answer a question, and how they are told. The records are those that
`balancer.app.history` keeps. Knows no store and no way of asking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from balancer.app.explanation import Explanation, case_as_json, explained
from balancer.app.instants import date_and_time, time_of_day
from balancer.core.model import PERCENT_POINTS, Reason, RoundKind
from balancer.core.record import (
    SPAN_MS,
    DestinationRecord,
    DetailRecord,
    History,
    RoundRecord,
    SpanRecord,
)
from balancer.ports import Repository
from worker_sdk.wire.shares import POINTS

ROUNDS_DEFAULT: Final = 1_000
HOST_ROUNDS_MAX: Final = 200
"""At most so many rounds are searched for one host: each holds all members."""

NEAR_MS: Final = 120_000
"""What the shard did is told for two rounds before and after an instant, at most for so long."""

NEAR_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True)
class Moment:
    """A destination at an instant.

    Attributes:
        at_ms: the instant.
        record: the round by which shares were in force, or the ten minutes it is in; None where
            nothing is kept of it.
        explanation: why members had their shares; None where members are no longer kept.
        rounds: what its shard did about then.
    """

    at_ms: int
    record: DestinationRecord | SpanRecord | None
    explanation: Explanation | None
    rounds: Sequence[RoundRecord]

    @property
    def is_covered(self) -> bool:
        """Whether what is told covers the instant, rather than being the last before it."""
        if self.record is None:
            return False
        if isinstance(self.record, SpanRecord):
            return self.at_ms < self.record.from_ms + SPAN_MS
        return self.at_ms < self.record.until_ms


@dataclass(frozen=True, slots=True)
class Stretch:
    """A destination in a stretch of time.

    Attributes:
        from_ms: its first instant.
        until_ms: the first instant no longer in it.
        history: destination and shard.
        details: of one host, where it was asked for.
        is_known: whether there is such a destination now.
        more: whether there is more of something than is told; the latest is missing then.
    """

    from_ms: int
    until_ms: int
    history: History
    details: Sequence[DetailRecord] = ()
    is_known: bool = True
    more: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept of the destination."""
        return not (self.history.destinations or self.history.spans or self.details)


async def at_moment(
    repository: Repository, name: str, at_ms: int, *, host: str | None, limit: int
) -> Moment:
    """Return what is known of a destination at an instant.

    Args:
        repository: asked.
        name: of the destination.
        at_ms: the instant.
        host: whose members; None for all.
        limit: so many members at most.
    """
    record = await repository.load_history_at(name, at_ms)
    near_ms = NEAR_MS
    if isinstance(record, DestinationRecord):
        near_ms = min(near_ms, 2 * (record.until_ms - record.from_ms))
    near = await repository.load_history(
        name, from_ms=at_ms - near_ms, until_ms=at_ms + near_ms, limit=NEAR_ROUNDS
    )
    explanation = await explained(repository, name, host=host, limit=limit, at_ms=at_ms)
    return Moment(at_ms, record, explanation, near.rounds)


async def in_stretch(
    repository: Repository,
    name: str,
    stretch_ms: tuple[int, int],
    *,
    host: str | None,
    limit: int,
) -> Stretch:
    """Return what is known of a destination in a stretch of time.

    Args:
        repository: asked.
        name: of the destination.
        stretch_ms: first instant, and the first after it.
        host: whose shares are told beside; None for nobody's.
        limit: so many rounds at most.
    """
    from_ms, until_ms = stretch_ms
    history = await repository.load_history(name, from_ms=from_ms, until_ms=until_ms, limit=limit)
    names = {entry.name for entry in await repository.list_destinations()}
    is_known = name in names
    if host is None:
        return Stretch(from_ms, until_ms, history, (), is_known, history.more)
    most = min(limit, HOST_ROUNDS_MAX)
    details = await repository.load_details(
        name, from_ms=from_ms, until_ms=until_ms, limit=most + 1, host=host
    )
    more = history.more or len(details) > most
    return Stretch(from_ms, until_ms, history, details[:most], is_known, more)


# ---------------------------------------------------------------- as JSON


def moment_as_json(name: str, known: Moment) -> dict[str, object]:
    """Return what is known of an instant as JSON values."""
    is_span = isinstance(known.record, SpanRecord)
    record = None if known.record is None else _values(known.record)
    cases = () if known.explanation is None else known.explanation.cases
    return {
        "destination": name,
        "at_ms": known.at_ms,
        "covered": known.is_covered,
        "round": None if is_span else record,
        "span": record if is_span else None,
        "members": [case_as_json(case) for case in cases],
        "more": known.explanation is not None and known.explanation.more,
        "shard_rounds": [_values(entry) for entry in known.rounds],
    }


def stretch_as_json(name: str, stretch: Stretch) -> dict[str, object]:
    """Return what is known of a stretch of time as JSON values."""
    return {
        "destination": name,
        "from_ms": stretch.from_ms,
        "until_ms": stretch.until_ms,
        "spans": [_values(entry) for entry in stretch.history.spans],
        "rounds": [_values(entry) for entry in stretch.history.destinations],
        "members": [
            {
                "planned_at_ms": detail.planned_at_ms,
                "epoch": detail.epoch,
                "from_ms": detail.from_ms,
                "until_ms": detail.until_ms,
                "capacity": detail.capacity,
                **asdict(reason),
            }
            for detail in stretch.details
            for reason in detail.reasons
        ],
        "shard_rounds": [_values(entry) for entry in stretch.history.rounds],
        "more": stretch.more,
    }


def _values(record: DestinationRecord | SpanRecord | RoundRecord) -> dict[str, Any]:
    values = asdict(record)
    if "kind" in values:
        values["kind"] = values["kind"].value
    return values


# ---------------------------------------------------------------- for people


def moment_lines(name: str, known: Moment) -> list[str]:
    """Return what is known of an instant, without its members, a line a fact."""
    at = date_and_time(known.at_ms)
    record = known.record
    if record is None:
        return [f"nothing is kept of {name} at {at} UTC: it was not planned, or it is too long ago"]
    if isinstance(record, SpanRecord):
        until = time_of_day(record.from_ms + SPAN_MS)
        lines = [f"{name} at {at} UTC, of which ten minutes are kept ({record.rounds} rounds)"]
        lines += _span_lines(record, until)
    else:
        lines = [f"{name} at {at} UTC"]
        lines += _record_lines(record)
    if not known.is_covered:
        lines.insert(1, "  no document covered this instant; what follows was the last before it")
    lines += [f"  {time_of_day(entry.planned_at_ms)}  {entry.sentence}" for entry in known.rounds]
    return lines


def _record_lines(record: DestinationRecord) -> list[str]:
    window = f"{record.window_seconds} s"
    planned = (
        f"  shares    epoch {record.epoch}, {record.kind.value} round, planned "
        f"{time_of_day(record.planned_at_ms)} for {time_of_day(record.from_ms)} to "
        f"{time_of_day(record.until_ms)}"
    )
    level = (
        "nobody was limited"
        if record.level_permits is None
        else f"limited to {record.level_permits:,} for a weight of 1"
    )
    demand = (
        "  demand    not looked at: an early round, or shares were repeated"
        if record.asked_permits is None
        else f"  demand    asked {record.asked_permits:,}, planned by {record.wanted_permits:,}, "
        f"used {record.used_permits:,}, refused {record.denied_permits:,}; {level}"
    )
    points = (
        f"  points    given {_percent(record.given_points)}, held back for safety "
        f"{_percent(record.held_points)}, free {_percent(record.free_points)}"
    )
    lines = [
        planned,
        f"  capacity  {record.capacity:,} permits in {window}, {record.members:,} members",
        demand,
        points,
    ]
    if record.shadow_moved_points is not None:
        moved = _percent(record.shadow_moved_points)
        lines.append(f"  shadow    it would give {moved} to other members")
    return lines


def _span_lines(span: SpanRecord, until: str) -> list[str]:
    rounds = span.rounds
    capacity = (
        f"  capacity  {_range(span.capacity_least, span.capacity_most)} permits a window, "
        f"{_range(span.members_least, span.members_most)} members"
    )
    demand = (
        f"  demand    asked {_mean(span.asked_permits, span.planned_rounds)} on average and "
        f"{span.asked_most or 0:,} at most, used {_mean(span.used_permits, span.planned_rounds)}, "
        f"refused {_mean(span.denied_permits, span.planned_rounds)} and at most "
        f"{span.denied_most or 0:,}; level {_range(span.level_least, span.level_most)}"
    )
    points = (
        f"  points    given {_percent(span.given_points // rounds)}, held "
        f"{_percent(span.held_points // rounds)} and at most {_percent(span.held_most)}, "
        f"free {_percent(span.free_points // rounds)}"
    )
    return [f"  time      {time_of_day(span.from_ms)} to {until}", capacity, demand, points]


STRETCH_HEAD: Final = (
    "planned (UTC)",
    "round",
    "epoch",
    "capacity",
    "members",
    "asked",
    "used",
    "refused",
    "level",
    "given",
    "held",
)


def stretch_rows(stretch: Stretch) -> list[tuple[object, ...]]:
    """Return a row a round; of ten minutes averages, and the least capacity and level."""
    spans = map(_span_row, stretch.history.spans)
    return [*spans, *map(_round_row, stretch.history.destinations)]


def _span_row(span: SpanRecord) -> tuple[object, ...]:
    return (
        date_and_time(span.from_ms),
        f"{span.rounds} in all",
        "-",
        span.capacity_least,
        span.members_most,
        _mean(span.asked_permits, span.planned_rounds),
        _mean(span.used_permits, span.planned_rounds),
        _mean(span.denied_permits, span.planned_rounds),
        _or_dash(span.level_least),
        _percent(span.given_points // span.rounds),
        _percent(span.held_points // span.rounds),
    )


def _round_row(record: DestinationRecord) -> tuple[object, ...]:
    return (
        date_and_time(record.planned_at_ms),
        _kind(record),
        record.epoch,
        record.capacity,
        record.members,
        _or_dash(record.asked_permits),
        _or_dash(record.used_permits),
        _or_dash(record.denied_permits),
        _or_dash(record.level_permits),
        _percent(record.given_points),
        _percent(record.held_points),
    )


HOST_HEAD: Final = (
    "planned (UTC)",
    "epoch",
    "instance",
    "share",
    "permits",
    "rule",
    "asked",
    "used",
    "refused",
    "waited",
)


def host_rows(stretch: Stretch) -> list[tuple[object, ...]]:
    """Return a row a round and member of the host."""
    return [_host_row(detail, reason) for detail in stretch.details for reason in detail.reasons]


def _host_row(detail: DetailRecord, reason: Reason) -> tuple[object, ...]:
    account: tuple[object, ...] = ("-", "-", "-", "-")
    if detail.whole:  # else an early round, which looks at nobody's account
        waited = f"{reason.starved_ms / 1000:.1f} s"
        account = (reason.asked_permits, reason.used_permits, reason.denied_permits, waited)
    return (
        date_and_time(detail.planned_at_ms),
        detail.epoch,
        reason.instance,
        _percent(reason.share_points),
        detail.capacity * reason.share_points // POINTS,
        reason.rule,
        *account,
    )


def incident_lines(stretch: Stretch) -> list[str]:
    """Return a line for each round of the shard that published nothing, though it should have."""
    return [
        f"{date_and_time(entry.planned_at_ms)}  {entry.outcome}: {entry.sentence}"
        for entry in stretch.history.rounds
        if entry.outcome != "published"
    ]


def _kind(record: DestinationRecord) -> str:
    is_repeated = record.kind is RoundKind.REGULAR and record.asked_permits is None
    return "repeated" if is_repeated else record.kind.value


def _percent(points: int) -> str:
    return f"{points / PERCENT_POINTS:.2f} %"


def _mean(total: int, rounds: int) -> str:
    return f"{total // rounds:,}" if rounds else "-"


def _range(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return "-"
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _or_dash(value: int | None) -> object:
    return "-" if value is None else value
