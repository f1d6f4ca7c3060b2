"""Recorded rounds for ``permit-balancer simulate --replay``, read from PostgreSQL.

Decides how much is read at once. What it means is the simulation's.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from balancer.commands.common import settings_of

if TYPE_CHECKING:
    from balancer.settings import Settings
    from balancer.simulation.replay import Replay

ROUNDS_AT_ONCE: Final = 10


def read_replay(config_file: Path | None, destination: str, stretch: tuple[str, str]) -> Replay:
    """Return the rounds of a destination in a stretch of time as a scenario.

    Args:
        config_file: with settings; None for the environment alone.
        destination: its name.
        stretch: two instants, as people write them.

    Raises:
        ConfigurationError: where there is too little for a replay, or too much.
        InstantError: where a text is no instant.
        SettingsError: where PostgreSQL is not set.
    """
    from balancer.app.instants import parse_instant  # noqa: PLC0415

    now_ms = time.time_ns() // 1_000_000
    from_ms, until_ms = (parse_instant(text, now_ms) for text in stretch)
    return asyncio.run(_read(settings_of(config_file), destination, from_ms, until_ms))


async def _read(settings: Settings, destination: str, from_ms: int, until_ms: int) -> Replay:
    from balancer.compose import opened_repository  # noqa: PLC0415
    from balancer.core.model import Policy  # noqa: PLC0415
    from balancer.simulation.replay import Recording  # noqa: PLC0415

    recording = Recording(destination)
    async with opened_repository(settings) as repository:
        known = {entry.name: entry for entry in await repository.list_destinations()}
        while True:
            details = await repository.load_details(
                destination, from_ms=from_ms, until_ms=until_ms, limit=ROUNDS_AT_ONCE
            )
            for detail in details:
                recording.add(detail)
            if len(details) < ROUNDS_AT_ONCE:
                break
            from_ms = details[-1].planned_at_ms + 1
    policy = known[destination].policy if destination in known else Policy()
    return recording.replay(policy)
