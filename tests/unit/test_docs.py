"""The guides are true: links lead somewhere, commands and options exist, tested code runs."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import worker_sdk
from balancer.commands.group import group
from worker_sdk import DestinationHandle, PermitClient

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INTERNAL = {"from_env", "name", "rebind"}
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def page(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of permit-balancer in the shell blocks of a page."""
    for language, block in BLOCK.findall(text):
        if language in {"sh", "console"}:
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True)
                if "permit-balancer" in words and words[0] != "docker":
                    yield words[words.index("permit-balancer") + 1 :]


@pytest.mark.parametrize("path", PAGES, ids=page)
def test_a_link_leads_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        found = path.parent / file if file else path
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize("path", PAGES, ids=page)
def test_a_command_that_is_shown_exists_with_its_options(path: Path) -> None:
    for words in commands(path.read_text(encoding="utf-8")):
        command: click.Command = group
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            name = words.pop(0)
            found = command.get_command(click.Context(command), name)
            assert found is not None, name
            command = found
        known = {
            option for entry in command.params for option in [*entry.opts, *entry.secondary_opts]
        }
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= known, (command.name, given - known)


def test_the_reference_of_the_client_names_all_of_it() -> None:
    text = (ROOT / "docs/reference/client.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)", text))
    for kind in (PermitClient, DestinationHandle):
        assert {name for name in vars(kind) if not name.startswith("_")} - INTERNAL <= named
    assert set(inspect.signature(PermitClient).parameters) <= named
    assert {name for name in worker_sdk.__all__ if name.endswith(("Error", "Timeout"))} <= named
    variables = set(re.findall(r"PERMIT_\w+", inspect.getdoc(PermitClient.from_env) or ""))
    assert variables <= named


def test_the_tests_that_the_guide_shows_pass(request: pytest.FixtureRequest) -> None:
    text = (ROOT / "docs/how-to/test-your-worker.md").read_text(encoding="utf-8")
    code = "\n".join(block for language, block in BLOCK.findall(text) if language == "python")
    names: dict[str, object] = {}
    exec(compile(code, "test-your-worker.md", "exec"), names)
    tests = [found for name, found in names.items() if name.startswith("test_")]
    assert len(tests) == 4
    for test in tests:
        assert callable(test)
        wanted = inspect.signature(test).parameters
        test(**{name: request.getfixturevalue(name) for name in wanted})


@pytest.mark.parametrize("path", PAGES, ids=page)
def test_python_that_is_shown_is_python(path: Path) -> None:
    for language, block in BLOCK.findall(path.read_text(encoding="utf-8")):
        if language == "python":
            compile(block, page(path), "exec")
