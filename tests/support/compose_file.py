"""``docker-compose.yml`` and ``deploy/Dockerfile`` as values.

Decides what Compose would make of them, as far as these files go: variables with defaults put in,
merge keys merged, what the image says where a service says nothing. Knows nothing of processes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"

_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
_LEFT_OVER = re.compile(r"\$(?!\$)")


@dataclass(frozen=True, slots=True)
class Check:
    """A health check: what is run, and how long it may fail."""

    command: tuple[str, ...]
    interval_seconds: float
    patience_seconds: float


@dataclass(frozen=True, slots=True)
class Service:
    """A service as its container would be started.

    Attributes:
        ours: whether its image is the one that ``deploy/Dockerfile`` builds.
        arguments: entrypoint and command; the entrypoint is empty where another's image has it.
        needs: other services, with the condition on which this one starts.
        ports: those of the container that are published.
    """

    name: str
    ours: bool
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    check: Check | None
    needs: Mapping[str, str]
    ports: tuple[int, ...]


def read_compose(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the file with its variables put in, from ``variables`` or their defaults."""
    given = variables or {}
    text = COMPOSE_FILE.read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    text = _VARIABLE.sub(lambda match: given.get(match[1], match[2]), "\n".join(lines))
    assert not _LEFT_OVER.search(text), "a variable of a form that is not understood here"
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def variables_of_compose() -> dict[str, str]:
    """Returns the variables that the file takes, with their defaults."""
    return dict(_VARIABLE.findall(COMPOSE_FILE.read_text()))


def dockerfile_steps() -> list[tuple[str, str]]:
    """Returns the steps of the Dockerfile: instruction and the rest, continued lines joined."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]


def final_stage() -> list[tuple[str, str]]:
    """Returns the steps of the Dockerfile's last stage, its FROM first."""
    steps = dockerfile_steps()
    last = max(index for index, (word, _) in enumerate(steps) if word == "FROM")
    return steps[last:]


def image_environment() -> dict[str, str]:
    """Returns the variables that the image sets, without PATH."""
    words = [word for step, text in final_stage() if step == "ENV" for word in shlex.split(text)]
    pairs = (word.partition("=") for word in words)
    return {name: value for name, _, value in pairs if name != "PATH"}


def image_check() -> tuple[str, ...]:
    """Returns the command of the image's own health check."""
    (text,) = [text for step, text in final_stage() if step == "HEALTHCHECK"]
    return tuple(json.loads(text.partition("CMD ")[2]))


def copied_files() -> dict[str, Path]:
    """Returns where the image keeps files of the project: its path, and the file's here."""
    copies = [text.split() for step, text in final_stage() if step == "COPY" and "--" not in text]
    return {target: ROOT / source for source, target in copies}


def services(variables: Mapping[str, str] | None = None) -> dict[str, Service]:
    """Returns every service, each behind those that it needs."""
    read: dict[str, dict[str, Any]] = read_compose(variables)["services"]
    built = {given["image"] for given in read.values() if "build" in given}
    needs = {name: given.get("depends_on", {}).keys() for name, given in read.items()}
    order = TopologicalSorter(needs).static_order()
    return {name: _service(name, read[name], read[name]["image"] in built) for name in order}


def _service(name: str, given: Mapping[str, Any], ours: bool) -> Service:
    entrypoint = given.get("entrypoint", _image_entrypoint() if ours else [])
    environment = {key: _text(value) for key, value in given.get("environment", {}).items()}
    return Service(
        name=name,
        ours=ours,
        arguments=tuple(_text(word) for word in [*entrypoint, *given.get("command", [])]),
        environment={**image_environment(), **environment} if ours else environment,
        check=_check(given.get("healthcheck", {})),
        needs={other: need["condition"] for other, need in given.get("depends_on", {}).items()},
        ports=tuple(int(port.rpartition(":")[2]) for port in given.get("ports", [])),
    )


def _image_entrypoint() -> list[str]:
    words: list[str] = next(
        json.loads(text) for step, text in final_stage() if step == "ENTRYPOINT"
    )
    return words


def _check(given: Mapping[str, Any]) -> Check | None:
    if "test" not in given:
        return None
    form, *command = given["test"]
    assert form == "CMD"
    interval_seconds = _seconds(given["interval"])
    patience_seconds = _seconds(given.get("start_period", "0s")) + interval_seconds * int(
        given["retries"]
    )
    return Check(tuple(command), interval_seconds, patience_seconds)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)s", text)
    assert match, text
    return float(match[1])


def _text(value: object) -> str:
    """Returns a value as a container gets it; YAML's true and false must be quoted in the file."""
    assert isinstance(value, str | int), value
    assert not isinstance(value, bool), value
    return str(value)
