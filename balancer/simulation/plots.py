"""Plots as inline SVG: lines, stacked areas, columns, with axes that can be read.

Decides how numbers become marks. Colours are classes, so that a page can have them light and dark.
Knows nothing of simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape as _escape

WIDTH, HEIGHT = 960, 260
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 28, 38
POINTS_MAX: Final = 240
"""More windows than this are drawn as so many stretches of several."""

TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class Series:
    """One line or band.

    Attributes:
        name: for the legend.
        css: its class.
        values: one a stretch.
    """

    name: str
    css: str
    values: Sequence[float]


def escape(text: object) -> str:
    """Return text for XML; characters that XML does not have become a question mark."""
    legal = "".join(
        char if char in "\t\n" or " " <= char <= "\ud7ff" or char >= "\ue000" else "?"
        for char in str(text)
    )
    legal = legal.replace("\ufffe", "?").replace("\uffff", "?")
    return _escape(legal, {'"': "&quot;"})


def stretches(windows: int) -> list[range]:
    """Return windows in at most `POINTS_MAX` stretches of one length, the last one shorter."""
    length = max(1, -(-windows // POINTS_MAX))
    return [range(first, min(windows, first + length)) for first in range(0, windows, length)]


def mean(values: Sequence[float], stretch: range) -> float:
    """Return the mean of a stretch."""
    return sum(values[window] for window in stretch) / len(stretch)


def largest(values: Sequence[float], stretch: range) -> float:
    """Return the largest of a stretch."""
    return max(values[window] for window in stretch)


def plain(number: float) -> str:
    """Return a number for an axis or a table: thousands apart, no needless digits."""
    if abs(number) >= 100 or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.3g}"


def lines(
    parts: Sequence[Series],
    spans: Sequence[range],
    *,
    label: str,
    y_label: str,
    filled: bool = False,
    most: float | None = None,
    least: float = 0.0,
    write: Callable[[float], str] = plain,
) -> str:
    """Return a plot of lines over stretches of windows.

    Args:
        parts: the lines; they are drawn in this order.
        spans: the stretches.
        label: what it shows, for readers who do not see it.
        y_label: what the numbers are.
        filled: whether the first line's area is filled.
        most: what lies above is cut off; None for nothing.
        least: the axis goes at least so far.
        write: a number as text.
    """
    highest = max((max(part.values, default=0.0) for part in parts), default=0.0)
    frame = _Frame(spans, max(least, highest if most is None else min(most, highest)))
    marks = []
    for number, part in enumerate(parts):
        path = frame.path([min(frame.top, value) for value in part.values])
        if filled and number == 0:
            base = frame.y(0)
            closed = f"{path} L{frame.x(len(spans) - 1, 1):.1f} {base:.1f} L{LEFT} {base:.1f} Z"
            marks.append(f'<path class="band {part.css}" d="{closed}"/>')
        marks.append(f'<path class="line {part.css}" d="{path}"/>')
    hints = frame.hints(
        [
            f"{_span(span)}: "
            + ", ".join(f"{part.name} {write(part.values[place])}" for part in parts)
            for place, span in enumerate(spans)
        ]
    )
    return frame.svg(label, y_label, "".join(marks) + hints, write)


def stacked(
    parts: Sequence[Series],
    spans: Sequence[range],
    *,
    label: str,
    y_label: str,
    write: Callable[[float], str] = plain,
) -> str:
    """Return a plot of bands one upon the other; the first series lies lowest."""
    floor = [0.0] * len(spans)
    tops: list[list[float]] = []
    for part in parts:
        floor = [low + value for low, value in zip(floor, part.values, strict=True)]
        tops.append(floor)
    frame = _Frame(spans, max(floor, default=0.0))
    marks = []
    below = [0.0] * len(spans)
    for part, top in zip(parts, tops, strict=True):
        back = frame.path(below, reverse=True)
        marks.append(f'<path class="stack {part.css}" d="{frame.path(top)} {back} Z"/>')
        below = top
    hints = frame.hints(
        [
            f"{_span(span)}: "
            + ", ".join(
                f"{part.name} {write(part.values[place])}"
                for part in reversed(parts)
                if part.values[place] > 0
            )
            for place, span in enumerate(spans)
        ]
    )
    return frame.svg(label, y_label, "".join(marks) + hints, write)


def legend(parts: Sequence[Series]) -> str:
    """Return a legend in HTML."""
    entries = "".join(
        f'<li><span class="swatch {part.css}"></span>{escape(part.name)}</li>' for part in parts
    )
    return f'<ul class="legend">{entries}</ul>'


def _span(span: range) -> str:
    first, last = span[0], span[-1]
    return f"window {first}" if first == last else f"windows {first} to {last}, mean"


class _Frame:
    """The plane of a plot; values are drawn as steps, as wide as their stretch."""

    def __init__(self, spans: Sequence[range], most: float) -> None:
        self._spans = spans
        self._windows = spans[-1][-1] + 1 if spans else 1
        self.ticks = _ticks(most)
        self.top = self.ticks[-1]

    def x(self, place: int, edge: int) -> float:
        """Return the left (0) or right (1) edge of a stretch."""
        span = self._spans[place]
        window = span[-1] + 1 if edge else span[0]
        return LEFT + (WIDTH - LEFT - RIGHT) * window / self._windows

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.top

    def path(self, values: Sequence[float], *, reverse: bool = False) -> str:
        """Return a stepped line; one that goes back continues a path."""
        steps = [
            (self.x(place, edge), self.y(value))
            for place, value in enumerate(values)
            for edge in (0, 1)
        ]
        if reverse:
            steps.reverse()
        points = " L".join(f"{x:.1f} {y:.1f}" for x, y in _corners(steps))
        return ("L" if reverse else "M") + points

    def hints(self, texts: Sequence[str]) -> str:
        """Return what is shown when one points at a stretch."""
        return "".join(
            f'<rect class="hint" x="{self.x(place, 0):.1f}" y="{TOP}" '
            f'width="{self.x(place, 1) - self.x(place, 0):.1f}" height="{HEIGHT - TOP - BOTTOM}">'
            f"<title>{escape(text)}</title></rect>"
            for place, text in enumerate(texts)
        )

    def svg(self, label: str, y_label: str, marks: str, write: Callable[[float], str]) -> str:
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        axes = "".join(
            f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{self.y(tick):.1f}" '
            f'y2="{self.y(tick):.1f}"/>'
            f'<text class="tick end" x="{LEFT - 8}" y="{self.y(tick) + 4:.1f}">'
            f"{escape(write(tick))}</text>"
            for tick in self.ticks
        )
        for window in _whole_ticks(self._windows):
            x = LEFT + (right - LEFT) * window / self._windows
            axes += (
                f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
                f'<text class="tick middle" x="{x:.1f}" y="{bottom + 17}">{window}</text>'
            )
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{axes}'
            f'<text class="axis" x="4" y="12">{escape(y_label)}</text>'
            f'<text class="axis end" x="{right}" y="{HEIGHT - 6}">window of the run</text>'
            f"{marks}</svg>"
        )


def _corners(steps: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Leave out points on a level line between two others."""
    kept: list[tuple[float, float]] = []
    for number, (x, y) in enumerate(steps):
        is_inner = 0 < number < len(steps) - 1
        if is_inner and kept[-1][1] == y == steps[number + 1][1]:
            continue
        kept.append((x, y))
    return kept


def _ticks(most: float) -> list[float]:
    """Return round numbers from 0 to at least ``most``."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * part for part in (1, 2, 2.5, 5, 10) if power * part >= raw * 0.9999)
    count = math.ceil(most / step - 1e-9)
    return [round(step * number, 12) for number in range(count + 1)]


def _whole_ticks(most: int) -> list[int]:
    step = max(1, round(_ticks(most * 0.5)[1]))
    return list(range(0, most + 1, step))
