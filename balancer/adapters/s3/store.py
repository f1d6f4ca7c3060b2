"""The document store on S3.

Decides the order of puts (file, then pointer) and which files a round needs. Knows nothing of
what is in a document beyond its dates. The blocking driver runs on threads, each call bounded.

Beside the documents the pointer carries ``unexpired_from``, the oldest epoch that may still give
somebody permits; readers ignore it. With it a new leader lists and reads what counts and not a
whole day of files.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from balancer.adapters.s3.objects import Bucket, S3Config
from balancer.adapters.s3.threads import Threads
from balancer.core.entry_columns import EntryColumns
from balancer.core.reservations import gives_until_ms
from balancer.errors import BalancerError, ConflictError, UnavailableError
from balancer.ports import CurrentShard, StoredShard
from worker_sdk.errors import WireError
from worker_sdk.wire.distribution import Document, decode_document, encode_document
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
    document_key,
    encode_layout,
    encode_pointer,
    pointer_key,
    sha256_hex,
)
from worker_sdk.wire.strict import as_object, dump_json, parse_json

THREADS: Final = 8
CALL_SECONDS: Final = 30
"""One call, its retries and the reading of a large file included."""

_EPOCH: Final = re.compile(r"/(\d{12})\.jsonl\.gz$")
_UNEXPIRED_FROM: Final = "unexpired_from"
_UNEXPIRED: Final = "unexpired"
"""Beside what readers go by, a pointer says which documents may still count, ``[epoch, until_ms]``
each: so a leader that takes over misses a file that is lost."""

_UNEXPIRED_MAX: Final = 1_000
"""The newest so many, so that a pointer stays small however long documents are valid."""

_T = TypeVar("_T")


@dataclass(slots=True)
class _Known:
    """What this process has read of a shard; files never change."""

    documents: dict[int, tuple[Document, PointedDocument]] = field(default_factory=dict)
    counting: dict[int, int] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)
    unexpired_from: int = 0


class S3DocumentStore:
    """`balancer.ports.DocumentStore` on a bucket."""

    def __init__(self, config: S3Config) -> None:
        self._bucket = Bucket(config)
        self._threads = Threads(THREADS)
        self._shards: dict[int, _Known] = {}

    async def _call(self, function: Callable[[], _T]) -> _T:
        try:
            return await self._threads.call(function, CALL_SECONDS)
        except TimeoutError as error:
            raise UnavailableError(f"S3 did not answer within {CALL_SECONDS} s") from error

    async def check(self) -> None:
        """Check that the bucket is there; raises as `Bucket.check`."""
        await self._call(self._bucket.check)

    async def open_layout(self, shards: int, *, create: bool = True) -> tuple[int, bool]:
        """See the port."""
        read = partial(self._bucket.get, LAYOUT_KEY, LAYOUT_MAX_BYTES, may_hide=True)
        found = await self._call(read)
        if found is not None:
            try:
                return decode_layout(found.body), False
            except WireError as error:
                raise BalancerError(f"the store's {LAYOUT_KEY} is broken: {error}") from error
        if not create:
            raise BalancerError("the store has no layout yet; permit-balancer serve makes it")
        try:
            layout = encode_layout(shards)
            await self._call(partial(self._bucket.put, LAYOUT_KEY, layout, tag=None, may_hide=True))
        except ConflictError:
            return await self.open_layout(shards, create=False)
        return shards, True

    async def load(self, shard: int, *, now_ms: int) -> StoredShard:
        """See the port."""
        known = self._shards.setdefault(shard, _Known())
        pointer, tag, oldest, counting = await self._pointer(shard)
        named = {epoch for epoch, until_ms in counting.items() if until_ms > now_ms}
        listed = await self._epochs(shard, max(known.unexpired_from, oldest))
        digests = {pointed.epoch: pointed.sha256 for pointed in pointer.documents}
        named |= digests.keys()
        known.expired &= listed | named
        documents: list[Document] = []
        unreadable: list[int] = []
        wanted = sorted((listed | named) - known.expired, reverse=True)
        for epoch, document in zip(
            wanted,
            await asyncio.gather(*(self._document(shard, e, digests.get(e)) for e in wanted)),
            strict=True,
        ):
            if document is None:
                unreadable.append(epoch)
            elif gives_until_ms(document) > now_ms:
                documents.append(document)
            else:
                known.expired.add(epoch)
        # By itself: `current` forgets documents that no pointer names, and that count all the same.
        counted = known.counting = {read.epoch: gives_until_ms(read) for read in documents}
        known.documents = {e: read for e, read in known.documents.items() if e in counted}
        largest = max([0, *listed, *digests])
        known.unexpired_from = min([largest, *counted, *unreadable])
        return StoredShard(
            documents=tuple(documents),
            pointed_epochs=tuple(pointed.epoch for pointed in pointer.documents),
            tag=tag,
            largest_epoch=largest,
            unreadable_epochs=tuple(unreadable),
        )

    async def current(self, shard: int, *, tag: str | None) -> CurrentShard | None:
        """See the port."""
        read = partial(
            self._bucket.get, pointer_key(shard), POINTER_MAX_BYTES, tag=tag, may_hide=True
        )
        found = await self._call(read)
        if found is None:
            return None if tag is not None else CurrentShard((), None)
        try:
            pointer = decode_pointer(found.body, shard)
        except WireError as error:
            raise BalancerError(f"the pointer of shard {shard} is broken: {error}") from error
        documents: list[Document] = []
        for pointed in pointer.documents:
            document = await self._document(shard, pointed.epoch, pointed.sha256)
            if document is None:
                raise UnavailableError(f"S3: document {pointed.epoch} of shard {shard} is missing")
            documents.append(document)
        known = self._shards.setdefault(shard, _Known())
        epochs = {document.epoch for document in documents}
        newest = max(epochs, default=0)  # what is newer came meanwhile, by a round of this process
        known.documents = {
            epoch: read
            for epoch, read in known.documents.items()
            if epoch in epochs or epoch > newest
        }
        return CurrentShard(tuple(documents), found.tag)

    async def _pointer(self, shard: int) -> tuple[Pointer, str | None, int, dict[int, int]]:
        """Return the pointer, its tag, the oldest epoch that it says may count, and those that do.

        One that cannot be read counts as naming nothing, so that the files repair it.
        """
        read = partial(self._bucket.get, pointer_key(shard), POINTER_MAX_BYTES, may_hide=True)
        found = await self._call(read)
        if found is None:
            return Pointer(()), None, 0, {}
        try:
            pointer = decode_pointer(found.body, shard)
        except WireError:
            return Pointer(()), found.tag, 0, {}
        value = as_object(parse_json(found.body), "a pointer")
        oldest = value.get(_UNEXPIRED_FROM)
        counting = _counting(value.get(_UNEXPIRED))
        return pointer, found.tag, oldest if type(oldest) is int else 0, counting

    async def _epochs(self, shard: int, oldest: int) -> set[int]:
        after = document_key(shard, oldest - 1) if oldest > 1 else None
        listed = await self._call(partial(self._bucket.list, f"shards/{shard}/", after=after))
        return {int(match[1]) for key, _ in listed if (match := _EPOCH.search(key))}

    async def _document(self, shard: int, epoch: int, digest: str | None) -> Document | None:
        known = self._shards.setdefault(shard, _Known())
        read = known.documents.get(epoch)
        if read is not None:
            return read[0] if digest in (None, read[1].sha256) else None
        key = document_key(shard, epoch)
        found = await self._call(partial(self._bucket.get, key, DOCUMENT_COMPRESSED_MAX_BYTES))
        if found is None or (digest is not None and sha256_hex(found.body) != digest):
            return None
        try:
            # As columns: entries of their own would take some ten times the memory.
            document = await self._call(
                partial(decode_document, found.body, gather=partial(EntryColumns.of, known={}))
            )
        except WireError:
            return None
        if (document.shard, document.epoch) != (shard, epoch):
            return None
        known.documents[epoch] = (document, _pointed(document, found.body))
        return document

    async def publish(self, document: Document, *, keep: Sequence[int], tag: str | None) -> str:
        """See the port."""
        shard = document.shard
        try:
            body = await self._call(partial(encode_document, document))
        except WireError as error:
            raise BalancerError(f"shard {shard} cannot be published: {error}") from error
        key = document_key(shard, document.epoch)
        await self._call(partial(self._bucket.put, key, body, tag=None))
        known = self._shards.setdefault(shard, _Known())
        known.documents[document.epoch] = (document, _pointed(document, body))
        known.counting[document.epoch] = gives_until_ms(document)
        missing = [epoch for epoch in keep if epoch not in known.documents]
        if missing:
            raise BalancerError(f"shard {shard}: documents {missing} were not read")
        pointed = [known.documents[epoch][1] for epoch in (document.epoch, *keep)]
        pointer = encode_pointer(Pointer(tuple(pointed)))
        value = as_object(parse_json(pointer), "a pointer")
        counting = [[epoch, until_ms] for epoch, until_ms in known.counting.items()]
        body = dump_json(
            {
                **value,
                _UNEXPIRED_FROM: known.unexpired_from,
                _UNEXPIRED: sorted(counting)[-_UNEXPIRED_MAX:],
            }
        )
        return await self._call(
            partial(self._bucket.put, pointer_key(shard), body, tag=tag, may_hide=True)
        )

    async def remove_older(self, shard: int, *, before_ms: int, keep: Sequence[int]) -> int:
        """See the port."""
        listed = await self._call(partial(self._bucket.list, f"shards/{shard}/"))
        removed = 0
        for key, changed_ms in listed:
            match = _EPOCH.search(key)
            if match and changed_ms < before_ms and int(match[1]) not in keep:
                await self._call(partial(self._bucket.delete, key))
                removed += 1
        return removed

    async def check_conditional_put(self, name: str) -> list[str]:
        """Try conditional puts on an object of this name; return what is wrong, in sentences."""
        key = f"doctor/{name}"
        faults = []
        try:
            tag = await self._call(partial(self._bucket.put, key, b"1", tag=None))
            for condition, wrong in (("If-None-Match", None), ("If-Match", '"0"')):
                try:
                    await self._call(partial(self._bucket.put, key, b"2", tag=wrong))
                except ConflictError:
                    continue
                faults.append(f"a put with {condition} that must be refused was taken")
            if not faults:
                await self._call(partial(self._bucket.put, key, b"3", tag=tag))
        finally:
            await self._call(partial(self._bucket.delete, key))
        return faults

    def close(self) -> None:
        """Close the connections; a call under way is left to itself."""
        self._bucket.close()


def _pointed(document: Document, body: bytes) -> PointedDocument:
    return PointedDocument(
        epoch=document.epoch,
        key=document_key(document.shard, document.epoch),
        sha256=sha256_hex(body),
        size_bytes=len(body),
        published_at_ms=document.published_at_ms,
        valid_until_ms=document.valid_until_ms,
    )


def _counting(value: object) -> dict[int, int]:
    """Return epoch to date of what a pointer says may still count; what is odd is left out."""
    pairs = value if isinstance(value, list) else []
    return {
        pair[0]: pair[1]
        for pair in pairs
        if isinstance(pair, list) and [type(part) for part in pair] == [int, int]
    }
