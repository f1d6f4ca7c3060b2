"""Sinks and sources that a user wrote, kept to what the client's threads can bear.

Decides that whatever one of them raises is an error of its call and nothing more, also where it is
no `Exception`: `sys.exit` in a library, a timeout of gevent, a failing assertion of pytest. A
thread of the client that ended by it would never report, or read, again. Knows nothing of what is
sent or read.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

from worker_sdk.errors import TransportError
from worker_sdk.transports.base import Reading, ReportSink, SendError, ShareSource
from worker_sdk.wire.usage import UsageBatch


def ends_its_greenlet(error: BaseException) -> bool:
    """Say whether an error is the way in which greenlets are told to end."""
    greenlet: Any = sys.modules.get("greenlet")
    return greenlet is not None and isinstance(error, greenlet.GreenletExit)


class ShelteredSink:
    """A report sink that raises nothing but an `Exception`, and that only where it sends."""

    def __init__(self, sink: ReportSink) -> None:
        self._sink = sink

    def send(self, batch: UsageBatch, timeout_seconds: float) -> None:
        """Deliver ``batch`` within the time.

        Raises:
            SendError: naming what was not acknowledged.
            Exception: whatever else the sink raises.
        """
        try:
            self._sink.send(batch, timeout_seconds)
        except Exception:
            raise
        except BaseException as error:
            if ends_its_greenlet(error):
                raise
            raise SendError(batch, type(error).__name__) from error

    def interrupt(self) -> None:
        """End a `send` under way soon."""
        with contextlib.suppress(Exception):  # in the host's thread: its own exits are its own
            self._sink.interrupt()

    def close(self, timeout_seconds: float) -> None:
        """Let go of every connection within the time."""
        try:
            self._sink.close(timeout_seconds)
        except BaseException as error:
            if ends_its_greenlet(error):
                raise


class ShelteredSource:
    """A share source that raises nothing but an `Exception`, and that only where it reads."""

    def __init__(self, source: ShareSource) -> None:
        self._source = source

    @property
    def can_wait(self) -> bool:
        """Whether `read` can hold on until something changes."""
        try:
            return bool(self._source.can_wait)
        except Exception:
            return False

    def read(self, held: Mapping[int, int], wait_seconds: float) -> Reading:
        """Return what is new.

        Raises:
            Exception: where nothing could be read.
        """
        try:
            return self._source.read(held, wait_seconds)
        except Exception:
            raise
        except BaseException as error:
            if ends_its_greenlet(error):
                raise
            raise TransportError(type(error).__name__) from error

    def interrupt(self) -> None:
        """End a `read` under way soon."""
        with contextlib.suppress(Exception):
            self._source.interrupt()
