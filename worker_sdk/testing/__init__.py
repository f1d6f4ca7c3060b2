"""Fakes for tests of programs that use the SDK: a balancer in memory and a clock set by hand.

Decides how the fake divides: member number n of a destination, counted by arrival, gets the n-th of
``members`` equal parts of its capacity, and whoever comes later gets nothing. Nobody's part ever
changes, so that a test can count on it. It plans no rounds; the real balancer does.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from typing import Final

from worker_sdk.client import PermitClient
from worker_sdk.core.ladder import Mode
from worker_sdk.errors import ConfigurationError
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
        """Let time pass.

        Raises:
            ConfigurationError: where it is no number of seconds.
        """
        passed_ms = _milliseconds(seconds)
        self.now_ms += passed_ms
        self._mono_ms += passed_ms

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back, as somebody who corrects it would.

        Raises:
            ConfigurationError: where it is no number of seconds.
        """
        self.now_ms += _milliseconds(seconds)

    def wall_ms(self) -> int:
        """Return the Unix instant in milliseconds."""
        return self.now_ms

    def mono_ms(self) -> int:
        """Return the milliseconds that have passed."""
        return self._mono_ms


def _milliseconds(seconds: float) -> int:
    # Anything may come from a program without types.
    given: object = seconds
    if not isinstance(given, (int, float)) or not math.isfinite(given):
        raise ConfigurationError(
            f"seconds must be a number of seconds, not {given!r:.40}; an example: 60"
        )
    return round(given * 1000)


def _check_whole(name: str, value: object, least: int, example: int) -> None:
    if type(value) is not int or value < least:
        raise ConfigurationError(
            f"{name} must be a whole number of at least {least}, not {value!r:.40}; "
            f"an example: {example}"
        )


def _capacities(capacity: object) -> dict[str, int]:
    if not isinstance(capacity, Mapping) or not capacity:
        raise ConfigurationError(
            "capacity must be permits a window by destination, not "
            f'{capacity!r:.40}; an example: {{"orders-db": 30}}'
        )
    for name, permits in capacity.items():
        _check_whole(f"capacity of {name!r:.40}", permits, 0, 30)
    return dict(capacity)


def _is_client(client: object) -> bool:
    return isinstance(client, PermitClient)


def _is_clock(clock: object) -> bool:
    return callable(getattr(clock, "wall_ms", None)) and callable(getattr(clock, "mono_ms", None))


class InMemoryBalancer:
    """A balancer for tests: no server, no planning.

    Args:
        capacity: permits a window, by destination.
        members: into how many equal parts each is divided.
        window_seconds: length of windows.
        guard_ms: nothing is granted so near a window's edge.
        pacing: release within a window.

    Raises:
        ConfigurationError: naming the argument, the fault and an example.
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
        self._capacity = _capacities(capacity)
        _check_whole("members", members, 1, 2)
        _check_whole("window_seconds", window_seconds, 1, 60)
        _check_whole("guard_ms", guard_ms, 0, 250)
        if 2 * guard_ms >= window_seconds * 1000:
            raise ConfigurationError(
                f"guard_ms is {guard_ms}, which leaves nothing of a window of {window_seconds} s; "
                "an example: 250"
            )
        if not isinstance(pacing, Pacing):
            raise ConfigurationError(
                f"pacing must be a Pacing, not {pacing!r:.40}; an example: Pacing.WINDOW"
            )
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
        """Return a client of this balancer, not started, for all of its destinations.

        Raises:
            ConfigurationError: naming the argument, the fault and an example.
        """
        if clock is not None and not _is_clock(clock):
            raise ConfigurationError(
                f"clock must be a ManualClock, not {clock!r:.40}; an example: ManualClock()"
            )
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
        ConfigurationError: if it is no client.
    """
    if not _is_client(client):
        raise ConfigurationError(
            f"client must be a PermitClient, not {client!r:.40}; an example: balancer.client()"
        )
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
