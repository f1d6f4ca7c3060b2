"""What safety costs, on the command line, read from a real store."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from balancer.adapters.s3.objects import S3Config
from balancer.adapters.s3.store import S3DocumentStore
from balancer.commands import main
from balancer.embedded import S3Part
from worker_sdk.wire.distribution import DestinationShares, Document, Entry, Hold, Terms

NAME = "orders-db"


async def _publish(s3: S3Part, prefix: str) -> int:
    """Publish a document that promises and a newer one that holds; return the hold's date."""
    now_ms = time.time_ns() // 1_000_000
    window = now_ms // 60_000
    until_ms = (window + 10) * 60_000
    half = ((0, 500_000_000),)
    promise = DestinationShares(
        Terms(NAME, 100, 60, window - 1, window), (), (Entry("gone", "i1", half, 300_000_000),)
    )
    held = DestinationShares(
        Terms(NAME, 100, 60, window, window + 1),
        (Hold(500_000_000, 800_000_000, until_ms), Hold(800_000_000, 800_000_001, until_ms)),
        (Entry("there", "i2", half, 0),),
    )
    store = S3DocumentStore(S3Config(s3.bucket, prefix, s3.endpoint_url, s3.region))
    await store.open_layout(1)
    tag = None
    for epoch, line in ((1, promise), (2, held)):
        document = Document(0, epoch, now_ms, until_ms, (line,))
        tag = await store.publish(document, keep=(), tag=tag)
    store.close()
    return until_ms


@pytest.mark.usefixtures("aws_environment")
def test_points_held_are_told_with_whom_they_are_for_and_until_when(
    s3: S3Part,
    s3_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PERMIT_S3_BUCKET", s3.bucket)
    monkeypatch.setenv("PERMIT_S3_PREFIX", s3_prefix)
    monkeypatch.setenv("PERMIT_S3_ENDPOINT_URL", s3.endpoint_url)
    until_ms = asyncio.run(_publish(s3, s3_prefix))
    time_of_day = time.strftime("%H:%M:%S", time.gmtime(until_ms // 1000))
    capsys.readouterr()
    assert main(["distribution", "show", "--destination", NAME]) == 0
    told = capsys.readouterr().out
    assert "30.000 % (30 permits) held back for safety in 2 holds" in told
    assert f"until {time_of_day} UTC at the latest" in told
    (row,) = (line.split() for line in told.splitlines() if line.startswith("gone"))
    assert row == ["gone", "i1", "30.000", "%", time_of_day]
    assert "not told by the documents" in told
    assert main(["distribution", "show", "--destination", NAME, "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)["documents"]
    assert document["held"] == {
        "points": 300_000_001,
        "percent": 30.0000001,
        "permits": 30,
        "count": 2,
        "until_ms": until_ms,
    }
    assert document["held_for"] == [
        {"host": "gone", "instance": "i1", "points": 300_000_000, "until_ms": until_ms},
        {"host": None, "instance": None, "points": 1, "until_ms": until_ms},
    ]
