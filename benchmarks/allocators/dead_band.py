"""Rebalancing with a dead band that is a fixed percent of the limit.

Source: "Maximum rate negotiation" in the documentation of Hermes (allegro/hermes,
docs/docs/configuration/rate-limiting.md) with its defaults, the details as its MaxRateBalancer has
them. A member is busy if it used over 90 % of its share. Of one that is not, (1 - u) / (1 + u) is
taken, u being the used part, unless that is less than 1 % of the limit; one permit always stays.
Busy ones get it in proportion to their shares, but one above their mean by more than the band
gives to the others. Whenever somebody came or went, all start from the even split again.
"""

from __future__ import annotations

from typing import Final

from benchmarks.allocators import even
from benchmarks.allocators.told import History, Shares, Window

BUSY_PART: Final = 0.9
BAND_PART: Final = 0.01
LEAST_PERMITS: Final = 1.0


def allocate(history: History, capacity: int, previous: Shares) -> dict[str, float]:
    """Move shares from members that are not busy to those that are."""
    told = history[-1]
    if previous.keys() != told.keys() or capacity <= len(told):
        return even.split(told, capacity)
    busy = {name: previous[name] for name in told if _used_part(told, previous, name) > BUSY_PART}
    if not busy:
        return dict(previous)
    band = capacity * BAND_PART
    shares = dict(previous)
    freed = 0.0
    for name in told:
        if name not in busy:
            part = _used_part(told, previous, name)
            gift = (1 - part) / (1 + part) * shares[name]
            if gift > band:
                gift = min(gift, max(0.0, shares[name] - LEAST_PERMITS))
                shares[name] -= gift
                freed += gift
    return shares | _among_busy(busy, freed, band)


def _used_part(told: Window, shares: Shares, name: str) -> float:
    share = shares[name]
    return min(1.0, told[name].used / share) if share else 0.0


def _among_busy(busy: Shares, freed: float, band: float) -> dict[str, float]:
    """Return the shares of the busy: the largest give, the others get that and what was freed."""
    total = sum(busy.values())
    mean = total / len(busy)
    shares = dict(busy)
    for name, share in busy.items():
        if share > mean + band:
            part = share / total
            gift = max(band, share / 2 * (1 - part) / (1 + part))
            gift = min(gift, share - mean)
            shares[name] -= gift
            freed += gift
    modest = {name: share for name, share in busy.items() if share <= mean + band}
    base = sum(modest.values())
    for name, share in modest.items():
        shares[name] += freed * (share / base if base else 1 / len(modest))
    return shares
