"""A scenario from a TOML file.

Decides what such a file may say; everything else is an error that names the key and those that are
known, so that a slip of the pen is no other scenario. Knows no command line.

Top level: ``name``, ``capacity`` (permits, or ``"p90"`` of the window totals), ``windows``,
``window_seconds``, ``round_windows``, ``backlog``, ``measured_from_window``,
``timetable``. Tables: ``[policy]``
(as a destination's), ``[faults]``, ``[events]``, ``[demanded]``, ``[trace]``, and one
``[[members]]`` a kind of member, ``count`` of them alike. Members come from ``[[members]]``, from
``[trace]``, or from both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from balancer.core.model import Policy
from balancer.errors import PolicyError
from balancer.simulation.demand_shapes import steps, wavering
from balancer.simulation.requirements import Requirements
from balancer.simulation.scenario import (
    Demand,
    Events,
    Faults,
    MemberPlan,
    Scenario,
    Style,
    TimetableKind,
    constant,
    series,
    totals_of,
)
from balancer.simulation.traces import HOSTS_MAX, MINUTE_SECONDS, parse_capacity, read_trace
from worker_sdk.errors import ConfigurationError
from worker_sdk.wire.distribution import CLOSED, OnExpiry
from worker_sdk.wire.limits import PERMITS_MAX

SIZE_MAX_BYTES: Final = 16 * 1024 * 1024
TOP: Final = (
    "name", "capacity", "windows", "window_seconds", "round_windows", "backlog",
    "measured_from_window", "timetable", "policy", "faults", "events", "demanded", "trace",
    "members",
)  # fmt: skip
MEMBER: Final = (
    "host", "count", "demand", "noise", "joins_window", "leaves_window", "killed", "style",
    "work_ms", "group",
)  # fmt: skip

_T = TypeVar("_T")


class _Table:
    """One table of the file: hands out values once, of the type that is asked for."""

    def __init__(self, where: str, values: object, known: tuple[str, ...]) -> None:
        if not isinstance(values, dict):
            raise ConfigurationError(f"{where} is no table")
        for key in values:
            if key not in known:
                raise ConfigurationError(
                    f"{where}: there is no key {key}; there are {', '.join(known)}"
                )
        self.where = where
        self.values: dict[str, Any] = values

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def integer(self, key: str, default: int, least: int = 0, most: int = PERMITS_MAX) -> int:
        value = self.values.get(key, default)
        if type(value) is not int or not least <= value <= most:
            raise self.fault(key, f"a whole number from {least} to {most}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key, default)
        if type(value) not in (int, float):
            raise self.fault(key, "a number")
        return float(value)

    def truth(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if type(value) is not bool:
            raise self.fault(key, "true or false")
        return value

    def text(self, key: str, default: str | None) -> str | None:
        value = self.values.get(key, default)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.fault(key, "a text")
        return value

    def pairs(self, key: str) -> tuple[tuple[int, int], ...]:
        value = self.values.get(key, [])
        is_good = isinstance(value, list) and all(
            isinstance(pair, list)
            and len(pair) == 2
            and all(type(number) is int and 0 <= number <= PERMITS_MAX for number in pair)
            for pair in value
        )
        if not is_good:
            raise self.fault(key, "a list of pairs such as [[10, 40]]")
        return tuple((first, second) for first, second in value)

    def integers(self, key: str) -> tuple[int, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or any(type(number) is not int for number in value):
            raise self.fault(key, "a list of whole numbers")
        return tuple(value)

    def fault(self, key: str, wanted: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self.where}: {key} is {self.values.get(key)!r:.80}; it must be {wanted}"
        )


def read_scenario(path: Path, *, seed: int = 1) -> tuple[Scenario, Requirements]:
    """Read a scenario and what it demands.

    Args:
        path: the file; paths in it are relative to it.
        seed: of what is drawn: noise, and the hosts of a trace of one request a row.

    Raises:
        ConfigurationError: naming the file, the key, the fault and what is known.
    """
    try:
        if path.stat().st_size > SIZE_MAX_BYTES:
            raise ConfigurationError(f"--file {path}: it is larger than {SIZE_MAX_BYTES} bytes")
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"--file {path}: cannot be read: {error}") from error
    try:
        return _scenario(path, values, seed)
    except (ConfigurationError, PolicyError) as error:
        raise ConfigurationError(f"--file {path}: {error}") from error


def _scenario(path: Path, values: dict[str, Any], seed: int) -> tuple[Scenario, Requirements]:
    top = _Table("the file", values, TOP)
    if "capacity" not in top:
        raise ConfigurationError("capacity is missing, for example capacity = 1000")
    members = _listed_members(values.get("members", []), seed)
    windows = top.integer("windows", 60, 1)
    window_seconds = top.integer("window_seconds", MINUTE_SECONDS, 1)
    if "trace" in top:
        table = _Table("[trace]", values["trace"], ("file", "hosts"))
        name = table.text("file", None)
        if name is None:
            raise ConfigurationError('[trace]: file is missing, for example file = "calls.csv"')
        trace = read_trace(
            path.parent / name,
            windows=windows if "windows" in top else None,
            hosts=table.integer("hosts", 100, 1, HOSTS_MAX),
            window_seconds=window_seconds,
            seed=seed,
        )
        windows = len(trace.rows[0])
        members += [
            MemberPlan(f"host-{number}", series(row)) for number, row in enumerate(trace.rows)
        ]
    scenario = Scenario(
        name=top.text("name", None) or path.stem,
        capacity=_capacity(top, members, windows),
        windows=windows,
        members=tuple(members),
        policy=_filled(Policy, "[policy]", values.get("policy", {})),
        keeps_backlog=top.truth("backlog", default=False),
        window_seconds=window_seconds,
        round_windows=top.integer("round_windows", 1, 1, 1000),
        faults=_filled(Faults, "[faults]", values.get("faults", {})),
        events=_events(values.get("events", {})),
        measured_from_window=top.integer("measured_from_window", 0, 0, windows - 1),
        timetable=_enum(TimetableKind, top, "timetable", TimetableKind.WINDOW),
    )
    return scenario, _demanded(values.get("demanded", {}))


def _capacity(top: _Table, members: list[MemberPlan], windows: int) -> int:
    value = top.values["capacity"]
    if isinstance(value, str):
        return parse_capacity(value, totals_of(members, windows), least=0)
    return top.integer("capacity", 0)


def _listed_members(listed: object, seed: int) -> list[MemberPlan]:
    if not isinstance(listed, list):
        raise ConfigurationError("members is no list of tables; write [[members]]")
    members: list[MemberPlan] = []
    for number, values in enumerate(listed, start=1):
        table = _Table(f"[[members]] {number}", values, MEMBER)
        host = table.text("host", None)
        if host is None:
            raise ConfigurationError(f"{table.where}: host is missing")
        count = table.integer("count", 1, 1, HOSTS_MAX)
        demand, noise = _demand(table), table.number("noise", 0.0)
        if not 0 <= noise <= 1:
            raise table.fault("noise", "a number from 0 to 1")
        leaves = table.integer("leaves_window", 0) if "leaves_window" in table else None
        for place in range(count):
            salt = seed * 1_000_003 + len(members)
            members.append(
                MemberPlan(
                    host=host if count == 1 else f"{host}-{place + 1}",
                    demand=wavering(demand, noise, salt) if noise else demand,
                    joins_window=table.integer("joins_window", 0),
                    leaves_window=leaves,
                    is_killed=table.truth("killed", default=False),
                    style=_enum(Style, table, "style", Style.ASKING),
                    work_ms=table.integer("work_ms", 20, 1, 3_600_000),
                    group=table.text("group", None),
                )
            )
            if len(members) > HOSTS_MAX:
                raise ConfigurationError(f"{table.where}: more than {HOSTS_MAX} members")
    return members


def _demand(table: _Table) -> Demand:
    value = table.values.get("demand")
    if type(value) is int:
        return constant(table.integer("demand", 0))
    changes = table.pairs("demand")
    if not changes or [first for first, _ in changes] != sorted({first for first, _ in changes}):
        raise table.fault(
            "demand", "permits a window, or [[window, permits], …] with ascending windows"
        )
    return steps(changes)


def _events(values: object) -> Events:
    known = tuple(field.name for field in fields(Events))
    table = _Table("[events]", values, known)
    return Events(
        balancer_away=table.pairs("balancer_away"),
        capacities=dict(table.pairs("capacities")),
        lost_memory=table.integers("lost_memory"),
    )


def _demanded(values: object) -> Requirements:
    known = tuple(field.name for field in fields(Requirements))
    table = _Table("[demanded]", values, known)
    hosts = table.values.get("least_permits", {})
    if not isinstance(hosts, dict) or any(type(least) is not int for least in hosts.values()):
        raise table.fault("least_permits", "a table of hosts and permits")
    has = table.__contains__
    return Requirements(
        least_served_over_ideal=table.number("least_served_over_ideal", 0.0)
        if has("least_served_over_ideal")
        else None,
        most_worst_window=table.number("most_worst_window", 1.0)
        if has("most_worst_window")
        else None,
        most_zero_windows=table.integer("most_zero_windows", 0)
        if has("most_zero_windows")
        else None,
        most_moved_points=table.integer("most_moved_points", 0)
        if has("most_moved_points")
        else None,
        least_permits=hosts,
    )


# -- values of a dataclass from a table


def _filled(kind: Callable[..., _T], where: str, values: object) -> _T:
    """Return a dataclass of plain values, enums and lists of such dataclasses."""
    hints = get_type_hints(kind)
    names = tuple(field.name for field in fields(kind))  # type: ignore[arg-type] # a dataclass
    table = _Table(where, values, names)
    return kind(**{key: _value(table, key, hints[key]) for key in table.values})


def _value(table: _Table, key: str, kind: Any) -> object:  # noqa: PLR0911 - one line a kind
    value = table.values[key]
    kinds = [part for part in get_args(kind) if part is not type(None)]
    if get_origin(kind) in (Union, type(int | None)) and len(kinds) == 1:
        return _value(table, key, kinds[0])
    if kind is OnExpiry:
        return _on_expiry(table, key)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise table.fault(key, "a list of tables")
        return tuple(_filled(kinds[0], f"{table.where} {key}", entry) for entry in value)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _enum(kind, table, key, None)
    if kind is bool:
        return table.truth(key, default=False)
    if kind is float:
        return table.number(key, 0.0)
    if kind is str:
        return table.text(key, None)
    return table.integer(key, 0)


def _on_expiry(table: _Table, key: str) -> OnExpiry:
    value = table.values[key]
    if value == "closed":
        return CLOSED
    inner = _Table(f"{table.where} {key}", value, ("permille", "for_seconds"))
    return OnExpiry(inner.integer("permille", 0), inner.integer("for_seconds", 0) * 1000)


_E = TypeVar("_E", bound=StrEnum)


def _enum(kind: type[_E], table: _Table, key: str, default: _E | None) -> _E:
    if key not in table and default is not None:
        return default
    known = {member.value: member for member in kind}
    given = table.text(key, None)
    if given not in known:
        raise table.fault(key, " or ".join(known))
    return known[given]
