"""Demand as functions of the window, from a few numbers.

Decides shapes: constant, stepped, wavering, daily. Equal numbers give equal demand, in whatever
order windows are asked for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from balancer.simulation.scenario import Demand

_MIX_A, _MIX_B, _MASK = 2_654_435_761, 2_246_822_519, 0xFFFFFFFF


def steps(changes: Sequence[tuple[int, int]]) -> Demand:
    """Return a demand that changes at windows: ``(window, permits from it on)``, ascending."""

    def demand(window: int) -> int:
        permits = 0
        for first, wanted in changes:
            if window < first:
                break
            permits = wanted
        return permits

    return demand


def wavering(base: Demand, part: float, salt: int) -> Demand:
    """Return ``base`` changed in each window by up to ``part`` of it, up or down.

    Args:
        base: the demand without it.
        part: 0.05 for 5 %.
        salt: equal ones waver alike.
    """
    first = _mixed(salt)

    def demand(window: int) -> int:
        return int(base(window) * (1 + part * (2 * _mixed(first ^ window) / _MASK - 1)) + 0.5)

    return demand


def daily(permits: int, peak_window: int, day_windows: int, depth: float) -> Demand:
    """Return a demand that swings once a day around ``permits``.

    Args:
        permits: the mean.
        peak_window: when it is highest.
        day_windows: windows of a day.
        depth: how far it swings, as a part of the mean.
    """
    turn = 2 * math.pi / day_windows

    def demand(window: int) -> int:
        return int(permits * (1 + depth * math.cos((window - peak_window) * turn)))

    return demand


def uneven_parts(total: int, count: int, seed: int) -> list[int]:
    """Return ``count`` parts of ``total`` as members of a fleet have them: a few are large.

    Log-normal with a sigma of 1; every part is at least 1 where the total allows it.
    """
    draw = random.Random(seed)  # noqa: S311 - a simulation must be repeatable
    drawn = [draw.lognormvariate(0.0, 1.0) for _ in range(count)]
    scale = max(0, total - count) / sum(drawn)
    parts = [1 + int(weight * scale) for weight in drawn]
    parts[parts.index(max(parts))] += max(0, total - sum(parts))
    return parts


def _mixed(number: int) -> int:
    number = (number ^ (number >> 15)) * _MIX_A & _MASK
    number = (number ^ (number >> 13)) * _MIX_B & _MASK
    return number ^ (number >> 16)
