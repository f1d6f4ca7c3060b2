"""The files for Docker say what they must; no Docker engine is needed to know that."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from typing import Any

import pytest

from balancer.commands.group import COMMANDS
from balancer.settings import Settings, load_settings
from tests.support.compose_file import (
    ROOT,
    dockerfile_steps,
    final_stage,
    image_environment,
    read_compose,
    services,
    variables_of_compose,
)
from worker_sdk.runtime.options import options_from_environment

COMPOSE: dict[str, Any] = read_compose()
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
RUN_ONCE = {"bucket", "capacity", "migrate"}
WORKERS = {"worker-1", "worker-2", "worker-3"}
PINNED = re.compile(r"^[\w./-]+:(RELEASE\.[\w-]+|v?\d+\.\d+[\w.-]*)$")


def test_all_parts_are_there() -> None:
    parts = {"kafka", "postgres", "minio", "balancer", "destination"}
    assert set(SERVICES) == parts | RUN_ONCE | WORKERS


@pytest.mark.parametrize("name", SERVICES)
def test_image_is_pinned_to_a_version(name: str) -> None:
    assert PINNED.match(SERVICES[name]["image"]), SERVICES[name]["image"]


def test_images_are_of_registries_that_still_have_them() -> None:
    # MinIO's own were taken from Docker Hub and Quay in 2026.
    assert not [name for name in SERVICES if "minio/" in SERVICES[name]["image"]]


def test_kafka_is_of_the_version_that_the_tests_run() -> None:
    version = SERVICES["kafka"]["image"].rpartition(":")[2]
    assert f"<version>{version}</version>" in (ROOT / "tests" / "support" / "pom.xml").read_text()


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


@pytest.mark.parametrize("name", SERVICES)
def test_container_is_confined_and_limited(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("read_only", False) is (name != "kafka")
    assert {"mem_limit", "pids_limit"} <= set(service)
    assert {"max-size", "max-file"} <= set(service["logging"]["options"])
    assert "privileged" not in service
    assert not [mount for mount in service.get("volumes", []) if mount.startswith((".", "/"))]


@pytest.mark.parametrize("name", SERVICES)
def test_what_serves_is_started_again_and_what_runs_once_is_not(name: str) -> None:
    assert SERVICES[name].get("restart") == (None if name in RUN_ONCE else "on-failure")


def test_data_of_each_server_is_kept_in_a_volume() -> None:
    kept = {volume.partition(":")[0] for name in SERVICES for volume in mounts(name)}
    assert kept == set(COMPOSE["volumes"])
    assert [mounts(name) for name in ("kafka", "postgres", "minio")] == [
        ["kafka-data:/var/lib/kafka/data"],
        ["postgres-data:/var/lib/postgresql"],
        ["minio-data:/data"],
    ]
    assert SERVICES["kafka"]["environment"]["KAFKA_LOG_DIRS"] == "/var/lib/kafka/data"


def mounts(name: str) -> list[str]:
    return [str(mount) for mount in SERVICES[name].get("volumes", [])]


def test_one_service_alone_builds_the_image_and_all_wait_for_it() -> None:
    ours = {name for name in SERVICES if SERVICES[name]["image"].startswith("permit-balancer:")}
    assert [name for name in ours if "build" in SERVICES[name]] == ["migrate"]
    assert {SERVICES[name]["pull_policy"] for name in ours - {"migrate"}} == {"never"}


def test_passwords_are_recognisably_of_this_file_and_given_only_where_needed() -> None:
    for name, service in services().items():
        for variable, value in service.environment.items():
            if re.search("PASSWORD|SECRET|TOKEN|DSN|MC_HOST", variable):
                assert "permit-local" in value, (name, variable)
    holders = {name for name, one in services().items() if "PERMIT_POSTGRES_DSN" in one.environment}
    assert holders == {"migrate", "capacity", "balancer"}


def test_variables_of_the_file_have_defaults_of_one_minute() -> None:
    assert variables_of_compose() == {"PERMIT_WINDOW_SECONDS": "60", "PERMIT_CAPACITY": "6000"}
    assert SERVICES["balancer"]["environment"]["PERMIT_ROUND_SECONDS"] == 60


@pytest.mark.parametrize("name", sorted(WORKERS))
def test_every_setting_of_a_worker_is_one_that_the_sdk_takes(name: str) -> None:
    environment = services()[name].environment
    options = options_from_environment(environment)
    assert (options.destinations, options.flush_seconds) == (("orders-db",), 60)
    assert options.distribution == "http://balancer:8080"
    known = {"DESTINATIONS", "KAFKA_BOOTSTRAP_SERVERS", "DISTRIBUTION", "HOST", "FLUSH_SECONDS"}
    given = set(environment) - set(image_environment())
    assert given == {f"PERMIT_{setting}" for setting in known}


def test_workers_differ_in_host_and_call_the_example_that_the_image_holds() -> None:
    assert {SERVICES[worker]["environment"]["PERMIT_HOST"] for worker in WORKERS} == WORKERS
    program = SERVICES["worker-1"]["entrypoint"][1]
    assert f"deploy/example_worker.py {program}" in copies()
    assert (ROOT / "deploy" / "example_worker.py").is_file()


def test_image_is_built_in_stages_from_the_lock_and_runs_without_root() -> None:
    steps = dockerfile_steps()
    images = [text.split()[0] for word, text in steps if word == "FROM"]
    assert len(images) == 2
    assert all(PINNED.match(image) for image in images)
    for lock in ("balancer.txt", "build.txt"):
        assert any(f"--require-hashes -r requirements/{lock}" in text for _, text in steps)
    assert (
        "ENV",
        "PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ONLY_BINARY=:all:",
    ) in steps
    users = [text for word, text in steps if word == "USER"]
    assert users
    assert users[-1].split(":")[0] not in {"0", "root"}
    assert [word for word, _ in steps].index("USER") < [word for word, _ in steps].index("CMD")


def test_final_image_has_no_build_tools_and_checks_its_health() -> None:
    final = final_stage()
    runs = " ".join(text for word, text in final if word == "RUN")
    assert "pip uninstall" in runs
    assert not re.search(r"apt-get|apk |pip install|gcc|build-essential", runs)
    assert any("--without-pip /opt/permit" in text for _, text in dockerfile_steps())
    (check,) = [text for word, text in final if word == "HEALTHCHECK"]
    assert "/healthz" in check
    assert '"python"' in check  # the image has no other client


def test_what_the_image_copies_exists_and_is_not_ignored() -> None:
    allowed = (ROOT / ".dockerignore").read_text().split()
    for line in copies():
        *sources, _ = shlex.split(line)
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source.rstrip('/')}" in allowed, source


def copies() -> list[str]:
    return [text for word, text in dockerfile_steps() if word == "COPY" and "--from" not in text]


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
    assert ("ENTRYPOINT", '["permit-balancer"]') in dockerfile_steps()


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
