"""What ``GET /distribution/<host>`` says beside its body, as both sides know it.

Decides the words. Knows nothing of HTTP beyond them.
"""

from __future__ import annotations

from typing import Final

NOBODY: Final = "nobody of this host was ever seen"
"""What a balancer's 404 says in ``detail`` of a host; any other 404 is of a wrong address."""

ROUND_HEADER: Final = "Permit-Round-Seconds"
"""The header that tells how long a round takes, which is what a worker's period must be."""
