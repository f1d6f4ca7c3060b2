"""What a client can be measured by: a catalogue, and the present figures of it.

Decides names, kinds, units and labels, once for every binding. Measuring asks the client for its
state and nothing else: it neither starts a client nor, in a forked child, makes it a member. Knows
no library of metrics; `worker_sdk.adapters.prometheus` and `worker_sdk.adapters.opentelemetry` bind
this to two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from worker_sdk.client import PermitClient
from worker_sdk.core.ladder import Mode
from worker_sdk.runtime.states import ClientState, DestinationState

Sample = tuple[tuple[str, ...], float]
"""The values of a measure's labels, and the figure."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One entry of the catalogue.

    Attributes:
        name: as Prometheus has it.
        kind: ``counter`` (since the client's start) or ``gauge``.
        unit: what one of it is.
        labels: names of its labels.
        meaning: in a few words.
    """

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    labels: tuple[str, ...]
    meaning: str


OfClient = Callable[[ClientState], Iterable[Sample]]
OfDestination = Callable[[DestinationState], Iterable[Sample]]


def measure(client: PermitClient, wanted: Measure) -> Iterator[Sample]:
    """Yield the present figures of one measure; none for a client that has not started.

    Raises:
        KeyError: if the measure is none of `CATALOGUE`.
    """
    of_client, of_destination = _READINGS[wanted]
    if not client.has_state:
        return
    if of_client is not None:
        yield from of_client(client.state)
    if of_destination is not None:
        for name in client.destinations:
            for labels, figure in of_destination(client.destination(name).state):
                yield (name, *labels), figure


def _used(state: DestinationState) -> Iterable[Sample]:
    return [((mode,), used) for mode, used in state.used_by_mode.items()]


def _age(state: DestinationState) -> Iterable[Sample]:
    return [] if state.age_seconds is None else [((), state.age_seconds)]


def _mode(state: DestinationState) -> Iterable[Sample]:
    return [((mode.value,), int(mode is state.mode)) for mode in Mode]


def _reports(state: ClientState) -> Iterable[Sample]:
    return [(("delivered",), state.flushes_delivered), (("failed",), state.flushes_failed)]


def _failures(state: ClientState) -> Iterable[Sample]:
    for key, count in state.failures.items():
        what, _, cause = key.partition(":")
        yield (what, cause), count


_BY_DESTINATION: Final[tuple[tuple[Measure, OfDestination], ...]] = (
    (
        Measure(
            "permit_client_used_permits_total",
            "counter",
            "permits",
            ("destination", "mode"),
            "Taken, by the ground on which they were given",
        ),
        _used,
    ),
    (
        Measure(
            "permit_client_denied_permits_total",
            "counter",
            "permits",
            ("destination",),
            "Asked for and not given, timed out waiters included",
        ),
        lambda state: [((), state.denied)],
    ),
    (
        Measure(
            "permit_client_refunded_permits_total",
            "counter",
            "permits",
            ("destination",),
            "Given back and spendable again",
        ),
        lambda state: [((), state.refunded)],
    ),
    (
        Measure(
            "permit_client_waiting",
            "gauge",
            "requests",
            ("destination",),
            "Waiting for permits",
        ),
        lambda state: [((), state.waiting)],
    ),
    (
        Measure(
            "permit_client_in_delivery",
            "gauge",
            "deliveries",
            ("destination",),
            "Under way, as far as their end is reported",
        ),
        lambda state: [((), state.in_delivery)],
    ),
    (
        Measure(
            "permit_client_share_ratio",
            "gauge",
            "part of the capacity",
            ("destination",),
            "Share of this member",
        ),
        lambda state: [((), state.share_percent / 100)],
    ),
    (
        Measure(
            "permit_client_granted_permits",
            "gauge",
            "permits",
            ("destination",),
            "What the share gives in the present window",
        ),
        lambda state: [((), state.granted_permits)],
    ),
    (
        Measure(
            "permit_client_spent_permits",
            "gauge",
            "permits",
            ("destination",),
            "Spent in the present window",
        ),
        lambda state: [((), state.spent_permits)],
    ),
    (
        Measure(
            "permit_client_distribution_age_seconds",
            "gauge",
            "seconds",
            ("destination",),
            "Since the document in force was planned",
        ),
        _age,
    ),
    (
        Measure(
            "permit_client_mode",
            "gauge",
            "0 or 1",
            ("destination", "mode"),
            "The ground on which permits are given now",
        ),
        _mode,
    ),
)

_BY_CLIENT: Final[tuple[tuple[Measure, OfClient], ...]] = (
    (
        Measure(
            "permit_client_reports_total",
            "counter",
            "batches",
            ("outcome",),
            "Tries to deliver a report",
        ),
        _reports,
    ),
    (
        Measure(
            "permit_client_undelivered_tuples_total",
            "counter",
            "tuples",
            (),
            "Of failed tries; merged into the next report",
        ),
        lambda state: [((), state.tuples_undelivered)],
    ),
    (
        Measure(
            "permit_client_dropped_tuples_total",
            "counter",
            "tuples",
            (),
            "Lost with a goodbye that could not be delivered",
        ),
        lambda state: [((), state.tuples_dropped)],
    ),
    (
        Measure(
            "permit_client_reads_total",
            "counter",
            "reads",
            (),
            "Looks at the distribution that were answered",
        ),
        lambda state: [((), state.reads)],
    ),
    (
        Measure(
            "permit_client_machines",
            "gauge",
            "machines",
            (),
            "Those that seem to use the host's name, this one included",
        ),
        lambda state: [((), state.machines)],
    ),
    (
        Measure(
            "permit_client_clock_ahead_seconds",
            "gauge",
            "seconds",
            (),
            "That the clock is ahead of those of the answers at least; below 0 if behind",
        ),
        lambda state: [((), state.clock_ahead_seconds)],
    ),
    (
        Measure(
            "permit_client_documents_total",
            "counter",
            "documents",
            (),
            "Newer ones found by reads",
        ),
        lambda state: [((), state.documents_taken)],
    ),
    (
        Measure(
            "permit_client_failures_total",
            "counter",
            "failures",
            ("what", "cause"),
            "Of the work behind the client, by cause (at most 64)",
        ),
        _failures,
    ),
)

_READINGS: Final[dict[Measure, tuple[OfClient | None, OfDestination | None]]] = {
    **{entry: (None, reading) for entry, reading in _BY_DESTINATION},
    **{entry: (reading, None) for entry, reading in _BY_CLIENT},
}

CATALOGUE: Final[tuple[Measure, ...]] = tuple(_READINGS)
"""Every measure there is."""
