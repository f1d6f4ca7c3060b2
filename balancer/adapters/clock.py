"""The time of this machine."""

from __future__ import annotations

import time
from typing import Final

_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps, where there is such a clock: leases run out meanwhile."""


class SystemClock:
    """`balancer.ports.Clock` as the operating system tells it."""

    def now_ms(self) -> int:
        """See the port."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """See the port."""
        return time.clock_gettime_ns(_STEADY) // 1_000_000
