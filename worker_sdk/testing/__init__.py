"""Fakes for tests of programs that use the SDK: a balancer in memory and a clock set by hand.

Decides how the fake divides: member number n of a destination, counted by arrival, gets the n-th of
``members`` equal parts of its capacity, and whoever comes later gets nothing. Nobody's part ever
changes, so that a test can count on it. It plans no rounds; the real balancer does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from worker_sdk.client import PermitClient
from worker_sdk.core.ladder import Mode
from worker_sdk.transports.base import Identity, Reading
from worker_sdk.transports.memory import MemorySink
from worker_sdk.wire.distribution import OwnShare, Pacing, Terms
from worker_sdk.wire.shares import POINTS, Interval
from worker_sdk.wire.usage import MemberState, UsageBatch

WINDOWS_COVERED: Final = 10_000
READY_SECONDS: Final = 10.0


class ManualClock:
    """A clock that stands until it is told to go.

    Attributes:
        now_ms: the Unix instant it shows.
    """

    def __init__(self, now_ms: int = 1_796_000_000_000) -> None:
        self.now_ms = now_ms
        self._mono_ms = 0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ms += round(seconds * 1000)
        self._mono_ms += round(seconds * 1000)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back, as somebody who corrects it would."""
        self.now_ms += round(seconds * 1000)

    def wall_ms(self) -> int:
        """Return the Unix instant in milliseconds."""
        return self.now_ms

    def mono_ms(self) -> int:
        """Return the milliseconds that have passed."""
        return self._mono_ms


class InMemoryBalancer:
    """A balancer for tests: no server, no planning.

    Args:
        capacity: permits a window, by destination.
        members: into how many equal parts each is divided.
        window_seconds: length of windows.
        guard_ms: nothing is granted so near a window's edge.
        pacing: release within a window.
    """

    def __init__(
        self,
        capacity: Mapping[str, int],
        *,
        members: int = 1,
        window_seconds: int = 60,
        guard_ms: int = 0,
        pacing: Pacing = Pacing.WINDOW,
    ) -> None:
        self._capacity = dict(capacity)
        self._parts = members
        self._window_seconds = window_seconds
        self._guard_ms = guard_ms
        self._pacing = pacing
        self._lock = threading.Lock()
        self._arrived: list[tuple[str, str]] = []
        self.sink = MemorySink(self._take)

    @property
    def batches(self) -> list[UsageBatch]:
        """Every batch received, in order."""
        return list(self.sink.batches)

    def client(
        self,
        *,
        host: str = "test-host",
        flush_seconds: float = 60.0,
        clock: ManualClock | None = None,
    ) -> PermitClient:
        """Return a client of this balancer, not started, for all of its destinations."""
        return PermitClient(
            destinations=list(self._capacity),
            kafka=lambda: self.sink,
            distribution=lambda identity: _Source(self, identity, clock),
            host=host,
            flush_seconds=flush_seconds,
            clock=clock,
        )

    def _take(self, batch: UsageBatch) -> None:
        member = (batch.host, batch.instance)
        with self._lock:
            if batch.state is MemberState.STARTING and member not in self._arrived:
                self._arrived.append(member)

    def shares(self, identity: Identity, now_ms: int) -> tuple[OwnShare, ...]:
        """Return a member's shares: of one document, in force since the window before ``now_ms``.

        Nothing for a member that has not said hello.
        """
        with self._lock:
            member = (identity.host, identity.instance)
            if member not in self._arrived:
                return ()
            number = self._arrived.index(member)
        intervals: tuple[Interval, ...] = ()
        if number < self._parts:
            intervals = ((POINTS * number // self._parts, POINTS * (number + 1) // self._parts),)
        window = now_ms // (self._window_seconds * 1000)
        return tuple(
            OwnShare(
                shard=0,
                epoch=1,
                published_at_ms=now_ms,
                valid_until_ms=now_ms + WINDOWS_COVERED * self._window_seconds * 1000,
                terms=Terms(
                    destination=name,
                    capacity=self._capacity[name],
                    window_seconds=self._window_seconds,
                    from_window=window - 1,
                    until_window=window + WINDOWS_COVERED,
                    guard_ms=self._guard_ms,
                    pacing=self._pacing,
                ),
                intervals=intervals,
                safe_points=0,
            )
            for name in identity.destinations
        )


def wait_until_ready(client: PermitClient, seconds: float = READY_SECONDS) -> None:
    """Wait until a started client has its first distribution for every destination.

    This waits by real time, as the client's threads are real.

    Raises:
        TimeoutError: if that takes longer than ``seconds``.
    """
    deadline = time.monotonic() + seconds
    for name in client.destinations:
        handle = client.destination(name)
        while handle.state.mode is Mode.STARTING:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the client has no distribution for {name!r} in {seconds:g} s")
            time.sleep(0.002)


class _Source:
    can_wait = False

    def __init__(
        self, balancer: InMemoryBalancer, identity: Identity, clock: ManualClock | None
    ) -> None:
        self._balancer = balancer
        self._identity = identity
        self._clock = clock

    def read(self, held: Mapping[int, int], wait_seconds: float) -> Reading:
        now_ms = time.time_ns() // 1_000_000 if self._clock is None else self._clock.wall_ms()
        return Reading(self._balancer.shares(self._identity, now_ms))

    def interrupt(self) -> None:
        """Do nothing."""
