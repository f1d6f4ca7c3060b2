"""The page of policies and the protocol's page of them say what the code does."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from balancer.adapters.http.bodies import read_change
from balancer.app import catalogue
from balancer.app.destinations import as_json
from balancer.app.explanation import Explanation, case_as_json, explanation_as_json
from balancer.app.holds import Held
from balancer.app.policies import SETTINGS, Setting, policy_to_values
from balancer.app.rule_texts import RULES
from balancer.commands.destinations import set_destination
from balancer.commands.policy_options import PERCENT_OPTIONS
from balancer.core.model import Destination, Policy
from tests.unit.test_explanation import case

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (REFERENCE / "policies.md").read_text(encoding="utf-8")
PROTOCOL = (REFERENCE / "protocol.md").read_text(encoding="utf-8")
ROWS = {
    cells[0].strip("`"): cells
    for row in re.findall(r"^\| (`.+) \|$", PAGE, re.MULTILINE)
    for cells in [re.split(r" \| ", row)]
    if len(cells) == 6
}


def options(setting: Setting) -> str:
    return ", ".join(f"`{name}`" for name in setting.option.replace(" / ", ", ").split(", "))


def bounds(setting: Setting) -> str:
    if setting.least is None:
        return setting.bounds
    told = f"{setting.least:,} to {setting.most:,} {setting.unit}"
    for option in PERCENT_OPTIONS:
        if option.field == setting.name:
            least = Decimal(setting.least) / option.per_percent
            return f"{told}; as an option {least:f} to {option.most:,} %"
    return told


def default(setting: Setting) -> str:
    value: Any = policy_to_values(Policy())[setting.name]
    for option in PERCENT_OPTIONS:
        if option.field == setting.name:
            return f"{value:,} ({(Decimal(value) / option.per_percent).normalize():f} %)"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_value_stands_on_the_page_as_in_the_code(setting: Setting) -> None:
    assert ROWS[setting.name] == [
        f"`{setting.name}`",
        options(setting),
        setting.meaning,
        bounds(setting),
        default(setting),
        setting.effect,
    ]


def test_the_page_has_every_value_and_no_other() -> None:
    assert list(ROWS) == [setting.name for setting in SETTINGS]


def test_the_options_on_the_page_are_those_of_the_command() -> None:
    named = {option for setting in SETTINGS for option in re.findall(r"--[a-z-]+", setting.option)}
    of_command = {
        name
        for parameter in set_destination.params
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    }
    assert named == of_command - {"--capacity", "--window-seconds", "--config", "--json"}
    for option in re.findall(r"--[a-z][a-z-]+", PAGE):
        assert option in of_command, option


def test_the_weights_on_the_page_can_be_sent() -> None:
    (example,) = re.findall(r"```json\n(.+?)\n```", PAGE, re.DOTALL)
    body = json.dumps({"policy": {"weights": json.loads(example)}}).encode()
    assert len(read_change(body, "orders-db").policy["weights"]) == 2


def test_the_metrics_and_links_on_the_page_exist() -> None:
    names = {metric.name for metric in catalogue.CATALOGUE}
    assert set(re.findall(r"permit_\w+", PAGE)) <= names
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (REFERENCE / target).is_file(), target


def example(marker: str) -> Any:
    return json.loads(PROTOCOL.split(f"<!-- {marker} -->\n```json\n")[1].split("\n```")[0])


def test_the_destination_in_the_protocol_is_what_the_code_gives_and_takes() -> None:
    shown = example("destination")
    destination = Destination("orders-db", 100_000, changed_at_ms=shown["changed_at_ms"])
    assert shown == as_json(destination)
    change = read_change(json.dumps(shown).encode(), "orders-db")
    assert Policy(**change.policy) == Policy()


def test_the_explanation_in_the_protocol_has_the_keys_of_the_code() -> None:
    told = explanation_as_json(Explanation(case().destination, (case(),), more=False))
    section = PROTOCOL.split("### Why shares are as they are")[1].split("\n#")[0]
    keys = set(re.findall(r"`([a-z_]+)`", section))
    assert set(told) | set(case_as_json(case())) <= keys
    assert set(RULES) <= set(re.findall(r"`([a-z-]+)`", section))
    (held,) = re.findall(r"`held` is what safety costs:\n`\{(.+?)\}`", PROTOCOL)
    assert held.replace('"', "").split(",") == list(Held(0, 0, None).as_json(1))
