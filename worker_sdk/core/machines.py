"""Whether a host's name is used by one machine.

Decides how an instance's id tells its machine, and from when on ids of other machines count: only
those that stay, as a machine that was started again or replaced leaves ids behind for some minutes.
Knows nothing of where ids are read.

Several instances under one host name are usual (the children of a prefork server), and all ids of
one machine begin alike. Ids that do not say their machine take no part.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

UNKNOWN: Final = "0000"
"""The machine of those that cannot know theirs."""

PERIODS_TO_COUNT: Final = 5
"""Another machine's ids count once they have been seen for so many periods: members that are gone
are listed for at most three or four."""

MACHINES_MAX: Final = 64
_ID: Final = re.compile(r"([0-9a-f]{4})-[0-9a-f]{16}")


def make_instance(machine: str, drawn: str) -> str:
    """Return an instance's id.

    Args:
        machine: four hexadecimal digits, the same in all processes of a machine.
        drawn: sixteen hexadecimal digits by chance.
    """
    return f"{machine}-{drawn}"


def machine_of(instance: str) -> str:
    """Return the machine that an id tells; `UNKNOWN` if it tells none."""
    found = _ID.fullmatch(instance)
    return UNKNOWN if found is None else found[1]


class Machines:
    """The machines that use the name of one's host.

    Args:
        instance: one's own id.
        period_ms: of reports.
    """

    def __init__(self, instance: str, period_ms: int) -> None:
        self._own = machine_of(instance)
        self._stay_ms = PERIODS_TO_COUNT * period_ms
        self._since_ms: dict[str, int] = {}
        self._others = 0

    @property
    def count(self) -> int:
        """How many there are, one's own included."""
        return 1 + self._others

    def note(self, instances: Collection[str], mono_ms: int) -> bool:
        """Take the ids that are listed now; say whether there are more machines than before."""
        if self._own == UNKNOWN:
            return False
        listed = sorted({machine_of(instance) for instance in instances} - {UNKNOWN, self._own})
        self._since_ms = {
            machine: self._since_ms.get(machine, mono_ms) for machine in listed[:MACHINES_MAX]
        }
        before = self._others
        self._others = sum(
            mono_ms - since_ms >= self._stay_ms for since_ms in self._since_ms.values()
        )
        return self._others > before
