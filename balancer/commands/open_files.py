"""How many requests may wait, given how many files the process may open.

Decides that waiting requests never take the last descriptors: with none left the balancer could
reach neither its database nor its broker. Raises the limit as far as the system allows.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

OWN_FILES: Final = 512
"""Descriptors kept for the balancer's own connections and files."""

_log = logging.getLogger("balancer.serve")


def room_for_waiters(wanted: int) -> int:
    """Return how many requests may wait, at most ``wanted``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OWN_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if raised > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (OSError, ValueError):  # some systems allow less than they say
            pass
    return min(wanted, max(soft - OWN_FILES, soft // 2))


def warn_of_less_room(wanted: int, room: int) -> None:
    """Say that fewer requests may wait than was wanted, if it is so."""
    if room < wanted:
        _log.warning(
            "open files are limited: %d requests may wait, not the %d of PERMIT_HTTP_WAITERS_MAX; "
            "raise the limit (ulimit -n, LimitNOFILE)",
            room,
            wanted,
            extra={"action": "open_files"},
        )
