"""The page of the protocol says what the code does: its limits, examples and worked numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.golden.examples import FOLDER
from worker_sdk.errors import RejectReason
from worker_sdk.wire import limits
from worker_sdk.wire.pointer import shard_of
from worker_sdk.wire.shares import (
    GOLDEN_STEP_POINTS,
    POINTS,
    interval_permits,
    points_for_permits,
    rotation_points,
    safe_permits,
)
from worker_sdk.wire.strict import dump_json
from worker_sdk.wire.usage import CONTENT_TYPE, REJECTED_TOPIC, TUPLE_FIELDS, USAGE_TOPIC

PAGE_PATH = Path(__file__).parents[2] / "docs" / "reference" / "protocol.md"
PAGE = PAGE_PATH.read_text(encoding="utf-8")
FLAT = " ".join(PAGE.split())
EXAMPLES = dict(re.findall(r"<!-- golden: (\S+) -->\n```\w+\n(.*?)\n```\n", PAGE, re.DOTALL))


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def test_every_limit_of_the_code_stands_on_the_page_and_no_other() -> None:
    stated = dict(re.findall(r"^\| `([A-Z_]+)` \|[^|]*\| ([0-9,]+) \|$", PAGE, re.MULTILINE))
    names = {name for name in vars(limits) if name.isupper()}
    assert {name: int(value.replace(",", "")) for name, value in stated.items()} == {
        name: getattr(limits, name) for name in names
    }


def test_every_uncompressed_golden_file_stands_on_the_page_byte_for_byte() -> None:
    files = {path.name for path in FOLDER.iterdir() if path.suffix in (".json", ".jsonl")}
    assert set(EXAMPLES) == files
    for name, text in EXAMPLES.items():
        assert text == (FOLDER / name).read_text(encoding="utf-8").rstrip("\n")


def test_every_cause_of_refusal_stands_on_the_page_and_no_other() -> None:
    section = PAGE.split("## Why something was refused")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [r.value for r in RejectReason]


def test_the_shards_on_the_page_are_those_of_the_code() -> None:
    table = PAGE.split("<!-- shards of 8 -->")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(.+)` \| (\d+) \|$", table, re.MULTILINE)
    assert len(rows) == 4
    for name, shard in rows:
        assert shard_of(name, 8) == int(shard)


@pytest.mark.parametrize(
    ("marker", "table"), re.findall(r"<!-- permits: ([^\n]+) -->\n(.*?)\n\n", PAGE, re.DOTALL)
)
def test_the_worked_permits_are_those_of_the_code(marker: str, table: str) -> None:
    capacity, *spans = cells(marker)
    intervals = [tuple(map(int, span.split())) for span in spans]
    rows = [list(map(int, cells(row))) for row in table.splitlines()[2:]]
    assert len(rows) == 4
    for window, rotation, *permits in rows:
        assert rotation == rotation_points(window)
        assert permits == [interval_permits(int(capacity), a, b, window) for a, b in intervals]
        assert sum(permits) == int(capacity)


def test_the_constants_on_the_page_are_those_of_the_code() -> None:
    assert f"{GOLDEN_STEP_POINTS}) mod {POINTS}\n" in PAGE
    assert PAGE.count("<!-- permits: ") == 2
    assert f"`{USAGE_TOPIC}`" in PAGE
    assert f"`{REJECTED_TOPIC}`" in PAGE
    assert f"`{CONTENT_TYPE}`" in PAGE
    tuple_table = PAGE.split("A usage tuple is a list of nine items:")[1].split("\n\n")[1]
    assert len(tuple_table.splitlines()) == 2 + TUPLE_FIELDS
    assert f"{safe_permits(100_000, 180_000_000):,} permits" in FLAT
    assert f"3 permits of 7 need {points_for_permits(3, 7):,} points" in FLAT


def test_a_member_line_begins_on_the_page_as_the_code_writes_it() -> None:
    start = dump_json(["worker-07", "5f0c9a52d1e84b7c"]).decode()[:-1] + ","
    assert f"```text\n{start}\n```" in PAGE
    assert f"\n{start}" in EXAMPLES["document.jsonl"]


def test_every_link_of_the_page_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (PAGE_PATH.parent / target).is_file(), target
    headings = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    }
    for anchor in re.findall(r"\]\(#([^)]+)\)", PAGE):
        assert anchor in headings, anchor
