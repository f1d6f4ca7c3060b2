"""A blocking wait on an event loop's own thread is told of, once, with what to write instead."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from worker_sdk import DestinationHandle, PermitTimeout
from worker_sdk.testing.plugin import StartPermitClient

SOON = 0.01
Told = Callable[[], list[str]]


@pytest.fixture
def db(permit_client: StartPermitClient) -> DestinationHandle:
    return permit_client({"db": 1}).destination("db")


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    """What was warned of until now."""
    with caplog.at_level(logging.WARNING, "worker_sdk"):
        yield lambda: [record.getMessage() for record in caplog.records]


def wait_in_vain(db: DestinationHandle) -> None:
    with pytest.raises(PermitTimeout):
        db.acquire(timeout=SOON)


async def test_a_wait_that_holds_up_the_loop_is_told_of_once(
    db: DestinationHandle, told: Told
) -> None:
    db.acquire()
    wait_in_vain(db)
    assert len(told()) == 1
    for words in ("event loop: it stands still", "'db'", "acquire_async()", "async with handle.pe"):
        assert words in told()[0]
    wait_in_vain(db)
    with pytest.raises(PermitTimeout), db.permit(timeout=SOON):
        pass
    assert len(told()) == 1


async def test_a_wait_for_room_is_told_of_too(db: DestinationHandle, told: Told) -> None:
    db.limit_concurrency(1)
    async with db.permit():
        with pytest.raises(PermitTimeout), db.permit(timeout=SOON):
            pass
    assert [words.partition(":")[0] for words in told()] == ["event loop"]


async def test_what_does_not_wait_or_not_there_is_told_nothing(
    db: DestinationHandle, told: Told
) -> None:
    db.limit_concurrency(1)
    with db.permit():
        assert not db.try_acquire()
        for timeout in (0, -1):
            with pytest.raises(PermitTimeout):
                db.acquire(timeout=timeout)
            with pytest.raises(PermitTimeout), db.permit(timeout=timeout):
                pass
        with pytest.raises(PermitTimeout):
            await db.acquire_async(timeout=SOON)
        with pytest.raises(PermitTimeout):
            async with db.permit(timeout=SOON):
                pass
        await asyncio.to_thread(wait_in_vain, db)
    assert told() == []


def test_a_program_without_an_event_loop_is_told_nothing_and_loads_none(
    db: DestinationHandle, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.acquire()
    wait_in_vain(db)
    monkeypatch.delitem(sys.modules, "asyncio.events")
    waiting = threading.Thread(target=wait_in_vain, args=(db,))
    waiting.start()
    waiting.join(20)
    assert ("asyncio.events" in sys.modules, told()) == (False, [])
