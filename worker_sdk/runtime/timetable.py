"""When a member reports and reads.

Decides the instants from the flush period, Unix time and the member's own phase. Reads no clock.

The period is aligned to Unix time, as the balancer's rounds are. Of a period of 60 s, reports leave
over seconds 0 to 36 (in a short one they end at least 1 s before the planning at 38/60), reads
follow over seconds 48 to 58. A clock that steps never makes two turns come closer than half a
period or stay apart longer than one and a half. What failed for all at once is tried again by each
at another instant.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

_REPORTS_END: Final = 36 / 60
_PLANNING: Final = 38 / 60
_READS_BEGIN: Final = 48 / 60
_READS_SPAN: Final = 10 / 60
_BEFORE_PLANNING_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Timetable:
    """The turns of one member.

    Attributes:
        period_seconds: length of the flush period.
        report_seconds: second of the period at which it reports.
        read_seconds: second of the period at which it reads.
        instance: whose it is.
    """

    period_seconds: float
    report_seconds: float
    read_seconds: float
    instance: str

    def until_report_seconds(self, wall_seconds: float) -> float:
        """Return the time until the next report, from half to one and a half periods."""
        return self._until(self.report_seconds, wall_seconds, least=self.period_seconds / 2)

    def first_report_seconds(self, wall_seconds: float) -> float:
        """Return the time until the first report, at most one period."""
        return self._until(self.report_seconds, wall_seconds, least=0.0)

    def until_read_seconds(self, wall_seconds: float) -> float:
        """Return the time until the next read's turn, at most one period."""
        return self._until(self.read_seconds, wall_seconds, least=0.0)

    def retry_seconds(self, pause_seconds: float, failures: int) -> float:
        """Return the time until the next try: from half to one and a half times the pause.

        Args:
            pause_seconds: what members wait on average.
            failures: how many tries have failed until now.
        """
        return pause_seconds * (0.5 + _fraction(f"{self.instance}/{failures}"))

    def _until(self, phase_seconds: float, wall_seconds: float, *, least: float) -> float:
        seconds = (phase_seconds - wall_seconds) % self.period_seconds
        # A turn that is due this very moment has just been taken.
        return seconds if seconds > max(least, 1e-3) else seconds + self.period_seconds


def make_timetable(period_seconds: float, instance: str) -> Timetable:
    """Return the timetable of an instance; equal instances have equal phases."""
    reports_end = min(
        period_seconds * _REPORTS_END, period_seconds * _PLANNING - _BEFORE_PLANNING_SECONDS
    )
    return Timetable(
        period_seconds=period_seconds,
        report_seconds=max(0.0, reports_end) * _fraction(f"{instance}/report"),
        read_seconds=period_seconds * (_READS_BEGIN + _READS_SPAN * _fraction(f"{instance}/read")),
        instance=instance,
    )


def _fraction(seed: str) -> float:
    # Instances are random already; a checksum spreads what is told apart by its end alone.
    return zlib.crc32(seed.encode("utf-8")) / 2**32
