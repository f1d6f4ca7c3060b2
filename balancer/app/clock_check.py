"""Whether this machine's clock is right enough to plan by.

Decides how far it may be from the repository's, which all replicas share. Documents are for windows
of time: a leader whose clock is ten minutes fast would give out shares for windows far ahead, and
until those have passed nobody could give them out anew. So such a replica leads nothing and
publishes nothing, and another one does.
"""

from __future__ import annotations

from typing import Final

from balancer.errors import UnavailableError
from balancer.ports import Clock, Repository

WRONG_MIN_MS: Final = 5_000
WRONG_ROUNDS: Final = 4
"""A quarter of a round, at least `WRONG_MIN_MS`: shares then still come within the round."""


async def check_clock(repository: Repository, clock: Clock, round_ms: int) -> None:
    """Check that this machine's clock is right enough to plan by.

    Raises:
        UnavailableError: it is not, or the repository does not tell.
    """
    before_ms = clock.now_ms()
    shared_ms = await repository.now_ms()
    # What the answer's own time may explain is no difference.
    wrong_ms = max(before_ms - shared_ms, 0) or min(clock.now_ms() - shared_ms, 0)
    if abs(wrong_ms) > max(WRONG_MIN_MS, round_ms // WRONG_ROUNDS):
        raise UnavailableError(
            f"this machine's clock is {abs(wrong_ms) / 1000:.1f} s "
            f"{'ahead of' if wrong_ms > 0 else 'behind'} PostgreSQL's: it plans nothing until "
            "they agree; check NTP here, and on PostgreSQL's machine if all replicas say so"
        )
