"""Whether this is still the process in which something was begun.

Decides it without a call to the system where the kernel helps: a page of memory that it clears in
every forked child, also in one whose fork ran none of Python's hooks. Elsewhere the process's
number is asked for each time.
"""

from __future__ import annotations

import mmap
import os
import sys
from typing import Final, Protocol

_WIPE_ON_FORK: Final = 18
"""MADV_WIPEONFORK of Linux 4.14 and newer, for which Python up to 3.13 has no name."""

_NO_ADVICE: Final = 0x7FFF


class Birthmark(Protocol):
    """What has 1 as its first item in the process that it was made in, and 0 in its children."""

    def __getitem__(self, item: int, /) -> int:
        """Return it."""


NOBODYS: Final[Birthmark] = b"\0"
"""The mark of no process."""

_present: Birthmark = NOBODYS


class _Number:
    """For systems that do not clear memory."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def __getitem__(self, _: int, /) -> int:
        return int(os.getpid() == self._pid)


def present_birthmark() -> Birthmark:
    """Return the mark of this process."""
    global _present  # noqa: PLW0603 - one page a process is enough
    if not _present[0]:
        _present = _make_page() or _Number()
    return _present


def _make_page() -> Birthmark | None:
    if sys.platform != "linux":
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page.madvise(_WIPE_ON_FORK)
    except (OSError, ValueError):
        return None
    try:
        page.madvise(_NO_ADVICE)
    except (OSError, ValueError):
        page[0] = 1
        return page
    return None  # who takes any advice, as some emulators do, heeds none
