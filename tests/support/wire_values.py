"""Hypothesis strategies for every value of the wire, within its limits."""

from __future__ import annotations

from hypothesis import strategies as st

from worker_sdk.wire.distribution import (
    DestinationShares,
    Document,
    Entry,
    Hold,
    OnExpiry,
    Pacing,
    Terms,
)
from worker_sdk.wire.limits import (
    EPOCH_MAX,
    INSTANT_MAX_MS,
    INSTANT_MIN_MS,
    NAME_MAX_BYTES,
    PERMITS_MAX,
    SHARDS_MAX,
    SPAN_MAX_MS,
    WINDOW_SECONDS_MAX,
)
from worker_sdk.wire.pointer import PointedDocument, Pointer, document_key
from worker_sdk.wire.shares import POINTS, Interval
from worker_sdk.wire.usage import WINDOW_MAX, MemberState, UsageBatch, UsageTuple

names = st.one_of(
    st.sampled_from(
        ["a", "orders-db", "日本/注文", 'q"\\', "e\u0301", "\u00e9", "[::1]:8080", "a,b"]
    ),
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=63),
    st.just("x" * NAME_MAX_BYTES),
)
instants = st.integers(INSTANT_MIN_MS, INSTANT_MAX_MS)
epochs = st.integers(0, EPOCH_MAX)
counts = st.integers(0, PERMITS_MAX)
capacities = st.one_of(st.sampled_from([0, 1, 2, 7, 100_000, PERMITS_MAX]), counts)
windows = st.one_of(st.integers(0, WINDOW_MAX), st.integers(0, 10**30))


@st.composite
def intervals(draw: st.DrawFn, most: int = 5) -> tuple[Interval, ...]:
    """Draw disjoint ascending intervals."""
    cuts = sorted(draw(st.sets(st.integers(0, POINTS), max_size=2 * most)))
    return tuple(zip(cuts[0::2], cuts[1::2], strict=False))


@st.composite
def usage_tuples(draw: st.DrawFn) -> UsageTuple:
    """Draw a legal usage tuple."""
    instant_ms = draw(instants)
    from_ms = instant_ms - draw(st.integers(0, SPAN_MAX_MS))
    return UsageTuple(
        draw(names), from_ms, instant_ms, draw(epochs), *(draw(counts) for _ in range(5))
    )


usage_batches = st.builds(
    UsageBatch,
    host=names,
    instance=names,
    sent_at_ms=instants,
    state=st.sampled_from(MemberState),
    group=st.none() | names,
    epochs=st.dictionaries(st.integers(0, SHARDS_MAX - 1), epochs, max_size=4),
    tuples=st.lists(usage_tuples(), max_size=4).map(tuple),
    spent=st.dictionaries(names, st.tuples(st.integers(0, WINDOW_MAX), counts), max_size=3),
)

entries = st.builds(Entry, names, names, intervals(), st.integers(0, POINTS))


@st.composite
def holds(draw: st.DrawFn) -> Hold:
    """Draw a legal hold."""
    start = draw(st.integers(0, POINTS - 1))
    return Hold(start, draw(st.integers(start + 1, POINTS)), draw(instants))


@st.composite
def destinations(draw: st.DrawFn, name: str) -> DestinationShares:
    """Draw a destination's part of a document."""
    first = draw(st.integers(0, WINDOW_MAX - 10))
    terms = Terms(
        destination=name,
        capacity=draw(capacities),
        window_seconds=draw(st.integers(1, WINDOW_SECONDS_MAX)),
        from_window=first,
        until_window=first + draw(st.integers(0, 10)),
        on_expiry=draw(st.builds(OnExpiry, st.integers(0, 1000), st.integers(0, SPAN_MAX_MS))),
        guard_ms=draw(st.integers(0, 60_000)),
        pacing=draw(st.sampled_from(Pacing)),
        enforce=draw(st.booleans()),
    )
    members = draw(
        st.lists(entries, max_size=4, unique_by=lambda entry: (entry.host, entry.instance))
    )
    return DestinationShares(terms, tuple(draw(st.lists(holds(), max_size=3))), tuple(members))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Draw a legal document."""
    ordered = sorted(draw(st.sets(names, max_size=3)))
    return Document(
        shard=draw(st.integers(0, SHARDS_MAX - 1)),
        epoch=draw(st.integers(1, EPOCH_MAX)),
        published_at_ms=draw(instants),
        valid_until_ms=draw(instants),
        destinations=tuple(draw(destinations(name)) for name in ordered),
    )


@st.composite
def pointers(draw: st.DrawFn) -> tuple[int, Pointer]:
    """Draw a shard and a legal pointer of it."""
    shard = draw(st.integers(0, SHARDS_MAX - 1))
    newest_first = sorted(draw(st.sets(st.integers(1, EPOCH_MAX), max_size=4)), reverse=True)
    documents = tuple(
        PointedDocument(
            epoch=epoch,
            key=document_key(shard, epoch),
            sha256=draw(st.binary(min_size=32, max_size=32)).hex(),
            size_bytes=draw(st.integers(1, 64 * 1024 * 1024)),
            published_at_ms=draw(instants),
            valid_until_ms=draw(instants),
        )
        for epoch in newest_first
    )
    return shard, Pointer(documents)
