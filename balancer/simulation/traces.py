"""Recorded demand: files of counts a minute, or of one request a row, as demand of hosts.

Decides what a usable file is and which host a request belongs to. Knows no scenario and no clock;
windows count from 0 at the start of the recording.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from worker_sdk.errors import ConfigurationError
from worker_sdk.wire.limits import PERMITS_MAX

MINUTE_SECONDS: Final = 60
WINDOWS_MAX: Final = 100_000
HOSTS_MAX: Final = 10_000
ROWS_MAX: Final = 10_000_000
TIMESTAMP: Final = "TIMESTAMP"
_COUNTS_FIRST: Final = "minute_1"
_FRACTION_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Trace:
    """Recorded demand.

    Attributes:
        name: the file's.
        window_seconds: length of a window.
        rows: a host each, permits wanted in each window; all of one length.
    """

    name: str
    window_seconds: int
    rows: tuple[tuple[int, ...], ...]

    @property
    def totals(self) -> list[int]:
        """What all hosts together want in each window."""
        return [sum(column) for column in zip(*self.rows, strict=True)]


def read_trace(
    path: Path,
    *,
    windows: int | None = None,
    hosts: int = 100,
    window_seconds: int = MINUTE_SECONDS,
    seed: int = 1,
) -> Trace:
    """Read a file of either form; its header says which.

    Args:
        path: CSV with columns ``minute_1`` and so on, or with a column ``TIMESTAMP``.
        windows: how many windows from the start; None for all.
        hosts: among how many hosts requests of a file of one a row are spread.
        window_seconds: length of a window of such a file.
        seed: which host a request belongs to; equal seeds, equal hosts.

    Raises:
        ConfigurationError: where the file cannot be used.
    """
    with _told(path), path.open(newline="", encoding="utf-8-sig") as file:
        header = next(csv.reader(file), [])
    if _COUNTS_FIRST in header:
        return read_counts(path, windows=windows)
    if TIMESTAMP in header:
        return read_requests(
            path, windows=windows, hosts=hosts, window_seconds=window_seconds, seed=seed
        )
    raise ConfigurationError(
        f"--trace {path}: it has neither columns {_COUNTS_FIRST}, minute_2 … (a row a host) nor a "
        f"column {TIMESTAMP} (a row a request)"
    )


def read_counts(path: Path, *, windows: int | None = None) -> Trace:
    """Read a file in the format of the Azure Functions 2019 invocation files.

    Args:
        path: CSV with columns ``minute_1``, ``minute_2`` …; a row is a host, a minute a window.
        windows: how many of its minutes; None for all.

    Raises:
        ConfigurationError: where the file cannot be used.
    """
    rows: list[tuple[int, ...]] = []
    with _told(path), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        columns = _minute_columns(path, reader.fieldnames or (), windows)
        for row in reader:
            rows.append(tuple(int(row[name] or 0) for name in columns))
            if len(rows) > HOSTS_MAX:
                raise ConfigurationError(f"--trace {path}: more than {HOSTS_MAX} rows")
    if not rows:
        raise ConfigurationError(f"--trace {path}: it has no row below its header")
    if min(min(row) for row in rows) < 0:
        raise ConfigurationError(f"--trace {path}: a cell is negative")
    if max(max(row) for row in rows) > PERMITS_MAX:
        raise ConfigurationError(f"--trace {path}: a cell is above {PERMITS_MAX}")
    return Trace(path.name, MINUTE_SECONDS, tuple(rows))


def _minute_columns(path: Path, names: Sequence[str], windows: int | None) -> list[str]:
    known = set(names)
    there = 0
    while there < WINDOWS_MAX and f"minute_{there + 1}" in known:
        there += 1
    needed = max(1, there) if windows is None else windows
    if there < needed:
        raise ConfigurationError(
            f"--trace {path}: no column minute_{there + 1}; minute_1 to minute_{needed} are asked "
            f"for, it has {there}"
        )
    return [f"minute_{number + 1}" for number in range(needed)]


def read_requests(
    path: Path, *, windows: int | None, hosts: int, window_seconds: int, seed: int
) -> Trace:
    """Read a file of one request a row, spread at random over a number of hosts.

    A host's part of the requests is drawn first, so that hosts differ as they do in a fleet. The
    first window begins with the first request's aligned window.

    Args:
        path: CSV with a column ``TIMESTAMP``, such as ``2023-11-16 18:17:03.9799600``; rows may
            be in any order.
        windows: how many windows; None for as many as there are.
        hosts: how many hosts.
        window_seconds: length of a window.
        seed: of the draw.

    Raises:
        ConfigurationError: where the file cannot be used.
    """
    instants: list[float] = []
    with _told(path), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        if TIMESTAMP not in (reader.fieldnames or ()):
            raise ConfigurationError(f"--trace {path}: no column {TIMESTAMP}")
        for number, row in enumerate(reader, start=2):
            instants.append(_instant(path, number, row[TIMESTAMP]))
            if len(instants) > ROWS_MAX:
                raise ConfigurationError(f"--trace {path}: more than {ROWS_MAX} rows")
    if not instants:
        raise ConfigurationError(f"--trace {path}: it has no row below its header")
    instants.sort()
    first = int(instants[0] // window_seconds)
    length = int(instants[-1] // window_seconds) - first + 1 if windows is None else windows
    if not 1 <= length <= WINDOWS_MAX:
        raise ConfigurationError(
            f"--trace {path}: it spans {length} windows of {window_seconds} s; at most "
            f"{WINDOWS_MAX} can be replayed"
        )
    rows = [[0] * length for _ in range(hosts)]
    draw = random.Random(seed)  # noqa: S311 - a simulation must be repeatable
    weights = [draw.lognormvariate(0.0, 1.0) for _ in range(hosts)]
    owners = draw.choices(range(hosts), weights, k=len(instants))
    for instant, owner in zip(instants, owners, strict=True):
        window = int(instant // window_seconds) - first
        if window < length:
            rows[owner][window] += 1
    return Trace(path.name, window_seconds, tuple(tuple(row) for row in rows))


def _instant(path: Path, line: int, text: str | None) -> float:
    """Return Unix seconds; more than six fractional digits are cut off, no zone is UTC."""
    whole, point, rest = (text or "").strip().partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    fraction = rest[: min(digits, _FRACTION_DIGITS)].ljust(_FRACTION_DIGITS, "0")
    try:
        parsed = datetime.fromisoformat(f"{whole}.{fraction}{rest[digits:]}" if point else whole)
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=UTC)
        return parsed.timestamp()
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"--trace {path}: line {line}: {text!r} is no instant such as "
            "2023-11-16 18:17:03.9799600"
        ) from error


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what reading a file can raise into one line about it."""
    try:
        yield
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"--trace {path}: cannot be read: {error}") from error
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            f"--trace {path}: a cell is not a whole number: {error}"
        ) from error


def parse_capacity(
    text: str, totals: Sequence[int], *, least: int = 1, most: int = PERMITS_MAX
) -> int:
    """Return ``text`` as permits a window; ``p90`` is that percentile of the window totals.

    The totals are sorted ascending and taken at index floor(NN/100 x windows).

    Args:
        text: a number, or ``p`` and a number from 0 to 100.
        totals: permits wanted by all in each window; empty where no percentile can be asked for.
        least: a smaller number is refused, a smaller percentile raised to it.
        most: the largest number.

    Raises:
        ConfigurationError: where it is neither.
    """
    is_percentile = text.startswith("p") and text.isascii() and text[1:].isdecimal()
    if is_percentile and totals and int(text[1:]) <= 100:
        index = min(len(totals) - 1, int(text[1:]) * len(totals) // 100)
        return max(least, sorted(totals)[index])
    if text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most:
        return int(text)
    raise ConfigurationError(
        f"--capacity {text}: neither permits a window ({least} to {most}) nor a percentile such "
        "as p90"
    )
