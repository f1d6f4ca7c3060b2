"""The command line without any server: help, loading, missing packages."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from balancer.app.rule_texts import RULES
from balancer.commands import main
from balancer.commands.distribution import standings
from balancer.commands.group import COMMANDS
from balancer.core import planner
from balancer.core.record import LEFT, NEWCOMER, TOPPED_UP

HEAVY = ("aiohttp", "aiokafka", "alembic", "asyncpg", "boto3", "pydantic", "rich", "sqlalchemy")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, (_, words) in COMMANDS.items():
        assert name in out
        assert words in " ".join(out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: permit-balancer {name}")
    assert len(out.splitlines()) > 5


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("permit-balancer ")


def test_help_loads_no_driver() -> None:
    program = (
        "import sys; from balancer.commands import main; main(['--help']); "
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"


def test_a_missing_package_is_one_line_with_what_to_install() -> None:
    program = (
        "import sys; sys.modules['click'] = None; "
        "from balancer.commands import main; sys.exit(main(['serve']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "permit-balancer: the package click is missing; "
        "run: pip install 'permit-balancer[balancer]'"
    )


def test_explain_has_words_for_every_rule_of_the_planner_and_no_other() -> None:
    text = (planner.__doc__ or "").split("Rules named in reasons:")[1]
    of_early_rounds = {NEWCOMER, TOPPED_UP, LEFT}  # which plan nothing anew
    assert set(re.findall(r"``([a-z-]+)``", text)) | of_early_rounds == set(RULES)


def test_of_documents_for_the_same_windows_the_newest_is_in_force() -> None:
    covered = [(12, 13), (11, 12), (10, 12), (10, 11), (8, 10)]
    documents = [
        {"window_seconds": 60, "from_window": first, "until_window": end} for first, end in covered
    ]
    assert standings(documents, 11 * 60 + 59.9) == ["later", "in force", "replaced", "over", "over"]
    assert standings(documents, 10 * 60) == ["later", "later", "in force", "replaced", "over"]
    assert standings(documents, 13 * 60) == ["over"] * 5
