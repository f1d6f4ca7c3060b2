"""The simulation can tell right from wrong: a safety rule left out makes it fail."""

from __future__ import annotations

import pytest

from balancer.core import destination_plan
from tests.simulation.test_adversary import run
from tests.support.adversary import OverrunError

SEEDS = 60


def promise_nothing(*_: object, **__: object) -> dict[object, object]:
    """Rule 8 left out: what older documents promise is not kept."""
    return {}


def run_all() -> None:
    for seed in range(SEEDS):
        run(seed, capacity_changes=False, skewed=False)


def test_reservations_left_out_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination_plan, "reserved_permits", promise_nothing)
    with pytest.raises(OverrunError):
        run_all()
