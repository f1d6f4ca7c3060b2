"""Reports and shares within the process, for tests.

Decides nothing: it keeps what is sent and gives out what it was told to. Safe for threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from worker_sdk.errors import TransportError
from worker_sdk.transports.base import Reading, SendError
from worker_sdk.wire.distribution import OwnShare
from worker_sdk.wire.usage import UsageBatch

BATCHES_KEPT_MAX: Final = 10_000


class MemorySink:
    """A report sink that keeps what it gets.

    Attributes:
        batches: what was delivered, in order.
        fault: if set, a send fails with this cause.
    """

    def __init__(self, on_batch: Callable[[UsageBatch], None] | None = None) -> None:
        self.batches: list[UsageBatch] = []
        self.fault: str | None = None
        self._on_batch = on_batch

    def send(self, batch: UsageBatch, timeout_seconds: float) -> None:
        """Keep the batch, or fail as told."""
        if self.fault is not None:
            raise SendError(batch, self.fault)
        self.batches.append(batch)
        del self.batches[:-BATCHES_KEPT_MAX]
        if self._on_batch is not None:
            self._on_batch(batch)

    def interrupt(self) -> None:
        """Do nothing."""

    def close(self, timeout_seconds: float) -> None:
        """Do nothing."""


class MemorySource:
    """A share source that gives what was published to it.

    Attributes:
        fault: if set, a read fails with this message.
    """

    can_wait = False

    def __init__(self) -> None:
        self.fault: str | None = None
        self._lock = threading.Lock()
        self._shares: tuple[OwnShare, ...] = ()

    def publish(self, *shares: OwnShare) -> None:
        """Replace what readers get: the shares of all documents that count now."""
        with self._lock:
            self._shares = shares

    def read(self, held: Mapping[int, int], wait_seconds: float) -> Reading:
        """Return what is published."""
        if self.fault is not None:
            raise TransportError(self.fault)
        with self._lock:
            return Reading(self._shares)

    def interrupt(self) -> None:
        """Do nothing."""
