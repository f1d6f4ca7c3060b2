"""Shifts what Python tells of the time by the seconds in the file ``CHAOS_CLOCK``, live.

For a child process with this folder in PYTHONPATH: a clock that steps, without a hook in the
product. What C code asks the system itself (signatures of S3, TLS) keeps the true time, and so does
the clock that never steps.
"""

from __future__ import annotations

import os
import threading
import time

LOOK_SECONDS = 0.05

_true_time, _true_time_ns = time.time, time.time_ns
_shift_ns = 0


def _shifted_time() -> float:
    return _true_time() + _shift_ns / 1e9


def _shifted_time_ns() -> int:
    return _true_time_ns() + _shift_ns


def _look(file: str) -> None:
    global _shift_ns  # noqa: PLW0603  # the one thing that this module is about
    try:
        with open(file, encoding="ascii") as text:  # noqa: PTH123  # as little as possible
            _shift_ns = int(float(text.read() or 0) * 1e9)
    except (OSError, ValueError):
        pass  # it is being written


def _follow(file: str) -> None:
    while True:
        time.sleep(LOOK_SECONDS)
        _look(file)


if "CHAOS_CLOCK" in os.environ:
    time.time, time.time_ns = _shifted_time, _shifted_time_ns
    _look(os.environ["CHAOS_CLOCK"])  # else it would be right at first
    threading.Thread(target=_follow, args=(os.environ["CHAOS_CLOCK"],), daemon=True).start()
