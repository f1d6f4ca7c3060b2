"""How a process of the service divides its time between threads and the garbage collector.

Decides two settings of the interpreter, so that answers over HTTP are not held up for long.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

COLLECT_AFTER: Final = (10_000, 10, 1_000)
"""Documents of a large fleet are millions of objects without a cycle among them. With Python's own
thresholds the collector walks through all of them at each document that arrives, and for most of a
second nobody is answered; with these a look at the new objects takes some 30 ms, and a walk through
all is rare."""

SWITCH_SECONDS: Final = 0.0005
"""So long another thread, which reads a document or plans, may go on while the event loop waits for
the interpreter. With Python's 5 ms each read and write of a socket may wait as long."""


def prepare_process() -> None:
    """Set both."""
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_SECONDS)
