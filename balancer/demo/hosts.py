"""A host of a scenario and what its process says of itself.

Decides how the accounts of successive processes of one host add up. Knows no process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from balancer.demo.demand import HostPlan
from balancer.demo.processes import Process


@dataclass(slots=True)
class DemoHost:
    """A host of the scenario and the newest account of its process."""

    plan: HostPlan
    process: Process | None = None
    account: dict[str, object] = field(default_factory=dict)
    ended: bool = False
    delivered_before: dict[int, int] = field(default_factory=dict)
    first_permits: dict[str, float] = field(default_factory=dict)

    def take_line(self, line: str) -> None:
        """Take a line of the process; one that is no account is passed over."""
        try:
            account = json.loads(line)
        except ValueError:
            return
        if not isinstance(account, dict) or "instance" not in account:
            return
        if self.account.get("instance") not in (None, account["instance"]):
            self.delivered_before = self.delivered()
        self.account = account
        first = account.get("first_permit_seconds")
        if isinstance(first, float):
            self.first_permits[str(account["instance"])] = first

    def delivered(self) -> dict[int, int]:
        """Return absolute window to deliveries, earlier processes of the host included."""
        total = dict(self.delivered_before)
        counts = self.account.get("delivered")
        if isinstance(counts, dict):
            for window, count in counts.items():
                total[int(window)] = total.get(int(window), 0) + int(count)
        return total

    def number(self, name: str) -> int:
        """Return a count of the newest account, 0 where it has none."""
        value = self.account.get(name)
        return value if isinstance(value, int) else 0

    def longest_zero(self, first_window: int) -> int:
        """Return the longest run of windows with demand and nothing delivered."""
        delivered = self.delivered()
        longest = run = 0
        for window, wanted in enumerate(self.plan.demand):
            served = delivered.get(first_window + window, 0)
            run = run + 1 if wanted and not served else 0
            longest = max(longest, run)
        return longest
