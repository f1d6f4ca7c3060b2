"""``permit-balancer simulate``: its outputs, its exit codes, its page."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from balancer.commands import main
from balancer.simulation.plots import POINTS_MAX, Series, escape, lines, stretches

SHARED_KEYS = {
    "scenario", "hosts", "windows", "capacity", "delivered", "ideal", "served_over_ideal",
    "worst_window_over_capacity", "refused_by_destination", "max_share_sum",
    "longest_zero_windows", "seconds_to_first_permit",
}  # fmt: skip
"""What the summaries of the demonstration and of the simulation have in common."""


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["simulate", *arguments])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_has_the_keys_that_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--scenario", "two-hosts", "--json")
    result = json.loads(out)
    assert code == 0
    assert set(result) >= SHARED_KEYS
    even = result["even_split"]
    assert set(even) >= SHARED_KEYS
    assert "even_split" not in even
    assert result["served_over_ideal"] == 1.0
    assert even["served_over_ideal"] == 0.7
    assert result["broken"] == result["unmet"] == []


def test_any_value_of_the_policy_can_be_tried(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--scenario", "two-hosts", "--maximum-percent", "50", "--json")
    assert (code, json.loads(out)["served_over_ideal"]) == (0, 0.7)
    code, _, err = call(capsys, "--scenario", "two-hosts", "--maximum-percent", "500")
    assert (code, "--maximum-percent is '500'" in err) == (2, True)


@pytest.mark.parametrize("scenario", ["hot-set", "blocking"])
def test_the_same_seed_gives_the_same_bytes(
    capsys: pytest.CaptureFixture[str], scenario: str
) -> None:
    options = ("--scenario", scenario, "--windows", "12", "--lost-reads", "0.2", "--json")
    first, again, other = (call(capsys, *options, "--seed", seed)[1] for seed in ("7", "7", "8"))
    assert first == again
    assert json.loads(first) != json.loads(other)


def test_people_get_the_summary_and_the_hosts_in_need(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--scenario", "step", "--windows", "14")
    assert code == 0
    assert "served of what was possible" in out
    assert "capacity 100000, strategy max_min, seed 1" in out
    rows = re.findall(r"^host-\d\d +\d+ +\d+ +[\d.]+ % +[\d.]+ % +\d+$", out, re.MULTILINE)
    assert len(rows) == 10
    assert rows[0].startswith("host-00")


def test_the_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--scenario", "list")
    assert code == 0
    listed = json.loads(call(capsys, "--scenario", "list", "--json")[1])
    assert {"two-hosts", "churn", "outage", "hot-set", "day"} <= set(listed)
    assert all(name in out and words in out for name, words in listed.items())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "one of --scenario, --trace and --file"),
        (("--scenario", "step", "--file", __file__), "one of --scenario"),
        (("--scenario", "nothing"), "there are two-hosts"),
        (("--scenario", "step", "--windows", "3"), "needs 14 or more"),
        (("--scenario", "step", "--windows", "0"), "--windows"),
        (("--scenario", "step", "--capacity", "much"), "--capacity much"),
        (("--scenario", "step", "--strategy", "fair"), "--strategy"),
        (("--scenario", "step", "--lost-reads", "1.5"), "lost_reads is 1.5"),
        (("--scenario", "step", "--lost-reports", "nan"), "lost_reports is nan"),
        (("--scenario", "step", "--delay-rounds", "0"), "delay_rounds is 0"),
        (("--scenario", "step", "--hosts", "5"), "go with --trace"),
        (("--scenario", "step", "--seed", "x"), "--seed"),
        (("--trace", "/nowhere/at-all.csv"), "--trace"),
        (("--trace", __file__), "--trace"),
        (("--file", __file__), "cannot be read"),
        (("--scenario", "step", "--html", "/nowhere/at-all.html"), "--html"),
    ],
)
def test_wrong_usage_is_explained_and_exits_with_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert words in err


def test_a_trace_is_replayed_at_a_percentile(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "calls.csv"
    counts = "\n".join(f"f{n}," + ",".join(str(n * m % 7) for m in range(10)) for n in range(12))
    head = ",".join(f"minute_{m}" for m in range(1, 11))
    file.write_text(f"name,{head}\n{counts}\n", encoding="utf-8")
    options = ("--trace", str(file), "--capacity", "p50", "--strategy", "equal", "--json")
    result = json.loads(call(capsys, *options)[1])
    totals = sorted(sum(n * m % 7 for n in range(12)) for m in range(10))
    assert result["capacity"] == totals[5]
    assert (result["hosts"], result["windows"], result["strategy"]) == (12, 10, "equal")
    assert result["scenario"] == "calls.csv"


def test_kept_work_is_served_later(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--scenario", "blocking", "--windows", "12", "--json")
    dropped, kept = (json.loads(call(capsys, *options, *more)[1]) for more in ((), ("--backlog",)))
    assert kept["ideal"] >= dropped["ideal"]


FILE = """
capacity = 100
windows = 6
[demanded]
least_served_over_ideal = {part}
[[members]]
host = "a<b>&\\u00e9"
count = 12
demand = 20
"""


@pytest.mark.parametrize(("part", "code"), [(0.1, 0), (1.0, 1)])
def test_a_file_whose_demand_is_missed_exits_with_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, part: float, code: int
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(FILE.format(part=part), encoding="utf-8")
    got, out, _ = call(capsys, "--file", str(file))
    assert got == code
    assert ("not reached: served" in out) is bool(code)


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, html = tmp_path / "own.toml", tmp_path / "page.html"
    file.write_text(FILE.format(part=1.0), encoding="utf-8")
    call(capsys, "--file", str(file), "--html", str(html))
    text = html.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>\n")
    root = ET.fromstring(text)
    tags = {element.tag for element in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base"}
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not attributes & {"src", "href", "action"}
    assert not re.search(r"https?:|//|url\(|@import", text)
    assert len(list(root.iter("svg"))) == 4
    spoken = " ".join(root.itertext())
    assert "a<b>&é-1" in spoken
    for words in (
        "permits a window",
        "window of the run",
        "capacity",
        "Not reached",
        "the other 2",
    ):
        assert words in spoken
    assert "prefers-color-scheme: dark" in text


def test_a_page_that_cannot_be_written_is_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = call(capsys, "--scenario", "two-hosts", "--html", str(tmp_path))
    assert code == 2
    assert "--html" in err


def test_a_long_run_is_drawn_in_stretches_that_miss_no_window() -> None:
    for windows in (1, 2, POINTS_MAX, POINTS_MAX + 1, 1440, 100_000):
        spans = stretches(windows)
        assert len(spans) <= POINTS_MAX
        assert [window for span in spans for window in span] == list(range(windows))


def test_a_plot_of_nothing_is_a_plot() -> None:
    drawn = lines([Series("none", "used", [0.0])], stretches(1), label="none", y_label="none")
    ET.fromstring(drawn)


def test_text_that_xml_does_not_have_becomes_a_question_mark() -> None:
    assert escape("a\x00b\ud800c\uffffd<\"'>") == "a?b?c?d&lt;&quot;'&gt;"
    ET.fromstring(f"<p>{escape(''.join(map(chr, range(0xD7FF))))}</p>")
