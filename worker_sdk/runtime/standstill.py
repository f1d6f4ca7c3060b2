"""An event loop of the host's that stands still because its thread waits for a permit.

Decides when that is said, and in which words: as such a wait begins, once in a member's life. It
is legal, as in a program's first lines, and shows under load alone. Loads no event loop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from worker_sdk.runtime.member import Member
from worker_sdk.transports.threads import has_greenlets


def tell_of_standstill(member: Member, destination: str) -> None:
    """Warn if the present thread, which is about to wait, runs an event loop."""
    if member.is_told_of_standstill or not _runs_a_loop():
        return
    member.is_told_of_standstill = True
    member.warn(
        "event loop",
        "event loop: it stands still while its thread waits for a permit of %r; "
        'in coroutines write "await handle.acquire_async()" or "async with handle.permit():"',
        destination,
    )


def _runs_a_loop() -> bool:
    # What is not loaded runs nowhere. Half loaded, by another thread, it has no such name yet.
    running: Callable[[], object] | None = getattr(
        sys.modules.get("asyncio.events"), "_get_running_loop", None
    )
    # Greenlets share their thread's loop: this one may be another's, which goes on meanwhile.
    return running is not None and running() is not None and not has_greenlets()
