"""What members may still be spending, by documents and acknowledgements."""

from __future__ import annotations

import pytest

from balancer.core.model import MemberRecord
from balancer.core.reservations import oldest_epochs, promises_of, reserved_permits
from balancer.core.rows import Rows
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Terms
from worker_sdk.wire.shares import POINTS

T0 = 1_800_000_000_000
WINDOW_MS = 60_000
MEMBER = ("h", "i")


def document(epoch: int, safe_percent: int, published_ms: int) -> Document:
    points = POINTS // 100 * safe_percent
    entry = Entry(*MEMBER, ((0, points),), points)
    terms = Terms("db", 100, 60, T0 // WINDOW_MS + epoch, T0 // WINDOW_MS + epoch + 1)
    line = DestinationShares(terms, (), (entry,))
    return Document(0, epoch, published_ms, T0 + 100 * WINDOW_MS, (line,))


DOCUMENTS = [document(7, 20, T0 + 600), document(6, 50, T0 + 400), document(5, 90, T0 + 200)]


def reserved(acknowledged_epoch: int, seen_ms: int, documents: list[Document]) -> int:
    record = MemberRecord(*MEMBER, None, T0, T0, None, acknowledged_epoch, seen_ms)
    start_ms = T0 + 10 * WINDOW_MS
    published_ms = {known.epoch: known.published_at_ms for known in documents}
    found = reserved_permits(
        promises_of(documents)["db"],
        oldest_epochs({MEMBER: record}, published_ms, start_ms=start_ms),
        Rows.of([MEMBER]),
        start_ms=start_ms,
        window_ms=WINDOW_MS,
    )
    return int(found.live[0])


@pytest.mark.parametrize(
    ("epoch", "permits"), [(0, 90), (4, 90), (5, 90), (6, 50), (7, 20)], ids=str
)
def test_the_largest_safe_share_from_the_acknowledged_document_on_is_reserved(
    epoch: int, permits: int
) -> None:
    assert reserved(epoch, T0 + 700, DOCUMENTS) == permits


def test_an_epoch_that_was_never_published_acknowledges_nothing() -> None:
    assert reserved(99, T0 + 700, DOCUMENTS) == 90


def test_a_false_epoch_is_not_believed_later_when_it_has_come() -> None:
    assert reserved(7, T0 + 500, DOCUMENTS) == 90


def test_an_acknowledgement_of_a_document_that_is_lost_counts_for_nothing() -> None:
    assert reserved(6, T0 + 700, [DOCUMENTS[0], DOCUMENTS[2]]) == 90


def test_an_epoch_seen_at_the_instant_of_its_planning_is_false() -> None:
    assert reserved(7, T0 + 600, DOCUMENTS) == 90
