"""What kind of process a client finds itself in.

Decides whether the work behind a client can run there, and whether its threads are greenlets.
Knows nothing of clients; it looks at what the process has loaded and loads nothing itself.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from worker_sdk.errors import ConfigurationError

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


def has_greenlets() -> bool:
    """Say whether threads are greenlets here (gevent, eventlet), all on one of the system's."""
    gevent: Any = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        return True
    eventlet: Any = sys.modules.get("eventlet.patcher")
    return eventlet is not None and bool(eventlet.is_monkey_patched("thread"))
