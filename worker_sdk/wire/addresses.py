"""How addresses of Kafka are written in settings, alike for workers and for the balancer.

Decides which text is a list of brokers and says what is wrong with any other. Knows nobody who
connects to them, and no names of settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

EXAMPLE: Final = "broker-1:9092,broker-2:9092"
SHOWN_CHARS: Final = 60
PORT_MAX: Final = 65_535

_HOST: Final = r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:/,@\[\]]+)"
_BROKER: Final = re.compile(rf"{_HOST}(?::(?P<port>[0-9]{{1,5}}))?")
_BARE_IPV6: Final = re.compile(r"[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f.]*")


def kafka_fault(servers: object) -> str | None:
    """Return what is wrong with a list of brokers; None if nothing is.

    Args:
        servers: a text with commas, or a list of texts, as Kafka's clients take either.
    """
    if isinstance(servers, str):
        return _first_fault(servers.split(","))
    if isinstance(servers, (list, tuple)):
        if not servers:
            return "no broker is named"
        return _first_fault(servers)
    return f"{servers!r:.40} is no text"


def _first_fault(brokers: Iterable[object]) -> str | None:
    return next((fault for fault in map(_fault, brokers) if fault is not None), None)


def _fault(broker: object) -> str | None:
    if not isinstance(broker, str):
        return f"{broker!r:.40} is no text"
    text = broker.strip()
    shown = repr(text[:SHOWN_CHARS])
    found = _BROKER.fullmatch(text)
    fault: str | None = None
    if not text:
        fault = "an address is empty"
    elif "@" in text:
        fault = "an address has a user or a password in it, which are settings of their own"
    elif "://" in text:
        fault = f"{shown} is a URL; a broker is named by its host and port alone"
    elif found is None:
        if not _BARE_IPV6.fullmatch(text):
            fault = f"{shown} is no host and port"
    elif found["port"] is not None and not 1 <= int(found["port"]) <= PORT_MAX:
        fault = f"{shown} has a port that there is not"
    return fault
