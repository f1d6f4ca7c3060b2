"""What aiokafka may say in the host's log on behalf of this client.

Decides that each of its messages is said at most once a minute: while a broker is away it repeats
some of them several times a second, and the client itself counts and warns of what failed. Only
what is logged on the client's own thread is held back: the host may use aiokafka too, and what that
says is the host's. Nothing of the host's configuration of logging is changed, and whoever sets the
logger ``aiokafka`` to DEBUG hears everything.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

LOGGER: Final = "aiokafka"
AGAIN_SECONDS: Final = 60.0
MESSAGES_MAX: Final = 64
"""So many kinds of messages are told apart; further ones are not said."""


class _Own(threading.local):
    """What this thread has said, by message without its arguments; None if it is the host's."""

    said_mono: dict[str, float] | None = None


_own: Final = _Own()


class _Seldom(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record goes on to the host's handlers."""
        said_mono = _own.said_mono
        if said_mono is None or logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
            return True
        now_mono = time.monotonic()
        message = str(record.msg)
        last_mono = said_mono.get(message)
        if last_mono is None and len(said_mono) >= MESSAGES_MAX:
            return False
        if last_mono is not None and now_mono - last_mono < AGAIN_SECONDS:
            return False
        said_mono[message] = now_mono
        return True


_SELDOM: Final = _Seldom()


def speak_seldom() -> None:
    """Hold back what aiokafka repeats on this thread from now on.

    Call it when aiokafka is loaded; calling it again does nothing.
    """
    if _own.said_mono is not None:
        return
    _own.said_mono = {}
    # A logger's filter does not see what its children log.
    names = [name for name in logging.root.manager.loggerDict if name.startswith(f"{LOGGER}.")]
    for name in (LOGGER, *names):
        logging.getLogger(name).addFilter(_SELDOM)
