"""Distribution documents: who may send how much, from which window to which.

Decides how a document, its pointer and the layout look as bytes, and which bytes are none. Knows
nothing of how shares come about, of stores or of the present time.

A document names *every* open destination of its shard, so that a member's acknowledgement of an
epoch speaks for all of them; a destination that a round left alone stands in it unchanged.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.compression import gunzip_bytes, gzip_bytes
from worker_sdk.wire.entries import (
    Columns,
    Entry,
    Heads,
    Member,
    as_values,
    decode_entry,
    entry_lines,
    plain_entries,
)
from worker_sdk.wire.limits import (
    DESTINATION_HOLDS_MAX,
    DESTINATION_LINE_MAX_BYTES,
    DESTINATION_MEMBERS_MAX,
    DOCUMENT_COMPRESSED_MAX_BYTES,
    DOCUMENT_DESTINATIONS_MAX,
    DOCUMENT_MAX_BYTES,
    EPOCH_MAX,
    MEMBER_LINE_MAX_BYTES,
    SHARDS_MAX,
    WIRE_VERSION,
)
from worker_sdk.wire.shares import POINTS, Interval
from worker_sdk.wire.strict import (
    as_instant_ms,
    as_int,
    as_list,
    as_name,
    as_object,
    as_utf8,
    check_name,
    check_version,
    dump_json,
    parse_json,
)
from worker_sdk.wire.terms import (
    CLOSED,
    GUARD_MAX_MS,
    PERMILLE,
    WINDOW_MAX,
    OnExpiry,
    Pacing,
    Terms,
    decode_terms,
    encode_terms,
)

__all__ = [
    "CLOSED",
    "GUARD_MAX_MS",
    "PERMILLE",
    "WINDOW_MAX",
    "DestinationShares",
    "Document",
    "Entry",
    "Hold",
    "Member",
    "OnExpiry",
    "OwnShare",
    "Pacing",
    "Terms",
    "decode_document",
    "decode_terms",
    "encode_document",
    "encode_terms",
    "read_own_shares",
]

_LEVEL: Final = 1
"""Of compression: the next two take up to twice the time for a file smaller by a thirtieth."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Points kept back until an instant for somebody who may still be spending them."""

    start: int
    end: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class DestinationShares:
    """A destination's part of a document.

    Attributes:
        terms: what is said of the destination as a whole.
        holds: points kept back.
        entries: of its members; a sequence that is equal to the tuple of the same entries.
    """

    terms: Terms
    holds: tuple[Hold, ...]
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Document:
    """One immutable distribution of a shard.

    Attributes:
        shard: number of the shard.
        epoch: grows with each document of the shard.
        published_at_ms: Unix instant of planning.
        valid_until_ms: safe points may be spent in windows that end by this instant.
        destinations: in ascending order of name.
    """

    shard: int
    epoch: int
    published_at_ms: int
    valid_until_ms: int
    destinations: tuple[DestinationShares, ...]


@dataclass(frozen=True, slots=True)
class OwnShare:
    """What one document says of one destination to one member.

    ``intervals`` is empty where the member has no entry: it may send nothing then.
    """

    shard: int
    epoch: int
    published_at_ms: int
    valid_until_ms: int
    terms: Terms
    intervals: tuple[Interval, ...]
    safe_points: int


def encode_document(document: Document) -> bytes:
    """Return the document as the bytes of its file; equal documents give equal bytes.

    Raises:
        WireError: BAD_NAME where a name is not UTF-8 (a lone surrogate); TOO_LARGE where readers
            would refuse the file for its size.
    """
    text = b"".join(_document_parts(document))
    body = gzip_bytes(text, level=_LEVEL)
    if len(text) > DOCUMENT_MAX_BYTES or len(body) > DOCUMENT_COMPRESSED_MAX_BYTES:
        raise WireError(RejectReason.TOO_LARGE, "a document is too large for its readers")
    return body


def _document_parts(document: Document) -> Iterator[bytes]:
    header: dict[str, object] = {
        "v": WIRE_VERSION,
        "shard": document.shard,
        "epoch": document.epoch,
        "published_at_ms": document.published_at_ms,
        "valid_until_ms": document.valid_until_ms,
    }
    yield dump_json(header) + b"\n"
    heads = Heads()
    for shares in document.destinations:
        holds = [[hold.start, hold.end, hold.until_ms] for hold in shares.holds]
        line = {**encode_terms(shares.terms), "holds": holds, "members": len(shares.entries)}
        yield dump_json({"destination": shares.terms.destination, **line}) + b"\n"
        yield as_utf8(entry_lines(shares.entries, heads))


