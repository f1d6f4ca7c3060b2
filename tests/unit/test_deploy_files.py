"""The files for Docker say what they must; no Docker engine is needed to know that."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from balancer.commands.group import COMMANDS
from balancer.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
RUN_ONCE = {"bucket", "capacity", "migrate"}
WORKERS = {"worker-1", "worker-2", "worker-3"}
PINNED = re.compile(r"^[\w./-]+:(RELEASE\.[\w-]+|v?\d+\.\d+[\w.-]*)$")


def dockerfile() -> list[tuple[str, str]]:
    text = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]


def test_all_parts_are_there() -> None:
    parts = {"kafka", "postgres", "minio", "balancer", "destination"}
    assert set(SERVICES) == parts | RUN_ONCE | WORKERS


@pytest.mark.parametrize("name", SERVICES)
def test_image_is_pinned_to_a_version(name: str) -> None:
    assert PINNED.match(SERVICES[name]["image"]), SERVICES[name]["image"]


@pytest.mark.parametrize("name", sorted(set(SERVICES) - RUN_ONCE - WORKERS))
def test_server_has_a_health_check_with_limits(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries"} <= set(check)


def test_start_is_ordered_by_health_not_by_time() -> None:
    wanted = {name: service.get("depends_on", {}) for name, service in SERVICES.items()}
    for name, needs in wanted.items():
        for other, need in needs.items():
            once = other in RUN_ONCE
            right = "service_completed_successfully" if once else "service_healthy"
            assert need["condition"] == right, (name, other)
    assert {"kafka", "postgres", "minio", "bucket", "migrate"} == set(wanted["balancer"])
    for worker in WORKERS:
        assert {"balancer", "capacity", "destination"} == set(wanted[worker])


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))
    assert "network_mode" not in SERVICES[name]


def test_workers_differ_in_host_and_call_the_example_that_the_image_holds() -> None:
    assert {SERVICES[worker]["environment"]["PERMIT_HOST"] for worker in WORKERS} == WORKERS
    program = SERVICES["worker-1"]["entrypoint"][1]
    assert f"deploy/example_worker.py {program}" in copies()
    assert (ROOT / "deploy" / "example_worker.py").is_file()


def test_image_is_built_in_stages_from_the_lock_and_runs_without_root() -> None:
    steps = dockerfile()
    images = [text.split()[0] for word, text in steps if word == "FROM"]
    assert len(images) == 2
    assert all(PINNED.match(image) for image in images)
    for lock in ("balancer.txt", "build.txt"):
        assert any(f"--require-hashes -r requirements/{lock}" in text for _, text in steps)
    users = [text for word, text in steps if word == "USER"]
    assert users
    assert users[-1].split(":")[0] not in {"0", "root"}
    assert [word for word, _ in steps].index("USER") < [word for word, _ in steps].index("CMD")


def test_what_the_image_copies_exists_and_is_not_ignored() -> None:
    allowed = (ROOT / ".dockerignore").read_text().split()
    for line in copies():
        *sources, _ = shlex.split(line)
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source.rstrip('/')}" in allowed, source


def copies() -> list[str]:
    return [text for word, text in dockerfile() if word == "COPY" and "--from" not in text]


def test_locks_pin_and_hash_everything_and_name_no_address() -> None:
    for name, fewest in (("dev.txt", 50), ("balancer.txt", 20), ("build.txt", 4)):
        text = (ROOT / "requirements" / name).read_text()
        assert "://" not in text
        pins = re.findall(
            r"^[a-z0-9][\w.-]*(?:\[[\w,]+\])?==\S+.*(?:\n    --hash=\S+.*)*", text, re.M
        )
        assert len(pins) >= fewest, name
        assert all("--hash=sha256:" in pin for pin in pins), name


def test_console_script_and_its_module_agree_with_the_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"permit-balancer": "balancer.commands:main"}
    assert ("ENTRYPOINT", '["permit-balancer"]') in dockerfile()


def test_every_setting_of_the_balancer_is_one_it_knows_and_lets_it_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("PERMIT_")]:
        monkeypatch.delenv(name)
    given = {
        name: str(value)
        for name, value in SERVICES["balancer"]["environment"].items()
        if name.startswith("PERMIT_")
    }
    assert {name.removeprefix("PERMIT_").lower() for name in given} <= set(Settings.model_fields)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    settings.check_relations()
    settings.need("kafka_bootstrap_servers", "postgres_dsn", "s3_bucket")


@pytest.mark.parametrize("name", ["migrate", "balancer", "capacity"])
def test_every_command_of_the_balancer_is_one_it_has(name: str) -> None:
    assert SERVICES[name]["command"][0] in COMMANDS
