"""Chooses loopback ports for servers that take a number and cannot be handed a socket.

A port is drawn below the range from which the kernel serves outgoing connections, since a part
keeps its port while it is down and an outgoing connection must not take it in that time. It was
free when it was chosen; whether it still is shows when the server binds it, so that whoever starts
a server tries again with other ports when it could not (``is_free`` tells).
"""

import random
import socket
from pathlib import Path

from balancer.embedded.errors import EmbeddedError

LOOPBACK = "127.0.0.1"
LOWEST_PORT = 10_240
TRIES = 500

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int) -> bool:
    """Says whether a server could listen on a loopback port just now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def choose_ports(count: int) -> list[int]:
    """Draws ``count`` different loopback ports that are free.

    Raises:
        EmbeddedError: Hardly any port of the range is free.
    """
    highest = _end_of_range()
    chosen: list[int] = []
    for _ in range(TRIES):
        port = random.randint(LOWEST_PORT, highest)  # noqa: S311 - no secret
        if port not in chosen and is_free(port):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise EmbeddedError(
        f"found no {count} free ports from {LOWEST_PORT} to {highest} on {LOOPBACK}"
    )


def _end_of_range() -> int:
    try:
        first_outgoing = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first_outgoing = 32_768
    # A machine that serves outgoing connections from nearly everywhere leaves no room below.
    return first_outgoing - 1 if first_outgoing > LOWEST_PORT + 1_000 else 65_535
