"""The two ports of a member: where its reports go and where its shares come from.

Decides what a driver must keep to. A driver bounds every call in time, translates the errors of its
library into `TransportError`, logs nothing and never retries on its own beyond what it says.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from worker_sdk.core.clockcheck import Dated
from worker_sdk.errors import TransportError
from worker_sdk.wire.distribution import OwnShare
from worker_sdk.wire.usage import UsageBatch


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose reports and shares they are."""

    host: str
    instance: str
    destinations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look at the distribution brought.

    Attributes:
        shares: of documents not held yet, complete for each shard from the oldest on.
        failures: a cause for each thing that could not be read or taken.
        instances: all that are listed under the host's name, if that was looked for.
        dates: of the answers, to compare clocks by.
        round_seconds: length of the balancer's round, if it is told.
    """

    shares: tuple[OwnShare, ...] = ()
    failures: tuple[str, ...] = ()
    instances: frozenset[str] | None = None
    dates: tuple[Dated, ...] = ()
    round_seconds: int | None = None


class SendError(TransportError):
    """A batch, or a part of it, was not acknowledged.

    Attributes:
        undelivered: what to merge back.
        cause: a few words for counting.
    """

    def __init__(self, undelivered: UsageBatch, cause: str, detail: str = "") -> None:
        self.undelivered = undelivered
        self.cause = cause
        why = f"{cause}: {detail}" if detail else cause
        count = len(undelivered.tuples)
        told = "1 tuple was" if count == 1 else f"{count} tuples were"
        super().__init__(f"{told} not delivered: {why}")


class ReportSink(Protocol):
    """Where batches go. All calls come from one thread, but for `interrupt`."""

    def send(self, batch: UsageBatch, timeout_seconds: float) -> None:
        """Deliver ``batch`` within the time.

        Raises:
            SendError: naming what was not acknowledged.
        """

    def interrupt(self) -> None:
        """End a `send` under way soon, from another thread; raise nothing."""

    def close(self, timeout_seconds: float) -> None:
        """Let go of every connection within the time; raise nothing."""


class ShareSource(Protocol):
    """Where shares come from. All calls come from one thread, but for `interrupt`."""

    @property
    def can_wait(self) -> bool:
        """Whether `read` can hold on until something changes."""

    def read(self, held: Mapping[int, int], wait_seconds: float) -> Reading:
        """Return what is new.

        Args:
            held: newest epoch held of each shard.
            wait_seconds: how long to hold on for a change, where that is possible.

        Raises:
            TransportError: where nothing could be read.
        """

    def interrupt(self) -> None:
        """End a `read` under way soon, from another thread; raise nothing."""


class Deadline:
    """A point of the monotonic clock until which a call may take."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def remaining_seconds(self) -> float:
        """Return the seconds left, not below 0."""
        return max(0.0, self._at - time.monotonic())

    def check(self, what: str) -> None:
        """Raise TransportError if the time is over."""
        if self.remaining_seconds() <= 0:
            raise TransportError(f"{what} took too long")


def names_of(error: BaseException) -> str:
    """Return a short cause for counting: the names of the error's type and its origin's."""
    origin = error.__cause__
    return type(error).__name__ if origin is None else type(origin).__name__


def shards_wanted(destinations: Collection[str], shards: int) -> tuple[int, ...]:
    """Return the shards in which the destinations lie, ascending."""
    from worker_sdk.wire.pointer import shard_of  # noqa: PLC0415 - hashlib only where it is needed

    return tuple(sorted({shard_of(name, shards) for name in destinations}))
