"""Requests that wait leave descriptors for the rest of the balancer."""

from __future__ import annotations

import resource

import pytest

from balancer.commands.open_files import OWN_FILES, room_for_waiters

NO_LIMIT = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "wanted", "room", "raised"),
    [
        ((NO_LIMIT, NO_LIMIT), 20_000, 20_000, None),
        ((1 << 20, 1 << 20), 20_000, 20_000, None),
        ((1_024, NO_LIMIT), 20_000, 20_000, 20_000 + OWN_FILES),
        ((1_024, 4_096), 20_000, 4_096 - OWN_FILES, 4_096),
        ((256, 256), 20_000, 128, None),
        ((256, 256), 10, 10, None),
    ],
)
def test_the_limit_is_raised_as_far_as_it_goes_and_the_rest_is_kept(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    wanted: int,
    room: int,
    raised: int | None,
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, to: asked.append(to[0]))
    assert room_for_waiters(wanted) == room
    assert asked == ([] if raised is None else [raised])


def test_a_system_that_refuses_leaves_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, to: tuple[int, int]) -> None:
        raise ValueError

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, NO_LIMIT))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert room_for_waiters(20_000) == 512
