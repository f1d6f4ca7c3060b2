"""A document store in memory: behaves as the one on S3, and fails where a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from balancer.core.reservations import gives_until_ms
from balancer.errors import BalancerError, ConflictError
from balancer.ports import CurrentShard, StoredShard
from worker_sdk.errors import WireError
from worker_sdk.wire.distribution import Document, decode_document, encode_document


@dataclass
class Objects:
    """What several stores share, as several processes share a bucket."""

    shards: int | None = None
    files: dict[tuple[int, int], bytes] = field(default_factory=dict)
    pointers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    counting: dict[int, dict[int, int]] = field(default_factory=dict)


class MemoryDocumentStore:
    """`balancer.ports.DocumentStore` on dictionaries.

    ``faults`` are raised, one a call, by the calls named; "pointer" fails between file and pointer.
    """

    def __init__(self, objects: Objects | None = None) -> None:
        self.objects = Objects() if objects is None else objects
        self.faults: dict[str, list[BalancerError]] = {}

    def _meet_fault(self, call: str) -> None:
        waiting = self.faults.get(call)
        if waiting:
            raise waiting.pop(0)

    async def check(self) -> None:
        self._meet_fault("check")

    async def open_layout(self, shards: int, *, create: bool = True) -> tuple[int, bool]:
        if self.objects.shards is not None:
            return self.objects.shards, False
        if not create:
            raise BalancerError("the store has no layout yet")
        self.objects.shards = shards
        return shards, True

    def _tag(self, shard: int) -> str | None:
        version = self.objects.versions.get(shard)
        return None if version is None else f'"{version}"'

    def _read(self, shard: int, epoch: int) -> Document | None:
        body = self.objects.files.get((shard, epoch))
        try:
            return None if body is None else decode_document(body)
        except WireError:
            return None

    async def load(self, shard: int, *, now_ms: int) -> StoredShard:
        self._meet_fault("load")
        pointed = self.objects.pointers.get(shard, ())
        listed = {epoch for place, epoch in self.objects.files if place == shard}
        counting = self.objects.counting.get(shard, {})
        named = {epoch for epoch, until_ms in counting.items() if until_ms > now_ms}
        documents, unreadable = [], []
        for epoch in sorted(listed | named | set(pointed), reverse=True):
            document = self._read(shard, epoch)
            if document is None:
                unreadable.append(epoch)
            elif gives_until_ms(document) > now_ms:
                documents.append(document)
        return StoredShard(
            documents=tuple(documents),
            pointed_epochs=pointed,
            tag=self._tag(shard),
            largest_epoch=max([0, *listed, *pointed]),
            unreadable_epochs=tuple(unreadable),
        )

    async def current(self, shard: int, *, tag: str | None) -> CurrentShard | None:
        self._meet_fault("current")
        if tag is not None and tag == self._tag(shard):
            return None
        found = [self._read(shard, epoch) for epoch in self.objects.pointers.get(shard, ())]
        return CurrentShard(tuple(doc for doc in found if doc is not None), self._tag(shard))

    async def publish(self, document: Document, *, keep: Sequence[int], tag: str | None) -> str:
        self._meet_fault("publish")
        shard = document.shard
        if (shard, document.epoch) in self.objects.files:
            raise ConflictError("the file is there")
        self.objects.files[shard, document.epoch] = encode_document(document)
        self._meet_fault("pointer")
        if tag != self._tag(shard):
            raise ConflictError("the pointer was changed")
        self.objects.pointers[shard] = (document.epoch, *keep)
        self.objects.counting[shard] = {
            epoch: gives_until_ms(known)
            for place, epoch in self.objects.files
            if place == shard and (known := self._read(shard, epoch)) is not None
        }
        self.objects.versions[shard] = self.objects.versions.get(shard, 0) + 1
        new = self._tag(shard)
        assert new is not None
        self._meet_fault("answer")
        return new

    async def remove_older(self, shard: int, *, before_ms: int, keep: Sequence[int]) -> int:
        old = [
            (place, epoch)
            for (place, epoch), body in self.objects.files.items()
            if place == shard
            and epoch not in keep
            and decode_document(body).published_at_ms < before_ms
        ]
        for key in old:
            del self.objects.files[key]
        return len(old)
