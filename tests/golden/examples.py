"""The values that the golden files hold, and the files' names.

``python -m tests.golden.examples`` writes them anew; a changed file is a changed contract.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final

from worker_sdk.wire.compression import gzip_bytes
from worker_sdk.wire.distribution import (
    DestinationShares,
    Document,
    Entry,
    Hold,
    OnExpiry,
    Pacing,
    Terms,
    encode_document,
)
from worker_sdk.wire.pointer import (
    PointedDocument,
    Pointer,
    document_key,
    encode_layout,
    encode_pointer,
    sha256_hex,
)
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple, encode_batch

FOLDER: Final = Path(__file__).parent
NOW_MS: Final = 1_795_999_992_000
WINDOW: Final = 29_933_333
SHARDS: Final = 8

HELLO: Final = UsageBatch(
    host="worker-07",
    instance="5f0c9a52d1e84b7c",
    group="eu",
    sent_at_ms=NOW_MS,
    state=MemberState.STARTING,
    tuples=(UsageTuple("orders-db", NOW_MS, NOW_MS, 0, 0, 0, 0, 0, 0),),
)
RUNNING: Final = UsageBatch(
    host="worker-07",
    instance="5f0c9a52d1e84b7c",
    group="eu",
    sent_at_ms=NOW_MS + 60_012,
    state=MemberState.RUNNING,
    epochs={7: 4711, 5: 90},
    tuples=(
        UsageTuple("orders-db", NOW_MS, NOW_MS + 60_000, 4711, 20_000, 19_990, 35, 1_250, 58_750),
        UsageTuple('日本/注文 "B"', NOW_MS, NOW_MS + 60_000, 90, 7, 0, 0, 0, 0),
    ),
)
GOODBYE: Final = UsageBatch(
    host="worker-07",
    instance="5f0c9a52d1e84b7c",
    sent_at_ms=NOW_MS + 90_000,
    state=MemberState.LEAVING,
    epochs={7: 4712},
    tuples=(
        UsageTuple(
            "orders-db", NOW_MS + 60_000, NOW_MS + 89_990, 4711, 10_000, 8_400, 0, 0, 25_000
        ),
    ),
    spent={"orders-db": (WINDOW + 1, 11_900)},
)
BATCHES: Final = {"hello": HELLO, "running": RUNNING, "goodbye": GOODBYE}

DOCUMENT: Final = Document(
    shard=7,
    epoch=4711,
    published_at_ms=NOW_MS + 26_000,
    valid_until_ms=NOW_MS + 228_000,
    destinations=(
        DestinationShares(
            Terms("billing", 0, 60, WINDOW + 1, WINDOW + 2, pacing=Pacing.WINDOW), (), ()
        ),
        DestinationShares(
            Terms(
                "orders-db",
                100_000,
                60,
                WINDOW + 1,
                WINDOW + 2,
                on_expiry=OnExpiry(permille=500, for_ms=600_000),
            ),
            (Hold(990_000_000, 1_000_000_000, NOW_MS + 168_000),),
            (
                Entry("worker-07", "5f0c9a52d1e84b7c", ((0, 200_000_000),), 180_000_000),
                Entry(
                    "日本/01",
                    "a1",
                    ((200_000_000, 800_000_000), (810_000_000, 990_000_000)),
                    0,
                ),
            ),
        ),
    ),
)


def document_text(document: Document) -> bytes:
    """Return the text of a document's file, decompressed."""
    return gzip.decompress(encode_document(document))


def golden_files() -> dict[str, bytes]:
    """Return every golden file's content by name, as this version writes it."""
    files = {f"usage-{name}.json": encode_batch(batch) for name, batch in BATCHES.items()}
    files["usage-running.json.gz"] = gzip_bytes(encode_batch(RUNNING))
    body = encode_document(DOCUMENT)
    files["document.jsonl.gz"] = body
    files["document.jsonl"] = document_text(DOCUMENT)
    files["layout.json"] = encode_layout(SHARDS)
    return files


def pointer_for(body: bytes) -> Pointer:
    """Return the pointer that names a file of `DOCUMENT`, and an older one behind it."""
    return Pointer(
        (
            PointedDocument(
                4711,
                document_key(7, 4711),
                sha256_hex(body),
                len(body),
                DOCUMENT.published_at_ms,
                DOCUMENT.valid_until_ms,
            ),
            PointedDocument(
                4710, document_key(7, 4710), "0" * 64, 512, NOW_MS - 34_000, NOW_MS + 168_000
            ),
        )
    )


if __name__ == "__main__":
    for name, content in golden_files().items():
        (FOLDER / name).write_bytes(content)
    pointer = pointer_for((FOLDER / "document.jsonl.gz").read_bytes())
    (FOLDER / "pointer.json").write_bytes(encode_pointer(pointer))
