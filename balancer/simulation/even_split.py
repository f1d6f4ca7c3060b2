"""What the same demand shows when the capacity is split evenly among the live members.

Decides the yardstick of every run, simulated or real. Knows no planner; members are any hashable
values, windows are absolute indexes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from worker_sdk.wire.shares import POINTS, rotation_points

NO_HEIRS: Final[Mapping[Hashable, Hashable]] = {}


class EvenSplit:
    """A fleet under an even split, window by window.

    Attributes:
        served: what was served in each window so far.
        longest_zero_windows: member to its longest run of windows with work and nothing served.
    """

    def __init__(self, *, keeps_backlog: bool) -> None:
        self.served: list[int] = []
        self.longest_zero_windows: dict[Hashable, int] = {}
        self._keeps_backlog = keeps_backlog
        self._backlog: dict[Hashable, int] = {}
        self._zero: dict[Hashable, int] = {}

    def step(
        self,
        window: int,
        capacity: int,
        demand: Mapping[Hashable, int],
        heirs: Mapping[Hashable, Hashable] = NO_HEIRS,
    ) -> int:
        """Serve a window; return how much was served.

        Args:
            window: its index.
            capacity: permits for all.
            demand: live member to what arrives wanted; work kept by members that are not among
                them falls to those that are.
            heirs: members that are no longer among them to who takes their work.
        """
        count = len(demand)
        for gone, heir in heirs.items():
            self._backlog[heir] = self._backlog.get(heir, 0) + self._backlog.pop(gone, 0)
        left = sum(work for member, work in self._backlog.items() if member not in demand)
        each, odd = divmod(left, count) if count else (0, 0)
        backlog: dict[Hashable, int] = {}
        rotation = rotation_points(window)
        before, total = rotation // POINTS, 0
        for number, (member, arrives) in enumerate(demand.items()):
            up_to = (capacity * (POINTS * (number + 1) // count) + rotation) // POINTS
            permits, before = up_to - before, up_to
            work = arrives + each + (number < odd)
            if self._keeps_backlog:
                work += self._backlog.get(member, 0)
            served = min(permits, work)
            if work and not served:
                self._zero[member] = zero = self._zero.get(member, 0) + 1
                if zero > self.longest_zero_windows.get(member, 0):
                    self.longest_zero_windows[member] = zero
            elif self._zero:
                self._zero.pop(member, None)
            if self._keeps_backlog and work > served:
                backlog[member] = work - served
            total += served
        self._backlog = backlog
        self.served.append(total)
        return total
