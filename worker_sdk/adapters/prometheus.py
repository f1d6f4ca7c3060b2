"""A client's figures for prometheus-client, read when they are scraped.

Decides nothing: names and meanings are those of `worker_sdk.metrics`.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from worker_sdk.client import PermitClient
from worker_sdk.metrics import CATALOGUE, Measure, measure


class PermitCollector(Collector):
    """A collector to register: ``REGISTRY.register(PermitCollector(client))``.

    prometheus-client's mode for several processes does not read collectors; each process of a
    prefork server has to be scraped by itself.

    Args:
        client: need not be started yet; one for each registry.
    """

    def __init__(self, client: PermitClient) -> None:
        self._client = client

    def describe(self) -> Iterator[Metric]:
        """Yield the names, without asking the client."""
        for entry in CATALOGUE:
            yield _family(entry)

    def collect(self) -> Iterator[Metric]:
        """Yield the present figures."""
        for entry in CATALOGUE:
            family = _family(entry)
            for labels, figure in measure(self._client, entry):
                family.add_metric(labels, figure)
            yield family


def _family(entry: Measure) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if entry.kind == "counter" else GaugeMetricFamily
    return kind(entry.name, f"{entry.meaning} ({entry.unit}).", labels=entry.labels)
