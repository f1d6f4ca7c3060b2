"""The two clocks of a member: the wall's for windows, the monotonic one for periods.

Decides nothing; the only place of the SDK's decisions that reads a clock is behind this face.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a member reads the time from."""

    def wall_ms(self) -> int:
        """Return the Unix instant in milliseconds."""

    def mono_ms(self) -> int:
        """Return the milliseconds of a clock that never steps."""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Return the Unix instant in milliseconds."""
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        """Return the milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000
