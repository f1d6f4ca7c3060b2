"""No document is published that passes what its readers accept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from balancer.core import destination_plan, early, invariants
from balancer.core.invariants import readers_take_it
from balancer.core.memory import Memory
from balancer.core.model import Destination, MemberRecord, Plan, RoundKind, Snapshot, Usage
from balancer.core.planner import plan
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Hold, Terms

T0 = 1_800_000_000_000
TERMS = Terms("db", 100, 60, 30_000_000, 30_000_001)


def planned(kind: RoundKind, now_ms: int, hosts: str, *documents: Document) -> Plan:
    usage = [Usage(host, "i", "db", T0 - 60_000, T0, 0, 9, 9, 0, 0, 0, T0) for host in hosts]
    snapshot = Snapshot(
        shard=0,
        kind=kind,
        round_ms=60_000,
        ttl_ms=180_000,
        destinations=(Destination("db", 1_000),),
        members=tuple(MemberRecord(host, "i", None, T0, T0) for host in hosts),
        usage=usage,
        documents=documents,
        current_epoch=max((document.epoch for document in documents), default=0),
        epoch_floor=0,
    )
    return plan(snapshot, Memory(), now_ms)


def test_whoever_comes_amid_a_round_to_a_full_line_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (destination_plan, early, invariants):
        monkeypatch.setattr(module, "DESTINATION_MEMBERS_MAX", 4)
    regular = planned(RoundKind.REGULAR, T0, "abc")
    assert regular.document is not None
    amid = planned(RoundKind.EARLY, T0 + 2_000, "abcdefg", regular.document)
    assert amid.document is not None
    assert not amid.broken
    assert [entry.host for entry in amid.document.destinations[0].entries] == [*"abcd"]
    later = planned(RoundKind.EARLY, T0 + 4_000, "abcdefg", amid.document, regular.document)
    assert later.document is None


def test_more_than_readers_take_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    line = DestinationShares(
        TERMS,
        (Hold(90, 91, T0), Hold(91, 92, T0)),
        (Entry("a", "i", ((0, 1), (2, 3)), 0), Entry("b", "i", ((4, 5),), 0)),
    )
    second = replace(line, terms=replace(TERMS, destination="db2"), holds=(), entries=())
    document = Document(0, 1, T0, T0, (line, second))
    assert readers_take_it(document) == []
    for name in (
        "DOCUMENT_DESTINATIONS_MAX",
        "DESTINATION_MEMBERS_MAX",
        "DESTINATION_HOLDS_MAX",
        "ENTRY_INTERVALS_MAX",
    ):
        monkeypatch.setattr(invariants, name, 1)
    assert readers_take_it(document) == [
        "2 destinations are more than readers take",
        "db: 2 members are more than readers take",
        "db: 2 holds are more than readers take",
        "db: 2 intervals of a member are more than readers take",
    ]
