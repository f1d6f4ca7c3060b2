"""How the service's log looks: a line for people, or a JSON object a line for programs.

Decides the form only. What is logged has an ``action``, a word that programs can count.
"""

from __future__ import annotations

import json
import logging
import sys
import time


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, action and message; a traceback behind it."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        action = getattr(record, "action", None)
        word = f" [{action}]" if action else ""
        line = (
            f"{at}.{int(record.msecs):03d}Z {record.levelname.lower():7}"
            f"{word} {record.getMessage()}"
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return one JSON object."""
        value = {
            "at_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "action": getattr(record, "action", None),
            "message": record.getMessage(),
        }
        if record.exc_info:
            value["traceback"] = self.formatException(record.exc_info)
        return json.dumps(value, ensure_ascii=False)


def set_up_logs(level: str, form: str) -> None:
    """Log to standard error; what libraries say, only from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("balancer").setLevel(level.upper())
    # It says each refused connection several times a second; readiness says it once.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    # With a traceback, each time that it cannot connect again; whoever asks the pool says it too.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
