"""Stand-ins for what the service needs: a clock that is set, metrics that count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

T0 = 1_800_000_000_000


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, ms: int = T0) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class CountingMetrics:
    """Sums by (name, label values)."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.gauges: dict[tuple[str, ...], float] = {}

    @staticmethod
    def _key(name: str, labels: Mapping[str, str] | None) -> tuple[str, ...]:
        return (name, *(labels or {}).values())

    def count(self, name: str, amount: float = 1, labels: Mapping[str, str] | None = None) -> None:
        self.counts[self._key(name, labels)] += int(amount)

    def gauge(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        self.gauges[self._key(name, labels)] = value

    def observe(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        self.counts[self._key(name, labels)] += 1

    def forget(self, name: str, labels: Mapping[str, str]) -> None:
        self.gauges.pop(self._key(name, labels), None)
