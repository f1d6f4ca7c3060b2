"""What kind of process a client finds itself in.

Decides whether the work behind a client can run there, and by what all processes of a machine know
that it is theirs. Knows nothing of clients; it looks at what the process has loaded and loads
nothing itself.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any, Final

from worker_sdk.core.machines import UNKNOWN
from worker_sdk.errors import ConfigurationError

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"

_UWSGI_WITH_THREADS: Final = (2, 0, 27)
"""From this version on uWSGI lets threads run without being told to."""

_UWSGI_THREADS: Final = frozenset({"enable-threads", "threads"})


def check_surroundings() -> None:
    """Refuse a process in which the work behind a client could not run.

    Raises:
        ConfigurationError: saying why in a sentence, with the remedy.
    """
    # Inside of uWSGI, and only there, a module of this name is loaded.
    uwsgi: Any = sys.modules.get("uwsgi")
    if uwsgi is None or tuple(getattr(uwsgi, "version_info", ()))[:3] >= _UWSGI_WITH_THREADS:
        return
    names = (name if isinstance(name, str) else name.decode() for name in uwsgi.opt)
    if _UWSGI_THREADS.isdisjoint(names):
        raise ConfigurationError(
            "this uWSGI runs no threads, so that the client's own would stand still; "
            "start it with --enable-threads"
        )


def machine() -> str:
    """Return four hexadecimal digits that all processes of this machine share, until it restarts.

    Containers on one machine have the same, clones of a machine others. Where the system does not
    tell (only Linux does), `worker_sdk.core.machines.UNKNOWN`.
    """
    try:
        with open(_BOOT_ID, "rb") as file:  # noqa: PTH123 - pathlib would load far more than it is worth
            boot = file.read().strip()
    except OSError:
        return UNKNOWN
    # A sum of 16 bits will do, and hashlib would load OpenSSL.
    digits = f"{zlib.crc32(boot) & 0xFFFF:04x}"
    return "ffff" if digits == UNKNOWN else digits
