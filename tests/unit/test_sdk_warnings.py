"""What a client logs: each cause once a minute, and none hides another."""

from __future__ import annotations

import logging

import pytest

from tests.support.real_clients import await_condition
from worker_sdk import PermitClient
from worker_sdk.testing import ManualClock
from worker_sdk.transports.memory import MemorySink, MemorySource


def test_a_failure_of_one_kind_does_not_hide_another_and_each_is_told_once_a_minute(
    permit_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink, source = MemorySink(), MemorySource()
    sink.fault, source.fault = "the broker is away", "the store is away"
    client = PermitClient(
        destinations=["db"],
        kafka=lambda: sink,
        distribution=lambda _: source,
        host="host",
        flush_seconds=1,
        clock=permit_clock,
    )
    with caplog.at_level(logging.WARNING, "worker_sdk"), client:
        await_condition(
            lambda: (
                client.state.flushes_failed > 1
                and client.state.failures.get("read:TransportError", 0) > 1
            ),
            "both fail again and again",
        )
        told = sorted(record.getMessage().partition(":")[0] for record in caplog.records)
        assert told == ["distribution", "reports"]
        permit_clock.advance(61)
        await_condition(lambda: len(caplog.records) == 4, "each is told once more")
        sink.fault = source.fault = None
