"""How a running demonstration looks: one table that is renewed, or one line a window.

Decides only the look. Knows no process and no arithmetic beyond percentages.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from worker_sdk.wire.shares import POINTS


@dataclass(frozen=True, slots=True)
class HostRow:
    """One host as shown."""

    host: str
    style: str
    mode: str
    share_points: int
    wanted: int
    used: int
    waiting: int
    denied: int


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything shown at once; counts are of the last whole window."""

    scenario: str
    window: int
    windows: int
    capacity: int
    arrived: int
    refused: int
    even_split: int
    rows: tuple[HostRow, ...]
    notes: tuple[str, ...]


def percent(points: int) -> str:
    """Return points as percent with one decimal."""
    return f"{points * 100 / POINTS:.1f} %"


def table(frame: Frame) -> Table:
    """Return the table of a frame."""
    view = Table(
        title=f"{frame.scenario}: window {frame.window} of {frame.windows}",
        caption="\n".join(frame.notes) or None,
    )
    view.add_column("host")
    view.add_column("runs as")
    view.add_column("mode")
    for name in ("share", "wants", "used", "waiting", "denied"):
        view.add_column(name, justify="right")
    for row in frame.rows:
        view.add_row(
            row.host,
            row.style,
            row.mode,
            percent(row.share_points),
            str(row.wanted),
            str(row.used),
            str(row.waiting),
            str(row.denied),
        )
    view.add_section()
    full = f"{frame.arrived * 100 / frame.capacity:.1f} %" if frame.capacity else "-"
    view.add_row(
        "destination", "", f"{frame.refused} refused", full, "", str(frame.arrived), "", ""
    )
    view.add_row("an even split", "", "", "", "", str(frame.even_split), "", "")
    return view


def line(frame: Frame) -> str:
    """Return a frame as one line, for output that is no terminal."""
    hosts = "  ".join(
        f"{row.host} {percent(row.share_points)} used {row.used}" for row in frame.rows
    )
    return (
        f"window {frame.window:>3}/{frame.windows}: {frame.arrived} of {frame.capacity}, "
        f"{frame.refused} refused, even split {frame.even_split} | {hosts}"
    )
