"""The metrics of the catalogue, counted and told in the text form of Prometheus.

Decides nothing: a name that is not in the catalogue is a fault at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from balancer.app.catalogue import CATALOGUE

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SECONDS_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class PrometheusMetrics:
    """`balancer.ports.Metrics` on a registry of its own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no type here
        self._registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        # By name and labels: to look a counter up in the library costs more than to count.
        self._counted: dict[tuple[str | tuple[str, str], ...], Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._labels = {metric.name: metric.labels for metric in CATALOGUE}
        for metric in CATALOGUE:
            meaning = f"{metric.meaning} ({metric.unit})."
            if metric.kind == "counter":
                self._counters[metric.name] = Counter(
                    metric.name, meaning, metric.labels, registry=self._registry
                )
            elif metric.kind == "gauge":
                self._gauges[metric.name] = Gauge(
                    metric.name, meaning, metric.labels, registry=self._registry
                )
            else:
                self._histograms[metric.name] = Histogram(
                    metric.name,
                    meaning,
                    metric.labels,
                    registry=self._registry,
                    buckets=SECONDS_BUCKETS,
                )

    def count(self, name: str, amount: float = 1, labels: Mapping[str, str] | None = None) -> None:
        """See the port."""
        key: tuple[str | tuple[str, str], ...] = (name, *(labels or {}).items())
        counter = self._counted.get(key)
        if counter is None:
            counter = self._counters[name]
            if labels:
                counter = counter.labels(**labels)
            self._counted[key] = counter
        counter.inc(amount)

    def gauge(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """See the port."""
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def observe(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """See the port."""
        histogram = self._histograms[name]
        (histogram.labels(**labels) if labels else histogram).observe(value)

    def forget(self, name: str, labels: Mapping[str, str]) -> None:
        """See the port."""
        self._gauges[name].remove(*(labels[label] for label in self._labels[name]))

    def text(self) -> bytes:
        """Return every metric in the text form."""
        return generate_latest(self._registry)
