"""The HTTP answer to one host: its part of the documents that count now.

Decides how ``GET /distribution/<host>`` looks and what a worker may take from it. Knows nothing of
HTTP, and not which documents count.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from json.encoder import encode_basestring as quoted
from typing import Final

from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.distribution import (
    Document,
    OwnShare,
    Terms,
    decode_terms,
    encode_terms,
)
from worker_sdk.wire.entries import Entry, decode_intervals, decode_safe_points
from worker_sdk.wire.limits import (
    ANSWER_DESTINATIONS_MAX,
    ANSWER_INSTANCES_MAX,
    ANSWER_MAX_BYTES,
    EPOCH_MAX,
    POINTER_DOCUMENTS_MAX,
    SHARDS_MAX,
)
from worker_sdk.wire.shares import POINTS, Interval, share_points
from worker_sdk.wire.strict import (
    as_instant_ms,
    as_int,
    as_list,
    as_name,
    as_object,
    dump_json,
    parse_json,
)

_POINTS_OF_A_PERCENT: Final = POINTS // 100
_TEXT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_INSTANCES: Final = b'"instances":{'


def encode_host_answer(
    host: str,
    shards: int,
    documents: Sequence[Document],
    destinations: Collection[str] | None,
    instance: str | None = None,
) -> bytes | None:
    """Return the answer about one host as JSON, or None if it has nothing to say.

    A destination's documents are *all* of those that name it, those without an entry of the host
    too, so that whoever takes the answer may acknowledge the newest epoch in it.

    Args:
        host: the host asked about.
        shards: number of shards of the layout.
        documents: those that count now, of any shards, a shard's newest first.
        destinations: which to list; None for every one in which the host has an entry in any of
            the documents.
        instance: list only this instance's intervals; ``percent`` and ``permits`` are still the
            host's.
    """
    rows: dict[str, list[bytes]] = {}
    found: set[str] = set() if destinations is None else set(destinations)
    for document in documents:
        for shares in document.destinations:
            terms = shares.terms
            if destinations is not None and terms.destination not in found:
                continue
            own = [entry for entry in shares.entries if entry.host == host]
            if destinations is None and own:
                found.add(terms.destination)
            row = encode_row_head(document, terms) + encode_row_end(terms.capacity, own, instance)
            rows.setdefault(terms.destination, []).append(row)
    listed = {name: rows[name] for name in found if name in rows}
    return encode_rows(host, shards, listed) if listed else None


def encode_row_head(document: Document, terms: Terms) -> bytes:
    """Return how every host's row of a destination in a document begins."""
    value = {
        "shard": document.shard,
        "epoch": document.epoch,
        "published_at_ms": document.published_at_ms,
        "valid_until_ms": document.valid_until_ms,
        **encode_terms(terms),
    }
    return dump_json(value).removesuffix(b"}") + b","


def encode_row_end(capacity: int, own: Sequence[Entry], instance: str | None = None) -> bytes:
    """Return how one host's row of a destination ends.

    It is put together as text: those of whole fleets are made each round.

    Args:
        capacity: of the destination.
        own: the host's entries; none are a share of nothing.
        instance: list only this one, if any is given; ``percent`` and ``permits`` are still the
            host's.
    """
    points = 0
    percent = "0.0"
    listed = []
    for entry in own:
        entry_points = share_points(entry.intervals)
        points += entry_points
        percent = repr(entry_points / _POINTS_OF_A_PERCENT)
        if instance is None or entry.instance == instance:
            intervals = ",".join([f"[{start},{end}]" for start, end in entry.intervals])
            listed.append(
                f'{_TEXT(entry.instance)}:{{"intervals":[{intervals}],"safe":{entry.safe_points},'
                f'"percent":{percent}}}'
            )
    if len(own) > 1:
        percent = repr(points / _POINTS_OF_A_PERCENT)
    permits = capacity * points // POINTS
    instances = ",".join(listed)
    return f'"percent":{percent},"permits":{permits},"instances":{{{instances}}}}}'.encode()


