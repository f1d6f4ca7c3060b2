"""Metrics that can be asked, and the system's clock, for tests of ingest."""

from __future__ import annotations

import time
from collections.abc import Mapping


class Counts:
    """`balancer.ports.Metrics` in a dictionary; a reason follows the name after a colon."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}

    def count(self, name: str, amount: float = 1, labels: Mapping[str, str] | None = None) -> None:
        key = name if labels is None else f"{name}:{labels['reason']}"
        self.counts[key] = self.counts.get(key, 0) + amount

    def gauge(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        self.counts[name] = value

    def observe(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        raise AssertionError(name)

    def forget(self, name: str, labels: Mapping[str, str]) -> None:
        raise AssertionError(name)


class SystemClock:
    """`balancer.ports.Clock` of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
