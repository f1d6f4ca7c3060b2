"""How `serve` ends before it has begun: told to stop while it starts."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from balancer.commands import main
from balancer.commands.group import WRONG_USAGE
from balancer.embedded import EmbeddedStack
from balancer.embedded.errors import DirectoryError

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60

TOLD_WHILE_LOADING = """
import os, signal
from balancer import settings
from balancer.commands import main
settings.load_settings = lambda _: os.kill(os.getpid(), signal.NUMBER) or signal.pause()
raise SystemExit(main(["serve"]))
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_told_to_stop_before_it_serves_it_ends_in_order_and_says_nothing(number: str) -> None:
    ended = run(TOLD_WHILE_LOADING.replace("NUMBER", number))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("folder", ["file/below", "file"])
def test_a_data_dir_that_cannot_be_made_is_one_line_with_the_option(
    tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        assert main(["serve", "--embedded", "--data-dir", str(tmp_path / folder)]) == WRONG_USAGE
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
    assert "--data-dir" in capsys.readouterr().err


def test_a_directory_that_cannot_be_locked_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(DirectoryError, match=re.escape(f"{tmp_path} cannot be used")):
        EmbeddedStack(tmp_path).start()