def encode_row_ends(
    capacity: int, own: Iterable[tuple[str, Sequence[Interval], int]]
) -> list[bytes]:
    """Return `encode_row_end` of many hosts with one entry each, in a fraction of the time.

    Args:
        capacity: of the destination.
        own: each host's instance, intervals and safe points.
    """
    ends = []
    for instance, intervals, safe_points in own:
        if len(intervals) == 1:
            ((start, end),) = intervals
            points, listed = end - start, f"[{start},{end}]"
        else:
            points = share_points(intervals)
            listed = ",".join([f"[{start},{end}]" for start, end in intervals])
        percent = repr(points / _POINTS_OF_A_PERCENT)
        ends.append(
            f'"percent":{percent},"permits":{capacity * points // POINTS},"instances":{{'
            f'{quoted(instance)}:{{"intervals":[{listed}],"safe":{safe_points},'
            f'"percent":{percent}}}}}}}'.encode()
        )
    return ends


def narrow_row_end(end: bytes, instance: str) -> bytes:
    """Return the end of a host's row with one instance alone."""
    first = end.index(_INSTANCES) + len(_INSTANCES)
    key = _TEXT(instance).encode() + b":{"
    at = end.find(key, first)
    while at > first and end[at - 1 : at] != b",":  # within a name, whose quotes are escaped
        at = end.find(key, at + 1)
    # An entry's value holds numbers alone.
    own = end[at : end.index(b"}", at + len(key)) + 1] if at >= 0 else b""
    return b"%s%s}}" % (end[:first], own)


def encode_rows(host: str, shards: int, rows: Mapping[str, Sequence[bytes]]) -> bytes:
    """Return the answer about one host, from the rows of each destination, newest first."""
    listed = b",".join(
        [b"%s:[%s]" % (_TEXT(name).encode(), b",".join(rows[name])) for name in sorted(rows)]
    )
    head = f'{{"host":{_TEXT(host)},"shards":{shards},"destinations":{{'.encode()
    return b"%s%s}}" % (head, listed)


def decode_host_answer(body: bytes, instance: str, host: str | None = None) -> tuple[OwnShare, ...]:
    """Return what an answer says to one instance, a share for each document of each destination.

    Args:
        body: the JSON text.
        instance: whose intervals to take; where it is not named it has none.
        host: if given, the host that the answer must be about.

    Raises:
        WireError: where the bytes are no answer, or it is about another host.
    """
    if len(body) > ANSWER_MAX_BYTES:
        raise WireError(RejectReason.TOO_LARGE, f"an answer is over {ANSWER_MAX_BYTES} bytes")
    value = as_object(parse_json(body), "an answer")
    about = as_name(value.get("host"), "host")
    if host is not None and about != host:
        raise WireError(RejectReason.INCONSISTENT, "an answer is about another host")
    destinations = as_object(value.get("destinations"), "destinations")
    if len(destinations) > ANSWER_DESTINATIONS_MAX:
        raise WireError(RejectReason.TOO_MANY, "an answer has too many destinations")
    shares: list[OwnShare] = []
    for name, rows in destinations.items():
        destination = as_name(name, "a destination")
        last_epoch = EPOCH_MAX + 1
        for row in as_list(rows, "a destination's documents", most=POINTER_DOCUMENTS_MAX):
            share = _decode_row(as_object(row, "a document"), destination, instance)
            if share.epoch >= last_epoch:
                raise WireError(RejectReason.INCONSISTENT, "documents are not newest first")
            last_epoch = share.epoch
            shares.append(share)
    return tuple(shares)


def _decode_row(row: Mapping[str, object], destination: str, instance: str) -> OwnShare:
    instances = as_object(row.get("instances"), "instances")
    if len(instances) > ANSWER_INSTANCES_MAX:
        raise WireError(RejectReason.TOO_MANY, "an answer has too many instances")
    intervals: tuple[Interval, ...] = ()
    safe_points = 0
    if instance in instances:
        own = as_object(instances[instance], "an instance")
        intervals = decode_intervals(own.get("intervals"))
        safe_points = decode_safe_points(own.get("safe"))
    return OwnShare(
        shard=as_int(row.get("shard"), "shard", least=0, most=SHARDS_MAX - 1),
        epoch=as_int(row.get("epoch"), "epoch", least=1, most=EPOCH_MAX),
        published_at_ms=as_instant_ms(row.get("published_at_ms"), "published_at_ms"),
        valid_until_ms=as_instant_ms(row.get("valid_until_ms"), "valid_until_ms"),
        terms=decode_terms(row, destination),
        intervals=intervals,
        safe_points=safe_points,
    )
