"""The benchmark of a permit measures limiters that work, each of them granted."""

from __future__ import annotations

import pytest

from benchmarks import permit_cost


def test_every_contender_grants_what_it_is_asked_for() -> None:
    with permit_cost.our_handle() as handle:
        for name, take in permit_cost.blocking(handle).items():
            granted = take()
            assert granted, name
            assert not getattr(granted, "limited", False), name
        assert handle.state.used == 1


async def test_what_is_awaited_comes_back_at_once() -> None:
    with permit_cost.our_handle() as handle:
        for take in permit_cost.awaited(handle).values():
            await take()
        assert handle.state.used == 1


def test_the_table_has_a_line_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(permit_cost, "CALLS_QUICK", permit_cost.THREADS)
    monkeypatch.setattr(permit_cost, "ROUNDS_QUICK", 1)
    monkeypatch.setattr(permit_cost, "WAITED_SECONDS_QUICK", 0.1)
    permit_cost.main(quick=True)
    told = capsys.readouterr().out
    for name in ("bare lock", "this client", "limits", "pyrate", "throttled-py", "aiolimiter"):
        assert name in told
