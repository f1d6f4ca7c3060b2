"""The document store on S3.

Decides the order of puts (file, then pointer) and which files a round needs. Knows nothing of
what is in a document beyond its dates. The blocking driver runs on threads.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from balancer.adapters.s3.objects import Bucket, S3Config
from balancer.errors import BalancerError, ConflictError
from balancer.ports import StoredShard
from worker_sdk.errors import WireError
from worker_sdk.wire.distribution import (
    Document,
    decode_document,
    document_key,
    encode_document,
    sha256_hex,
)
from worker_sdk.wire.limits import (
    DOCUMENT_COMPRESSED_MAX_BYTES,
    LAYOUT_MAX_BYTES,
    POINTER_MAX_BYTES,
)
from worker_sdk.wire.pointer import (
    LAYOUT_KEY,
    PointedDocument,
    Pointer,
    decode_layout,
    decode_pointer,
    encode_layout,
    encode_pointer,
    pointer_key,
)

THREADS: Final = 8
_EPOCH: Final = re.compile(r"/(\d{12})\.jsonl\.gz$")
_T = TypeVar("_T")


class S3DocumentStore:
    """`balancer.ports.DocumentStore` on a bucket."""

    def __init__(self, config: S3Config) -> None:
        self._bucket = Bucket(config)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")
        self._read: dict[tuple[int, int], tuple[Document, PointedDocument]] = {}
        self._dropped: dict[int, set[int]] = {}

    async def _call(self, function: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def check(self) -> None:
        """Check that the bucket is there; raises as `Bucket.check`."""
        await self._call(self._bucket.check)

    async def open_layout(self, shards: int, *, create: bool = True) -> tuple[int, bool]:
        """See the port."""
        found = await self._call(lambda: self._bucket.get(LAYOUT_KEY, LAYOUT_MAX_BYTES))
        if found is not None:
            return decode_layout(found[0]), False
        if not create:
            raise BalancerError("the store has no layout yet; it is made by permit-balancer serve")
        try:
            await self._call(lambda: self._bucket.put(LAYOUT_KEY, encode_layout(shards), tag=None))
        except ConflictError:
            return await self.open_layout(shards, create=False)
        return shards, True

    async def load(self, shard: int, *, now_ms: int) -> StoredShard:
        """See the port."""
        found = await self._call(lambda: self._bucket.get(pointer_key(shard), POINTER_MAX_BYTES))
        try:
            pointer = Pointer(()) if found is None else decode_pointer(found[0], shard)
        except WireError as error:
            raise BalancerError(f"{pointer_key(shard)} cannot be read: {error}") from error
        tag = None if found is None else found[1]
        digests = {pointed.epoch: pointed.sha256 for pointed in pointer.documents}
        # After the pointer: what it names is in the listing then.
        listed = await self._call(lambda: self._bucket.list(f"shards/{shard}/"))
        epochs = sorted(
            (int(match[1]) for key, _ in listed if (match := _EPOCH.search(key))), reverse=True
        )
        dropped = self._dropped.setdefault(shard, set())
        dropped &= set(epochs)
        wanted = [epoch for epoch in epochs if epoch not in dropped]
        documents: list[Document] = []
        unreadable: list[int] = []
        for epoch in wanted:
            document = await self._document(shard, epoch, digests.get(epoch))
            if document is None:
                unreadable.append(epoch)
            elif _counts(document, now_ms):
                documents.append(document)
            else:
                dropped.add(epoch)
                self._read.pop((shard, epoch), None)
        return StoredShard(
            documents=tuple(documents),
            pointed_epochs=tuple(pointed.epoch for pointed in pointer.documents),
            tag=tag,
            largest_epoch=max([0, *epochs, *digests]),
            unreadable_epochs=tuple(unreadable),
        )

    async def _document(self, shard: int, epoch: int, digest: str | None) -> Document | None:
        known = self._read.get((shard, epoch))
        if known is not None:
            return known[0]
        key = document_key(shard, epoch)
        found = await self._call(lambda: self._bucket.get(key, DOCUMENT_COMPRESSED_MAX_BYTES))
        if found is None or (digest is not None and sha256_hex(found[0]) != digest):
            return None
        try:
            document = await self._call(lambda: decode_document(found[0]))
        except WireError:
            return None
        if (document.shard, document.epoch) != (shard, epoch):
            return None
        self._read[shard, epoch] = (document, _pointed(document, found[0]))
        return document

    async def publish(self, document: Document, *, keep: Sequence[int], tag: str | None) -> str:
        """See the port."""
        shard = document.shard
        body = await self._call(lambda: encode_document(document))
        key = document_key(shard, document.epoch)
        await self._call(lambda: self._bucket.put(key, body, tag=None))
        pointed = _pointed(document, body)
        self._read[shard, document.epoch] = (document, pointed)
        kept = [self._read[shard, epoch][1] for epoch in keep if (shard, epoch) in self._read]
        pointer = encode_pointer(Pointer((pointed, *kept)))
        return await self._call(lambda: self._bucket.put(pointer_key(shard), pointer, tag=tag))

    async def remove_older(self, shard: int, *, before_ms: int, keep: Sequence[int]) -> int:
        """See the port."""
        listed = await self._call(lambda: self._bucket.list(f"shards/{shard}/"))
        removed = 0
        for key, changed_ms in listed:
            match = _EPOCH.search(key)
            if match and changed_ms < before_ms and int(match[1]) not in keep:
                await self._call(partial(self._bucket.delete, key))
                removed += 1
        return removed

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _pointed(document: Document, body: bytes) -> PointedDocument:
    return PointedDocument(
        epoch=document.epoch,
        key=document_key(document.shard, document.epoch),
        sha256=sha256_hex(body),
        size_bytes=len(body),
        published_at_ms=document.published_at_ms,
        valid_until_ms=document.valid_until_ms,
    )


def _counts(document: Document, now_ms: int) -> bool:
    """Say whether the document may still give somebody permits."""
    until_ms = document.valid_until_ms
    for line in document.destinations:
        until_ms = max(until_ms, document.valid_until_ms + line.terms.on_expiry.for_ms)
    return until_ms > now_ms
