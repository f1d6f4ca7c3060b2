"""What a rule is given and what it gives back.

Decides the one signature of all rules. Knows no rule, no clock and no destination.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

HISTORY_WINDOWS: Final = 16
"""A rule is given so many windows at most."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one member told about one window.

    Attributes:
        used: permits it spent.
        denied: permits it wanted beside those and did not get.
    """

    used: int
    denied: int

    @property
    def wanted(self) -> int:
        """Permits it wanted in all."""
        return self.used + self.denied


Window = Mapping[str, Told]
"""Member to what it told; in the order in which members came."""

History = Sequence[Window]
"""Windows, oldest first, at least one; the members of the newest are those that get a share."""

Shares = Mapping[str, float]
"""Member to its permits a window."""

Allocate = Callable[[History, int, Shares], dict[str, float]]
"""(what members told, capacity in permits a window, shares until now) to shares."""
