"""A file system of its own for a server's data, in memory, that can be made full.

Decides when it is full: it is made as small as what it holds, so that nothing has to be written to
fill it. To mount one takes root, and rights that some containers do not give even to root.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SIZE_BYTES = 2 * 1024**3
"""At most; it takes as much memory as is written to it."""

MOUNT_SECONDS = 10


class SmallDisk:
    """What is mounted at a folder; unmount it when its server has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def mount(self) -> bool:
        """Mount it at the folder, made if need be; False where that is not allowed."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = f"size={SIZE_BYTES},mode=700"
        return os.geteuid() == 0 and _run(
            "mount", "-t", "tmpfs", "-o", options, "permit-test", self
        )

    def unmount(self) -> None:
        """Take it away with all that it holds."""
        assert _run("umount", "-l", self)

    def fill(self) -> None:
        """Leave no room."""
        found = os.statvfs(self._folder)
        self._resize((found.f_blocks - found.f_bfree) * found.f_frsize)

    def make_room(self) -> None:
        """Give it room again."""
        self._resize(SIZE_BYTES)

    def _resize(self, size_bytes: int) -> None:
        assert _run("mount", "-o", f"remount,size={size_bytes}", self)

    def __str__(self) -> str:
        return str(self._folder)


def _run(*command: object) -> bool:
    words = [str(word) for word in command]
    try:
        ran = subprocess.run(words, check=False, capture_output=True, timeout=MOUNT_SECONDS)
    except FileNotFoundError:
        return False
    return ran.returncode == 0
