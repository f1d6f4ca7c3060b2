"""How a long-running process of the service shares its time between threads and with the collector.

Decides two settings of the interpreter, for the sake of whoever asks over HTTP.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

COLLECT_AFTER: Final = (10_000, 10, 1_000)
"""Documents of a large fleet are millions of objects without a cycle among them. With Python's own
thresholds each that arrives has the collector walk through all of them, for most of a second in
which nobody is answered; with these a look at what is new takes some 30 ms, and the walk through
everything comes seldom."""

SWITCH_SECONDS: Final = 0.0005
"""So long another thread may compute (documents read, shares planned) while the loop would like
to: with Python's 5 ms each read and each write of a socket may wait as long."""


def prepare_process() -> None:
    """Set both."""
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_SECONDS)
