"""A client's figures, as prometheus-client and OpenTelemetry give them out."""

from __future__ import annotations

import multiprocessing
import os

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.real_clients import await_condition
from worker_sdk import PermitClient
from worker_sdk.adapters.opentelemetry import instrument
from worker_sdk.adapters.prometheus import PermitCollector
from worker_sdk.metrics import CATALOGUE, measure
from worker_sdk.testing import InMemoryBalancer, ManualClock
from worker_sdk.testing.plugin import StartPermitClient


def used(client: PermitClient) -> PermitClient:
    """Take 3 permits, be refused 4, give 1 back."""
    db = client.destination("db")
    assert db.try_acquire(3)
    assert not db.try_acquire(4)
    assert db.refund() == 1
    return client


@pytest.fixture
def client(permit_client: StartPermitClient) -> PermitClient:
    return used(permit_client(InMemoryBalancer({"db": 10}, members=2)))


EXPECTED = {
    'permit_client_used_permits_total{destination="db",mode="fresh"}': 3,
    'permit_client_used_permits_total{destination="db",mode="stale"}': 0,
    'permit_client_denied_permits_total{destination="db"}': 4,
    'permit_client_refunded_permits_total{destination="db"}': 1,
    'permit_client_waiting{destination="db"}': 0,
    'permit_client_share_ratio{destination="db"}': 0.5,
    'permit_client_granted_permits{destination="db"}': 5,
    'permit_client_spent_permits{destination="db"}': 2,
    'permit_client_distribution_age_seconds{destination="db"}': 0,
    'permit_client_mode{destination="db",mode="fresh"}': 1,
    'permit_client_mode{destination="db",mode="expired"}': 0,
    'permit_client_reports_total{outcome="failed"}': 0,
    "permit_client_dropped_tuples_total": 0,
    "permit_client_documents_total": 1,
}


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def test_prometheus_scrapes_what_the_client_did(client: PermitClient) -> None:
    registry = CollectorRegistry()
    registry.register(PermitCollector(client))
    found = scraped(registry)
    assert {name: found.get(name) for name in EXPECTED} == EXPECTED


def test_failures_are_told_by_cause(permit_clock: ManualClock) -> None:
    balancer = InMemoryBalancer({"db": 1})
    balancer.sink.fault = "broker:away"
    registry = CollectorRegistry()
    with balancer.client(clock=permit_clock) as client:
        registry.register(PermitCollector(client))
        await_condition(lambda: client.state.flushes_failed > 0, "the hello fails")
        permit_clock.advance(1)
    found = scraped(registry)  # a closed client tells its last state
    assert found['permit_client_failures_total{cause="broker:away",what="flush"}'] >= 1
    assert found["permit_client_dropped_tuples_total"] == 1


def test_a_client_that_has_not_started_has_no_figures_yet() -> None:
    client = InMemoryBalancer({"db": 1}).client()
    registry = CollectorRegistry()
    registry.register(PermitCollector(client))
    assert scraped(registry) == {}
    assert not client.has_state


def test_opentelemetry_observes_the_same(client: PermitClient) -> None:
    reader = InMemoryMetricReader()
    instrument(client, MeterProvider([reader]).get_meter("tests"))
    data = reader.get_metrics_data()
    assert data is not None
    metrics = {
        metric.name: metric
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }  # fmt: skip
    points = {
        (name, *sorted((point.attributes or {}).items())): point.value
        for name, metric in metrics.items()
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }
    db = ("destination", "db")
    assert points["permit.client.used_permits", db, ("mode", "fresh")] == 3
    assert points["permit.client.share_ratio", db] == 0.5
    assert points["permit.client.reports", ("outcome", "failed")] == 0
    assert metrics["permit.client.used_permits"].unit == "{permit}"
    assert metrics["permit.client.distribution_age_seconds"].unit == "s"


def _measure_in_child(client: PermitClient, answers: object) -> None:
    found = [sample for entry in CATALOGUE for sample in measure(client, entry)]
    answers.put((found, client.has_state))  # type: ignore[attr-defined]
    client.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_measuring_makes_a_forked_child_no_member(client: PermitClient) -> None:
    forking = multiprocessing.get_context("fork")
    answers = forking.Queue()
    child = forking.Process(target=_measure_in_child, args=(client, answers))
    child.start()
    assert answers.get(timeout=20) == ([], False)
    child.join(20)
    assert child.exitcode == 0


def test_each_name_says_its_kind_and_unit() -> None:
    for entry in CATALOGUE:
        assert entry.name.startswith("permit_client_")
        assert entry.name.endswith("_total") == (entry.kind == "counter"), entry.name
    assert len({entry.name for entry in CATALOGUE}) == len(CATALOGUE)
