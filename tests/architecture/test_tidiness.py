"""Rules of style that a machine can hold: sizes, opening words, one base of errors, clean text."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import balancer
import worker_sdk
from worker_sdk.errors import PermitError

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 70
CODE = ("balancer", "worker_sdk", "tests", "migrations", "benchmarks", "examples")
TEXT = {".md", ".py", ".toml", ".yml", ".yaml", ".json", ".sql", ".txt", ".xml", ""}
# The folder of a user or of one machine's set-up; the product's own examples use none of these.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|Users)/|(?<![\w.])/home/\w|\.pyenv|\.\./shared")


def source_files() -> list[Path]:
    return sorted(file for folder in CODE for file in (ROOT / folder).rglob("*.py"))


def project_files() -> list[Path]:
    """Files that git knows; without git (an unpacked archive) the sources alone."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return source_files()
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_files_are_short() -> None:
    lengths = {file: len(file.read_text().splitlines()) for file in source_files()}
    assert {str(f): n for f, n in lengths.items() if n > MOST_LINES_OF_A_FILE} == {}


def test_functions_are_short() -> None:
    long = [
        f"{file.relative_to(ROOT)}:{function.lineno} {function.name}"
        for file in source_files()
        for function in functions(ast.parse(file.read_text()))
        if (function.end_lineno or 0) - function.lineno + 1 > MOST_LINES_OF_A_FUNCTION
    ]
    assert long == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(file.relative_to(ROOT))
        for file in source_files()
        if file.read_text().strip() and ast.get_docstring(ast.parse(file.read_text())) is None
    ]
    assert silent == []


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    own = Path(__file__).resolve()
    found = [
        f"{file.relative_to(ROOT)}: {match.group()}"
        for file in project_files()
        if file.suffix in TEXT and file.is_file() and file.resolve() != own
        for match in MACHINE_PATH.finditer(file.read_text(errors="replace"))
    ]
    assert found == []


@pytest.mark.parametrize("package", [worker_sdk, balancer], ids=lambda package: package.__name__)
def test_every_error_derives_from_the_one_base(package: object) -> None:
    path, name = vars(package)["__path__"], vars(package)["__name__"]
    strays = []
    for found in pkgutil.walk_packages(path, f"{name}."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        strays += [
            f"{found.name}.{kind.__name__}"
            for kind in vars(module).values()
            if isinstance(kind, type)
            and issubclass(kind, Exception)
            and kind.__module__ == found.name
            and not issubclass(kind, PermitError)
        ]
    assert strays == []
