"""Members' parts in a distribution: as values, and as the lines of a document's file.

Decides what a member's line looks like (compact JSON: host, instance, intervals, safe points) and
which lines are none. A document has up to millions of them, so they are written many at once; who
keeps entries as columns hands these over and makes no value for each. Knows no destination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as quoted
from typing import NamedTuple, Protocol, runtime_checkable

from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.limits import ENTRY_INTERVALS_MAX
from worker_sdk.wire.shares import POINTS, Interval
from worker_sdk.wire.strict import as_int, as_list, as_name, parse_json

Member = tuple[str, str]
"""(host, instance)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One member's part: disjoint intervals in ascending order, and its safe points."""

    host: str
    instance: str
    intervals: tuple[Interval, ...]
    safe_points: int

    @property
    def member(self) -> Member:
        """(host, instance)."""
        return (self.host, self.instance)


class Columns(NamedTuple):
    """Entries of one interval each, a list for each of their parts."""

    members: Sequence[Member]
    starts: Sequence[int]
    ends: Sequence[int]
    safe_points: Sequence[int]


@runtime_checkable
class Columnar(Protocol):
    """Entries that are kept as columns."""

    def columns(self) -> Columns | None:
        """Return them; None where an entry has not just one interval."""
        ...


class Heads(dict[Member, str]):
    """How members' lines begin, each written once: a member stands in many destinations."""

    def __missing__(self, member: Member) -> str:
        """Write one."""
        head = self[member] = f"[{quoted(member[0])},{quoted(member[1])},["
        return head


def entry_lines(entries: Sequence[Entry], heads: Heads) -> str:
    """Return the lines of ``entries``; ``heads`` are those of the same document."""
    columns = entries.columns() if isinstance(entries, Columnar) else None
    if columns is not None:
        members, *numbers = columns
        rows = zip(map(heads.__getitem__, members), *numbers, strict=True)
        lines = [f"{head}[{start},{end}]],{safe}]\n" for head, start, end, safe in rows]
        return "".join(lines)
    lines = []
    for entry in entries:
        intervals = ",".join([f"[{start},{end}]" for start, end in entry.intervals])
        lines.append(f"{heads[entry.host, entry.instance]}{intervals}],{entry.safe_points}]\n")
    return "".join(lines)


def decode_entry(line: bytes) -> Entry:
    """Return the entry in a member's line.

    Raises:
        WireError: where it is none.
    """
    row = as_list(parse_json(line), "a member", most=16)
    if len(row) < 4:
        raise WireError(RejectReason.BAD_FIELD, "a member has no four items")
    host, instance = as_name(row[0], "host"), as_name(row[1], "instance")
    return Entry(host, instance, decode_intervals(row[2]), decode_safe_points(row[3]))


def decode_intervals(value: object) -> tuple[Interval, ...]:
    """Return ascending, disjoint, non-empty intervals within the points.

    Raises:
        WireError: where they are not.
    """
    intervals: list[Interval] = []
    last_end = 0
    for item in as_list(value, "intervals", most=ENTRY_INTERVALS_MAX):
        pair = as_list(item, "an interval", most=2)
        if len(pair) != 2:
            raise WireError(RejectReason.BAD_FIELD, "an interval has no two ends")
        start = as_int(pair[0], "an interval's start", least=last_end, most=POINTS)
        end = as_int(pair[1], "an interval's end", least=start + 1, most=POINTS)
        intervals.append((start, end))
        last_end = end
    return tuple(intervals)


def decode_safe_points(value: object) -> int:
    """Return safe points.

    Raises:
        WireError: where they are no integer within the points.
    """
    return as_int(value, "safe", least=0, most=POINTS)
