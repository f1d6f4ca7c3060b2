"""The time of this machine."""

from __future__ import annotations

import time


class SystemClock:
    """`balancer.ports.Clock` as the operating system tells it."""

    def now_ms(self) -> int:
        """See the port."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """See the port."""
        return time.monotonic_ns() // 1_000_000
