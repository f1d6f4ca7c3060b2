"""Recorded demand: what a file may be, and what is said of one that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from balancer.simulation.even_split import EvenSplit
from balancer.simulation.outcome import HostAccount
from balancer.simulation.traces import parse_capacity, read_trace
from worker_sdk.errors import ConfigurationError

RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data"


def written(path: Path, text: str) -> Path:
    file = path / "trace.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_counts_a_minute_become_demand_a_window(tmp_path: Path) -> None:
    file = written(tmp_path, "HashApp,minute_1,minute_2,minute_3\na,1,,3\nb,4,5,6\n")
    trace = read_trace(file)
    assert trace.rows == ((1, 0, 3), (4, 5, 6))
    assert trace.totals == [5, 5, 9]
    assert read_trace(file, windows=2).rows == ((1, 0), (4, 5))


def test_requests_become_demand_of_hosts_without_losing_one(tmp_path: Path) -> None:
    rows = [f"2023-11-16 18:{17 + n // 60}:{n % 60:02}.97996{n % 10:02},1" for n in range(200)]
    file = written(tmp_path, "TIMESTAMP,Tokens\n" + "\n".join(reversed(rows)) + "\n")
    trace = read_trace(file, hosts=7)
    assert trace.window_seconds == 60
    assert trace.totals == [60, 60, 60, 20]
    assert len(trace.rows) == 7
    assert read_trace(file, hosts=7) == trace
    assert read_trace(file, hosts=7, seed=2) != trace
    assert sum(read_trace(file, hosts=7, window_seconds=10).totals) == 200
    assert read_trace(file, hosts=7, windows=2).totals == [60, 60]


@pytest.mark.parametrize(
    "text", ["2023-11-16T18:17:03Z", "2023-11-16 18:17:03.9799600+00:00", "2023-11-16 18:17"]
)
def test_an_instant_may_have_a_zone_a_fraction_or_neither(tmp_path: Path, text: str) -> None:
    assert read_trace(written(tmp_path, f"TIMESTAMP\n{text}\n"), hosts=1).rows == ((1,),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "neither columns minute_1"),
        ("a,b\n1,2\n", "neither columns minute_1"),
        ("minute_1\n", "no row"),
        ("minute_1\nx\n", "not a whole number"),
        ("minute_1\n-1\n", "negative"),
        ("minute_1\n9999999999999\n", "above"),
        ("TIMESTAMP\n", "no row"),
        ("TIMESTAMP\nyesterday\n", "line 2"),
        ("TIMESTAMP\n2023-11-16 18:17:03.x\n", "line 2"),
        ("TIMESTAMP\n1970-01-01 00:00:00\n2023-11-16 18:17:03\n", "spans"),
    ],
)
def test_a_file_that_cannot_be_used_is_explained(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read_trace(written(tmp_path, text))


def test_more_windows_than_there_are_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no column minute_2"):
        read_trace(written(tmp_path, "minute_1\n1\n"), windows=3)


def test_a_file_that_is_no_text_or_not_there_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_bytes(b"minute_1\n\xff\xfe\n")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_trace(file)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")


def test_a_capacity_is_permits_or_a_percentile() -> None:
    totals = list(range(100, 0, -1))
    assert parse_capacity("p90", totals) == 91
    assert parse_capacity("0", totals, least=0) == 0
    assert parse_capacity("p0", [0, 5], least=0) == 0
    assert parse_capacity("1000000000", ()) == 10**9
    for text in ("p90", "-5", "1.5", "p1000", "p", "٣", "9" * 5000):
        with pytest.raises(ConfigurationError, match="--capacity"):
            parse_capacity(text, ())


def test_the_recorded_files_are_read_whole() -> None:
    counts, requests = (
        RECORDED / "azure_functions_2019_100.csv",
        RECORDED / "azure_llm_2023_code.csv",
    )
    for file in (counts, requests):
        if not file.exists():
            pytest.skip(f"{file.name} is not there: it is not part of this project")
    trace = read_trace(counts)
    assert (len(trace.rows), len(trace.rows[0])) == (100, 1440)
    assert parse_capacity("p90", trace.totals) == 612
    assert max(trace.totals) == 13_617
    assert sum(read_trace(requests, hosts=20).totals) == 8_819


def test_an_even_split_hands_out_the_whole_capacity() -> None:
    even = EvenSplit(keeps_backlog=False)
    for window in range(10):
        assert even.step(window, 7, dict.fromkeys(range(3), 100)) == 7
    assert even.served == [7] * 10
    assert even.longest_zero_windows == {}


def test_an_even_split_keeps_work_and_hands_it_on() -> None:
    even = EvenSplit(keeps_backlog=True)
    even.step(0, 10, {"a": 100, "b": 0})  # 95 left with a
    assert even.step(1, 10, {"b": 0, "c": 0}, {"a": "c"}) == 5
    assert even.step(2, 10, {"b": 0}) == 10  # what c left falls to b


def test_a_hosts_account_adds_up_its_members() -> None:
    account = HostAccount("host", first_window=3)
    account.note(3, 10, 4, 100)
    account.note(3, 1, 1, 50)
    account.note(6, 2, 2, 10)
    assert list(account.wanted) == [11, 0, 0, 2]
    assert [account.served_in(window) for window in (2, 3, 4, 6, 7)] == [0, 5, 0, 2, 0]
    assert account.points_in(3) == 150
