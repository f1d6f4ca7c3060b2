"""How `demo` ends where it is interrupted, once or by an impatient hand."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import cast

import click
import pytest

from balancer.commands.demo import _until_done_or_interrupted
from balancer.demo.run import Run

ENDING_TURNS = 5


class _Endless:
    """A run that nothing ends but its cancellation, and whose ending takes a while."""

    def __init__(self) -> None:
        self.ended = False

    async def execute(self) -> dict[str, object]:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(ENDING_TURNS):
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(0.01)
            self.ended = True
        return {}


async def test_interrupted_again_and_again_it_still_ends_all_that_it_started() -> None:
    run = _Endless()
    try:
        with pytest.raises(click.Abort):
            async with asyncio.timeout(30):
                await _until_done_or_interrupted(cast("Run", run))
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)
    assert run.ended
