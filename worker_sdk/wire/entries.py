"""Members' parts in a distribution: as values, and as the lines of a document's file.

Decides what a member's line looks like (compact JSON: host, instance, intervals, safe points) and
which lines are none. A document has up to millions of them, so they are written and read many at
once; who keeps entries as columns makes no value for each. Knows no destination.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from json.encoder import encode_basestring as quoted
from operator import lt
from typing import Final, NamedTuple, Protocol, runtime_checkable

from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.limits import ENTRY_INTERVALS_MAX, NAME_MAX_BYTES
from worker_sdk.wire.shares import POINTS, Interval
from worker_sdk.wire.strict import as_int, as_list, as_name, parse_json

_NAME: Final = rb'"([^"\\\x00-\x1f]+)"'
_NUMBER: Final = rb"(0|[1-9]\d{0,9})"
_PLAIN_LINE: Final = re.compile(
    rb"\[%b,%b,\[(?:\[%b,%b\])?\],%b\]\n" % (_NAME, _NAME, _NUMBER, _NUMBER, _NUMBER)
)
"""Nearly every line is such a one: at most one interval, and no escape in a name."""

_BETWEEN_BYTES: Final = len('["","",[],]\n')
_AROUND_BYTES: Final = len("[,]")
"""What a plain line has beside names and numbers, and an interval beside its numbers."""

_LONGEST_BYTES: Final = 2 * NAME_MAX_BYTES + 3 * len(str(POINTS)) + _BETWEEN_BYTES + _AROUND_BYTES

ENTRY_ITEMS: Final = 4
ENTRY_ITEMS_MAX: Final = 16
"""Of a member's line; what is beyond the first four is for later versions."""

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
    """Entries of at most one interval each; where one has none, its start and end are equal."""

    members: Sequence[Member]
    starts: Sequence[int]
    ends: Sequence[int]
    safe_points: Sequence[int]


@runtime_checkable
class Columnar(Protocol):
    """Entries that are kept as columns."""

    def columns(self) -> Columns | None:
        """Return them; None where an entry has several intervals."""
        ...


def as_values(found: Columns | Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries as values."""
    if not isinstance(found, Columns):
        return tuple(found)
    hosts, instances = zip(*found.members, strict=True)
    bounds = zip(found.starts, found.ends, strict=True)
    intervals = [(interval,) if interval[0] < interval[1] else () for interval in bounds]
    return tuple(map(Entry, hosts, instances, intervals, found.safe_points))


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
        lines = [
            f"{head}[{start},{end}]],{safe}]\n" if start < end else f"{head}],{safe}]\n"
            for head, start, end, safe in rows
        ]
        return "".join(lines)
    lines = []
    for entry in entries:
        intervals = ",".join([f"[{start},{end}]" for start, end in entry.intervals])
        lines.append(f"{heads[entry.host, entry.instance]}{intervals}],{entry.safe_points}]\n")
    return "".join(lines)


def plain_entries(body: bytes, start: int, count: int) -> tuple[Columns, int] | None:
    """Return the entries of so many lines, and where these end; None unless all are plain.

    What is wrong with a line tells `decode_entry`.

    Args:
        body: a document.
        start: where the lines begin; a line that begins with a brace, or nothing, follows them.
        count: how many they are.
    """
    # No more is looked at, and no more made of it, than so many lines may be.
    last = start + count * _LONGEST_BYTES
    end = body.find(b"\n{", start, last + 1) + 1 or len(body)
    if not count or end > last or body.count(b"\n", start, end) != count:
        return None
    rows: list[tuple[bytes, ...]] = _PLAIN_LINE.findall(body, start, end)
    if len(rows) != count:
        return None
    hosts, instances, *texts = zip(*rows, strict=True)
    having = count - texts[0].count(b"")
    read_bytes = sum(map(len, chain.from_iterable(rows)))
    if read_bytes + _BETWEEN_BYTES * count + _AROUND_BYTES * having != end - start:
        return None
    starts, ends, safe_points = ([int(text or 0) for text in column] for column in texts)
    if max(*ends, *safe_points) > POINTS or sum(map(lt, starts, ends)) != having:
        return None
    names = _plain_names((*hosts, *instances))
    if names is None:
        return None
    members = list(zip(names[:count], names[count:], strict=True))
    return Columns(members, starts, ends, safe_points), end


def _plain_names(names: Sequence[bytes]) -> list[str] | None:
    """Return names that are legal and of ASCII alone; None unless all are."""
    every = b"\n".join(names)
    text = every.decode("ascii") if every.isascii() else ""
    if not text.replace("\n", "").isprintable() or max(map(len, names)) > NAME_MAX_BYTES:
        return None
    return text.split("\n") if text else None


def decode_entry(line: bytes) -> Entry:
    """Return the entry in a member's line.

    Raises:
        WireError: where it is none.
    """
    row = entry_items(line)
    host, instance = as_name(row[0], "host"), as_name(row[1], "instance")
    return Entry(host, instance, decode_intervals(row[2]), decode_safe_points(row[3]))


def entry_items(line: bytes) -> list[object]:
    """Return the items of a member's line, of which only the number has been looked at.

    What a newer balancer adds at the end is there and means nothing here.

    Raises:
        WireError: where it is no such line.
    """
    row = as_list(parse_json(line), "a member", most=ENTRY_ITEMS_MAX)
    if len(row) < ENTRY_ITEMS:
        raise WireError(RejectReason.BAD_FIELD, f"a member has no {ENTRY_ITEMS} items")
    return row


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
