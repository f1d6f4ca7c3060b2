"""A scenario from a TOML file: everything it may say, and a clear word on everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from balancer.core.model import Strategy
from balancer.simulation.requirements import Requirements
from balancer.simulation.scenario import Scenario, Style, TimetableKind
from balancer.simulation.scenario_file import read_scenario
from worker_sdk.errors import ConfigurationError
from worker_sdk.wire.distribution import OnExpiry, Pacing

FULL = """
name = "all of it"
capacity = 1000
windows = 40
window_seconds = 30
round_windows = 2
backlog = true
measured_from_window = 5

[policy]
strategy = "surplus"
valid_for_seconds = 900
on_expiry = { permille = 250, for_seconds = 60 }
pacing = "window"
enforce = true

[faults]
lost_reads = 0.1
delay_rounds = 2

[events]
balancer_away = [[10, 12], [20, 21]]
capacities = [[15, 800]]
lost_memory = [30]

[demanded]
least_served_over_ideal = 0.9
most_zero_windows = 4
least_permits = { api-1 = 10 }

[[members]]
host = "api"
count = 3
demand = [[0, 100], [8, 300]]
group = "front"

[[members]]
host = "batch"
demand = 70
noise = 0.1
joins_window = 4
leaves_window = 30
killed = true
style = "blocking"
work_ms = 5
"""


def read(tmp_path: Path, text: str, seed: int = 1) -> tuple[Scenario, Requirements]:
    file = tmp_path / "scenario.toml"
    file.write_text(text, encoding="utf-8")
    return read_scenario(file, seed=seed)


def test_a_file_says_everything_of_a_scenario(tmp_path: Path) -> None:
    scenario, demanded = read(tmp_path, FULL)
    assert (scenario.name, scenario.capacity, scenario.windows) == ("all of it", 1000, 40)
    assert (scenario.window_seconds, scenario.round_windows) == (30, 2)
    assert scenario.keeps_backlog
    assert scenario.measured_from_window == 5
    assert scenario.policy.strategy is Strategy.SURPLUS
    assert scenario.policy.on_expiry == OnExpiry(250, 60_000)
    assert scenario.policy.pacing is Pacing.WINDOW
    assert (scenario.faults.lost_reads, scenario.faults.delay_rounds) == (0.1, 2)
    assert scenario.events.balancer_away == ((10, 12), (20, 21))
    assert scenario.events.capacities == {15: 800}
    assert scenario.events.lost_memory == (30,)
    assert demanded.least_served_over_ideal == 0.9
    assert demanded.least_permits == {"api-1": 10}
    assert [plan.host for plan in scenario.members] == ["api-1", "api-2", "api-3", "batch"]
    first, last = scenario.members[0], scenario.members[-1]
    assert [first.demand(window) for window in (0, 7, 8, 39)] == [100, 100, 300, 300]
    assert (last.style, last.is_killed, last.leaves_window) == (Style.BLOCKING, True, 30)
    assert all(63 <= last.demand(window) <= 77 for window in range(40))
    assert len({last.demand(window) for window in range(40)}) > 5


def test_noise_is_the_seeds(tmp_path: Path) -> None:
    def drawn(seed: int) -> list[int]:
        plan = read(tmp_path, FULL, seed)[0].members[-1]
        return [plan.demand(window) for window in range(40)]

    assert drawn(1) == drawn(1) != drawn(2)


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    scenario, demanded = read(tmp_path, 'capacity = 5\n[[members]]\nhost = "a"\ndemand = 1\n')
    assert (scenario.name, scenario.windows, scenario.window_seconds) == ("scenario", 60, 60)
    assert demanded == Requirements(most_worst_window=None)


def test_members_may_come_from_a_trace_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "calls.csv").write_text("minute_1,minute_2\n1,2\n3,4\n", encoding="utf-8")
    text = 'capacity = "p100"\n[trace]\nfile = "calls.csv"\n[[members]]\nhost = "a"\ndemand = 10\n'
    scenario, _ = read(tmp_path, text)
    assert (scenario.windows, scenario.capacity) == (2, 16)
    assert [plan.demand(1) for plan in scenario.members] == [10, 2, 4]


MEMBER = '[[members]]\nhost = "a"\ndemand = 1\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("capacity = ", "cannot be read"),
        (MEMBER, "capacity is missing"),
        ("capacity = 1\n", "has no members"),
        (f"capacity = -1\n{MEMBER}", "capacity is -1"),
        (f'capacity = "many"\n{MEMBER}', "--capacity many"),
        (f"capacity = 1\ncapasity = 2\n{MEMBER}", "no key capasity; there are name, capacity"),
        (f"capacity = 1\nwindows = 0\n{MEMBER}", "windows is 0"),
        (f"capacity = 1\nwindows = true\n{MEMBER}", "windows is True"),
        (f"capacity = 1\nbacklog = 1\n{MEMBER}", "backlog is 1"),
        (f"capacity = 1\nmeasured_from_window = 60\n{MEMBER}", "from 0 to 59"),
        (f'capacity = 1\n[policy]\nstrategy = "fair"\n{MEMBER}', "max_min or equal or surplus"),
        (f"capacity = 1\n[policy]\nstrategie = 1\n{MEMBER}", "no key strategie"),
        (f"capacity = 1\n[policy]\nguard_ms = 40000\n{MEMBER}", "guard_ms"),
        (f"capacity = 1\n[policy]\non_expiry = 5\n{MEMBER}", "on_expiry is no table"),
        (f"capacity = 1\n[policy]\npeak_decay_permille = 1.5\n{MEMBER}", "peak_decay_permille"),
        (f"capacity = 1\n[faults]\nlost_reads = 2.0\n{MEMBER}", "lost_reads is 2.0"),
        (f"capacity = 1\n[events]\nbalancer_away = [[5, 5]]\n{MEMBER}", "balancer_away"),
        (f"capacity = 1\n[events]\nbalancer_away = [5]\n{MEMBER}", "list of pairs"),
        (f"capacity = 1\n[events]\ncapacities = [[1, -5]]\n{MEMBER}", "list of pairs"),
        (f"capacity = 1\n[demanded]\nleast_served_over_ideal = 2\n{MEMBER}", "from 0 to 1"),
        (f"capacity = 1\n[trace]\nhosts = 5\n{MEMBER}", "file is missing"),
        ('capacity = 1\n[trace]\nfile = "no.csv"\n', "cannot be read"),
        ("capacity = 1\nmembers = 5\n", "no list of tables"),
        ("capacity = 1\n[[members]]\ndemand = 1\n", "host is missing"),
        ('capacity = 1\n[[members]]\nhost = "a"\n', "demand is None"),
        ('capacity = 1\n[[members]]\nhost = "a"\ndemand = [[5, 1], [3, 1]]\n', "ascending"),
        ('capacity = 1\n[[members]]\nhost = "a"\ndemand = "1"\n', "list of pairs"),
        (f'capacity = 1\ntimetable = "own"\n{MEMBER}', "window or service"),
        (
            f'capacity = 1\ntimetable = "service"\nround_windows = 2\n{MEMBER}',
            "it must be 1",
        ),
        (f"capacity = 1\n{MEMBER}leaves_window = 0\n", "must leave later"),
        (f'capacity = 1\n{MEMBER}style = "lazy"\n', "asking or blocking"),
        (f"capacity = 1\n{MEMBER}noise = 3\n", "noise is 3"),
        (f"capacity = 1\n{MEMBER}count = 20000\n", "count is 20000"),
        ('capacity = 1\n[[members]]\nhost = "a\\u0000"\ndemand = 1\n', "host"),
    ],
)
def test_a_slip_of_the_pen_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(tmp_path, text)
    assert words in str(raised.value)
    assert "scenario.toml" in str(raised.value)


def test_the_documented_file_is_a_scenario(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "simulation.md"
    block = page.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    scenario, demanded = read(tmp_path, block)
    assert scenario.timetable is TimetableKind.SERVICE
    assert len(scenario.members) == 41
    assert demanded.least_permits == {"batch": 500}


def test_a_file_that_is_not_there_or_no_text_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_scenario(tmp_path / "none.toml")
    file = tmp_path / "bytes.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_scenario(file)
