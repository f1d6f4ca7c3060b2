"""What HTTP serves: the current documents, from memory.

Decides which documents answer for a host, and when an answer has changed. Knows no server.
Documents are swapped whole, so that a reader sees one state or the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from worker_sdk.wire.answers import encode_host_answer
from worker_sdk.wire.distribution import Document

ANSWERS_MAX: Final = 200_000
"""So many answers are kept of one version; whoever asks for more makes them anew."""


class DistributionView:
    """The documents of all shards, newest first, and the answers made of them."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.version = 0
        self._documents: dict[int, tuple[Document, ...]] = {}
        self._by_host: dict[str, set[int]] = {}
        self._answers: dict[tuple[str, str | None], bytes | None] = {}
        self._changed = asyncio.Event()

    def publish(self, shard: int, documents: Sequence[Document]) -> None:
        """Take a shard's current documents; waiters wake if they differ from those known."""
        known = self._documents.get(shard, ())
        if [document.epoch for document in known] == [document.epoch for document in documents]:
            return
        self._documents[shard] = tuple(documents)
        self._by_host = {
            host: others
            for host, known_shards in self._by_host.items()
            if (others := known_shards - {shard})
        }
        for document in documents:
            for line in document.destinations:
                for entry in line.entries:
                    self._by_host.setdefault(entry.host, set()).add(shard)
        self._answers = {}
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def documents_of(self, shard: int) -> tuple[Document, ...]:
        """Return a shard's documents, newest first."""
        return self._documents.get(shard, ())

    def host_answer(self, host: str, instance: str | None = None) -> bytes | None:
        """Return the body of ``GET /distribution/<host>``; None where the host has no entry."""
        key = (host, instance)
        if host not in self._by_host:
            return None
        if key not in self._answers:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            documents = sorted(
                (
                    document
                    for shard in self._by_host.get(host, ())
                    for document in self._documents[shard]
                ),
                key=lambda document: document.epoch,
                reverse=True,
            )
            self._answers[key] = (
                encode_host_answer(host, self.shards, documents, None, instance)
                if documents
                else None
            )
        return self._answers[key]

    async def wait_changed(self, version: int, timeout_seconds: float) -> int:
        """Wait until the version is no longer ``version``, or the time is over; return it."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.version == version:
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.version
