"""What members' past lets expect of the next round.

Decides from each member's own demands, round by round. *Usual*: the median of the last ten.
*Expected*: what came back at one lag three times, as timers make it come. *Repeated*: what came
back twice. All three are worth keeping spare capacity for. *Foreseen*: the demand at the one lag
that lately told the member's demand much better than its last demand did; good enough to plan by.
Knows no share and no other member.

Foreseen, in numbers: over the last `PROVEN_ROUNDS` rounds the errors ``|x(t) - x(t - lag)|`` are
summed; the lag from 2 to 60 with the least sum is taken if that is at most two fifths of the sum at
lag 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from balancer.core.columns import Flags, Ints, ints, zeros

LAG_MIN, LAG_MAX = 2, 60
REPEATS_MAX: Final = 3
HISTORY_ROUNDS: Final = REPEATS_MAX * LAG_MAX
PROVEN_ROUNDS: Final = 30
USUAL_ROUNDS: Final = 10
FORESEEN_NUMERATOR, FORESEEN_DENOMINATOR = 2, 5
"""A lag is believed if its errors are at most this part of the last value's errors."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Demands of the busiest members, round by round; nothing in it ever changes.

    Attributes:
        of_row: the trails' row of each row here; None where they are the same rows.
        columns: demands, oldest round first; 0 before a member came.
        errors: for each lag from 1 on, the summed errors of the proven rounds.
    """

    of_row: Ints | None = None
    columns: tuple[Ints, ...] = ()
    errors: tuple[Ints, ...] = ()

    @classmethod
    def of_rows(cls, demands: Sequence[Sequence[int]]) -> History:
        """Return the history of rows of demands, oldest first, of different lengths."""
        rounds = min(HISTORY_ROUNDS, max((len(row) for row in demands), default=0))
        columns = tuple(
            ints(row[-age] if len(row) >= age else 0 for row in demands)
            for age in range(rounds, 0, -1)
        )
        return cls(None, columns, tuple(_error(columns, lag) for lag in _lags(columns)))

    def rows(self, count: int) -> tuple[list[int], list[list[int]]]:
        """Return the trails' rows that have a history here, and their demands, oldest first."""
        if not self.columns:
            return [], []
        numbers = list(range(count)) if self.of_row is None else self.of_row.tolist()
        demands = zip(*(column.tolist() for column in self.columns), strict=True)
        return numbers, [list(row) for row in demands]

    def picked(self, rows: Ints) -> History:
        """Return the history of the trails' rows picked; -1 picks nothing known."""
        if not self.columns:
            return History()
        if self.of_row is None:
            here = rows
        else:
            place = np.full(int(max(rows.max(initial=0), self.of_row.max(initial=0))) + 1, -1)
            place[self.of_row] = np.arange(len(self.of_row))
            here = np.where(rows >= 0, place[rows], -1)
        known = here >= 0

        def pick(column: Ints) -> Ints:
            return np.where(known, column[here], 0) if len(column) else zeros(len(here))

        return History(
            None,
            tuple(pick(column) for column in self.columns),
            tuple(pick(column) for column in self.errors),
        )

    def only(self, rows: Ints) -> History:
        """Return the history of these of the trails' rows alone."""
        every = self.picked(rows)
        return History(rows, every.columns, every.errors)

    def noted(self, demands: Ints) -> History:
        """Return the history with one more round: demands of all of the trails' rows."""
        newest = demands if self.of_row is None else demands[self.of_row]
        columns = (*self.columns, newest)
        errors = [
            known
            + np.abs(newest - columns[-1 - lag])
            - np.abs(columns[-1 - PROVEN_ROUNDS] - columns[-1 - PROVEN_ROUNDS - lag])
            for lag, known in enumerate(self.errors, 1)
        ]
        errors += [_error(columns, lag) for lag in _lags(columns) if lag > len(errors)]
        return History(self.of_row, columns[-HISTORY_ROUNDS:], tuple(errors))

    def usual(self, count: int) -> Ints:
        """Return the lower median of the last `USUAL_ROUNDS` demands of each of ``count`` rows."""
        recent = self.columns[-USUAL_ROUNDS:]
        if not recent:
            return zeros(count)
        middle = (len(recent) - 1) // 2
        return self._spread(np.partition(np.stack(recent), middle, axis=0)[middle], count)

    def recurring(self, count: int) -> tuple[Ints, Ints]:
        """Return what each of ``count`` rows of the trails may want by recurrence; 0 for nothing.

        The largest over all lags of the least of the last three values at that lag, and the same
        of the last two.
        """
        columns = self.columns
        thrice = twice = zeros(len(columns[-1]) if columns else 0)
        for lag in range(LAG_MIN, min(LAG_MAX, len(columns) // 2) + 1):
            least = np.minimum(columns[-lag], columns[-2 * lag])
            twice = np.maximum(twice, least)
            if REPEATS_MAX * lag <= len(columns):
                thrice = np.maximum(thrice, np.minimum(least, columns[-REPEATS_MAX * lag]))
        return self._spread(thrice, count), self._spread(twice, count)

    def foreseen(self, count: int) -> tuple[Ints, Flags]:
        """Return what each row will want by its proven lag, and whether it has one."""
        columns = self.columns
        if len(self.errors) < LAG_MIN:
            return zeros(count), np.zeros(count, dtype=np.bool_)
        last_value = self.errors[0]
        least = last_value * FORESEEN_NUMERATOR // FORESEEN_DENOMINATOR
        wanted = zeros(len(last_value))
        has = np.zeros(len(last_value), dtype=np.bool_)
        for lag in range(LAG_MIN, len(self.errors) + 1):
            error = self.errors[lag - 1]
            better = (error < least) | ((error == least) & ~has & (last_value > 0))
            least = np.where(better, error, least)
            wanted = np.where(better, columns[-lag], wanted)
            has |= better
        return self._spread(wanted, count), self._spread(has, count).astype(np.bool_)

    def _spread(self, values: Ints, count: int) -> Ints:
        if not len(values):
            return zeros(count)
        if self.of_row is None:
            return values
        spread = zeros(count)
        spread[self.of_row] = values
        return spread


def _lags(columns: Sequence[Ints]) -> range:
    """Return the lags that the columns reach."""
    return range(1, min(LAG_MAX, len(columns) - PROVEN_ROUNDS) + 1)


def _error(columns: Sequence[Ints], lag: int) -> Ints:
    """Return the summed errors of the proven rounds at a lag."""
    error = zeros(len(columns[-1]))
    for age in range(1, PROVEN_ROUNDS + 1):
        error = error + np.abs(columns[-age] - columns[-age - lag])
    return error
