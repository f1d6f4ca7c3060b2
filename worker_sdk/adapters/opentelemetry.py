"""A client's figures for OpenTelemetry, read when the meter's reader asks.

Decides the spelling: ``permit_client_used_permits_total`` of `worker_sdk.metrics` is
``permit.client.used_permits`` here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from worker_sdk.client import PermitClient
from worker_sdk.metrics import CATALOGUE, Measure, measure

_UNITS: Final = {
    "seconds": "s",
    "part of the capacity": "1",
    "0 or 1": "1",
    "deliveries": "{delivery}",
}


def instrument(client: PermitClient, meter: Meter) -> None:
    """Have the meter observe the client.

    Args:
        client: need not be started yet; one for each meter.
        meter: ``opentelemetry.metrics.get_meter("my-worker")``.
    """
    for entry in CATALOGUE:
        name = entry.name.removesuffix("_total").replace("permit_client_", "permit.client.", 1)
        unit = _UNITS.get(entry.unit, f"{{{entry.unit.removesuffix('s')}}}")
        create = (
            meter.create_observable_counter
            if entry.kind == "counter"
            else meter.create_observable_gauge
        )
        create(name, [_observing(client, entry)], unit, entry.meaning)


def _observing(
    client: PermitClient, entry: Measure
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterator[Observation]:
        for labels, figure in measure(client, entry):
            yield Observation(figure, dict(zip(entry.labels, labels, strict=True)))

    return observe