def _decode_holds(value: object) -> tuple[Hold, ...]:
    holds: list[Hold] = []
    for item in as_list(value, "holds", most=DESTINATION_HOLDS_MAX):
        row = as_list(item, "a hold", most=16)
        if len(row) < 3:
            raise WireError(RejectReason.BAD_FIELD, "a hold has no three items")
        start = as_int(row[0], "a hold's start", least=0, most=POINTS)
        end = as_int(row[1], "a hold's end", least=start + 1, most=POINTS)
        holds.append(Hold(start, end, as_instant_ms(row[2], "a hold's end")))
    return tuple(holds)


class _Lines:
    """The lines of a document's file, with its header read."""

    def __init__(self, body: bytes) -> None:
        if len(body) > DOCUMENT_COMPRESSED_MAX_BYTES:
            raise WireError(RejectReason.TOO_LARGE, "a document's file is too large")
        self._body = gunzip_bytes(body, DOCUMENT_MAX_BYTES)
        self._text = io.BytesIO(self._body)
        header = as_object(parse_json(self._take(MEMBER_LINE_MAX_BYTES)), "a document's header")
        check_version(header, "a document", WIRE_VERSION)
        self.shard = as_int(header.get("shard"), "shard", least=0, most=SHARDS_MAX - 1)
        self.epoch = as_int(header.get("epoch"), "epoch", least=1, most=EPOCH_MAX)
        self.published_at_ms = as_instant_ms(header.get("published_at_ms"), "published_at_ms")
        self.valid_until_ms = as_instant_ms(header.get("valid_until_ms"), "valid_until_ms")

    def take_member(self) -> bytes:
        """Return the next line, which must be a member's."""
        return self._take(MEMBER_LINE_MAX_BYTES)

    def take_entries(self, count: int) -> Columns | list[Entry]:
        """Return what the next lines, which must be members', say."""
        plain = plain_entries(self._body, self._text.tell(), count)
        if plain is None:
            return [decode_entry(self.take_member()) for _ in range(count)]
        columns, end = plain
        self._text.seek(end)
        return columns

    def _take(self, limit_bytes: int) -> bytes:
        line = self._text.readline(limit_bytes)
        if line.endswith(b"\n"):
            return line
        if len(line) == limit_bytes:
            raise WireError(RejectReason.TOO_LARGE, "a line of a document is too long")
        raise WireError(RejectReason.BAD_FIELD, "a document is cut short")

    def destinations(self) -> Iterator[tuple[Terms, tuple[Hold, ...], int]]:
        """Yield terms, holds and the number of member lines that the caller must take next."""
        last_name: str | None = None
        names = 0
        while self._text.tell() < len(self._body):
            names += 1
            if names > DOCUMENT_DESTINATIONS_MAX:
                raise WireError(RejectReason.TOO_MANY, "a document has too many destinations")
            value = as_object(parse_json(self._take(DESTINATION_LINE_MAX_BYTES)), "a destination")
            name = as_name(value.get("destination"), "destination")
            if last_name is not None and name <= last_name:
                raise WireError(RejectReason.INCONSISTENT, "destinations are not in order")
            last_name = name
            members = as_int(value.get("members"), "members", least=0, most=DESTINATION_MEMBERS_MAX)
            yield decode_terms(value, name), _decode_holds(value.get("holds")), members


def decode_document(
    body: bytes, *, gather: Callable[[Columns | list[Entry]], Sequence[Entry]] = as_values
) -> Document:
    """Return the whole document in ``body``, the bytes of its file.

    Only its form is checked; whether the shares sum to at most a whole is the planner's invariant.

    Args:
        body: the file.
        gather: makes a destination's entries into what is kept of them.

    Raises:
        WireError: where the bytes are no document.
    """
    lines = _Lines(body)
    destinations: list[DestinationShares] = []
    for terms, holds, members in lines.destinations():
        entries = gather(lines.take_entries(members))
        destinations.append(DestinationShares(terms, holds, entries))
    dates = (lines.published_at_ms, lines.valid_until_ms)
    return Document(lines.shard, lines.epoch, *dates, tuple(destinations))


def read_own_shares(body: bytes, host: str, instance: str) -> tuple[OwnShare, ...]:
    """Return what a document's file says to one member, a share for every destination in it.

    Only the member's own lines are parsed: the format fixes their first bytes (compact JSON).

    Raises:
        WireError: where the bytes are no document, or the member's line or name is wrong.
    """
    member = [check_name(host, "host"), check_name(instance, "instance")]
    prefix = dump_json(member)[:-1] + b","
    lines = _Lines(body)
    shares: list[OwnShare] = []
    for terms, _, members in lines.destinations():
        intervals: tuple[Interval, ...] = ()
        safe_points = 0
        for _ in range(members):
            line = lines.take_member()
            if line.startswith(prefix):
                entry = decode_entry(line)
                intervals, safe_points = entry.intervals, entry.safe_points
        dates = (lines.published_at_ms, lines.valid_until_ms)
        shares.append(OwnShare(lines.shard, lines.epoch, *dates, terms, intervals, safe_points))
    return tuple(shares)
