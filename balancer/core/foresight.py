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
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from balancer.core.columns import SMALL, Flags, Ints, Kind, zeros

LAG_MIN, LAG_MAX = 2, 60
REPEATS_MAX: Final = 3
HISTORY_ROUNDS: Final = REPEATS_MAX * LAG_MAX
PROVEN_ROUNDS: Final = 30
USUAL_ROUNDS: Final = 10
FORESEEN_NUMERATOR, FORESEEN_DENOMINATOR = 2, 5
"""A lag is believed if its errors are at most this part of the last value's errors."""

_NARROW: Final = np.dtype(np.int32)
_NARROW_MAX: Final = np.iinfo(_NARROW).max // PROVEN_ROUNDS
"""Demands up to here, and the errors summed of them, fit into numbers of half the size."""

_BLOCK_ROWS: Final = 512
"""So many rows are looked at together: what their lags take fits into a processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Demands of the busiest members, round by round; nothing in it ever changes.

    Attributes:
        of_row: the trails' row of each row here; None where they are the same rows.
        columns: demands, a line a round, oldest first; 0 before a member came. The largest part of
            what a planner remembers, so its numbers are narrow while all demands are small.
        errors: for each lag from 1 on a line: the summed errors of the proven rounds.
    """

    of_row: Ints | None = None
    columns: Ints = field(default_factory=lambda: _table(0, 0))
    errors: Ints = field(default_factory=lambda: _table(0, 0))

    @classmethod
    def of_rows(cls, demands: Sequence[Sequence[int]]) -> History:
        """Return the history of rows of demands, oldest first, of different lengths."""
        rounds = min(HISTORY_ROUNDS, max((len(row) for row in demands), default=0))
        columns = _table(rounds, len(demands))
        for number, row in enumerate(demands):
            known = row[-rounds:]
            columns[rounds - len(known) :, number] = known
        return cls.of_table(columns, None)

    @classmethod
    def of_table(cls, columns: Ints, of_row: Ints | None) -> History:
        """Return the history of a table as `columns` is one."""
        if not len(columns):
            return cls()
        columns = columns.astype(_kind_for(columns))
        return cls(of_row, columns, _errors(columns, 1))

    def rows(self, count: int) -> tuple[list[int], list[list[int]]]:
        """Return the trails' rows that have a history here, and their demands, oldest first."""
        if not len(self.columns):
            return [], []
        numbers = list(range(count)) if self.of_row is None else self.of_row.tolist()
        demands: list[list[int]] = self.columns.T.tolist()
        return numbers, demands

    def picked(self, rows: Ints) -> History:
        """Return the history of the trails' rows picked; -1 picks nothing known.

        Where some rows had none, those that are new get none either.
        """
        if not len(self.columns):
            return History()
        here = self._here(rows)
        if self.of_row is None:
            return History(None, _picked(self.columns, here), _picked(self.errors, here))
        known = np.flatnonzero(here >= 0)
        here = here[known]
        return History(known, self.columns.take(here, axis=1), self.errors.take(here, axis=1))

    def only(self, rows: Ints, newest: Ints | None = None) -> History:
        """Return the history of these of the trails' rows alone, of each of them.

        Args:
            rows: which.
            newest: demands of all of the trails' rows in the newest round; those that had no
                history begin with it.
        """
        if self.of_row is not None and np.array_equal(self.of_row, rows):
            return self
        here = self._here(rows)
        columns, errors = _picked(self.columns, here), _picked(self.errors, here)
        if newest is not None and len(columns):
            begins = here < 0
            first = newest[rows[begins]]
            columns, errors = _widened(columns, errors, first)
            columns[-1, begins] = first
            errors[:, begins] = first
        return History(rows, columns, errors)

    def of_all(self, newest: Ints) -> History:
        """Return the history of all of the trails' rows; ``newest`` as in `only`."""
        if self.of_row is None:
            return self
        every = self.only(np.arange(len(newest)), newest)
        return History(None, every.columns, every.errors)

    def _here(self, rows: Ints) -> Ints:
        """Return where rows of the trails are here; -1 for those that are not."""
        if self.of_row is None:
            return rows
        place = np.full(int(max(rows.max(initial=0), self.of_row.max(initial=0))) + 1, -1)
        place[self.of_row] = np.arange(len(self.of_row))
        return np.where(rows >= 0, place[rows], -1)

    def noted(self, demands: Ints) -> History:
        """Return the history with one more round: demands of all of the trails' rows."""
        newest = demands if self.of_row is None else demands[self.of_row]
        if not len(self.columns):
            newest = newest.astype(_kind_for(newest))
            return History(self.of_row, newest[np.newaxis], _table(0, len(newest), newest.dtype))
        known, summed = _widened(self.columns, self.errors, newest)
        newest = newest.astype(known.dtype)
        columns = np.concatenate((known, newest[np.newaxis]))
        lags = len(summed)
        ago = columns[::-1]
        errors = _distance(ago[1 : lags + 1], newest)
        errors += summed
        if lags:  # the oldest of the rounds proven until now is one no more
            errors -= _distance(ago[PROVEN_ROUNDS + 1 :][:lags], ago[PROVEN_ROUNDS])
        if lags < LAG_MAX:
            errors = np.concatenate((errors, _errors(columns, lags + 1)))
        return History(self.of_row, columns[-HISTORY_ROUNDS:], errors)

    def usual(self, count: int) -> Ints:
        """Return the lower median of the last `USUAL_ROUNDS` demands of each of ``count`` rows."""
        recent = self.columns[-USUAL_ROUNDS:]
        if not len(recent):
            return zeros(count)
        middle = (len(recent) - 1) // 2
        return self._spread(np.partition(recent, middle, axis=0)[middle], count)

    def recurring(self, count: int) -> tuple[Ints, Ints]:
        """Return what each of ``count`` rows of the trails may want by recurrence; 0 for nothing.

        The largest over all lags of the least of the last three values at that lag, and the same
        of the last two.
        """
        rounds, rows = self.columns.shape
        lags = min(LAG_MAX, rounds // 2)
        lags_thrice = max(LAG_MIN - 1, min(LAG_MAX, rounds // REPEATS_MAX))
        thrice, twice = zeros(rows), zeros(rows)
        if lags < LAG_MIN:
            return self._spread(thrice, count), self._spread(twice, count)
        for first in range(0, rows, _BLOCK_ROWS):
            block = slice(first, first + _BLOCK_ROWS)
            ago = self.columns[::-1, block]
            # Line k of each speaks of lag LAG_MIN + k: the last value at that lag, the one before.
            last, second = ago[LAG_MIN - 1 : lags], ago[2 * LAG_MIN - 1 : 2 * lags : 2]
            third = ago[3 * LAG_MIN - 1 : 3 * lags_thrice : 3]
            least = np.minimum(last, second)
            twice[block] = least.max(axis=0)
            thrice[block] = np.minimum(least[: len(third)], third).max(axis=0, initial=0)
        return self._spread(thrice, count), self._spread(twice, count)

    def foreseen(self, count: int) -> tuple[Ints, Flags]:
        """Return what each row will want by its proven lag, and whether it has one."""
        if len(self.errors) < LAG_MIN:
            return zeros(count), np.zeros(count, dtype=np.bool_)
        last_value, others = self.errors[0], self.errors[LAG_MIN - 1 :]
        best = others.argmin(axis=0)[np.newaxis]
        error = np.take_along_axis(others, best, axis=0)[0]
        most = last_value.astype(SMALL) * FORESEEN_NUMERATOR // FORESEEN_DENOMINATOR
        has = (error < most) | ((error == most) & (last_value > 0))
        ago = self.columns[::-1]
        wanted = np.where(has, np.take_along_axis(ago[LAG_MIN - 1 :], best, axis=0)[0], 0)
        return self._spread(wanted, count), self._spread(has, count).astype(np.bool_)

    def _spread(self, values: Ints, count: int) -> Ints:
        if not len(values):
            return zeros(count)
        if self.of_row is None:
            return values.astype(SMALL, copy=False)
        spread = zeros(count)
        spread[self.of_row] = values
        return spread


def _table(rounds: int, rows: int, kind: Kind = SMALL) -> Ints:
    return np.zeros((rounds, rows), dtype=kind)


def _kind_for(demands: Ints) -> Kind:
    return _NARROW if demands.max(initial=0) <= _NARROW_MAX else SMALL


def _widened(columns: Ints, errors: Ints, demands: Ints) -> tuple[Ints, Ints]:
    """Return the tables as they are, or with wider numbers where these demands need them."""
    if columns.dtype == _NARROW and _kind_for(demands) != _NARROW:
        return columns.astype(SMALL), errors.astype(SMALL)
    return columns, errors


def _picked(table: Ints, rows: Ints) -> Ints:
    """Return these rows of each line of a table; nothing for row -1."""
    if not table.shape[1]:
        return _table(len(table), len(rows), table.dtype)
    chosen: Ints = table.take(rows, axis=1)
    chosen[:, rows < 0] = 0
    return chosen


def _distance(one: Ints, other: Ints) -> Ints:
    difference: Ints = one - other
    return np.abs(difference, out=difference)


def _errors(columns: Ints, first_lag: int) -> Ints:
    """Return the summed errors of the proven rounds, from a lag on to the last that they reach."""
    rounds, rows = columns.shape
    lags = range(first_lag, min(LAG_MAX, rounds - PROVEN_ROUNDS) + 1)
    errors = _table(len(lags), rows, columns.dtype)
    for line, lag in enumerate(lags):
        proven, before = columns[-PROVEN_ROUNDS:], columns[-PROVEN_ROUNDS - lag : rounds - lag]
        errors[line] = _distance(proven, before).sum(axis=0)
    return errors
