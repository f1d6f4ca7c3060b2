"""What a worker gets by ``import worker_sdk``: little, and always the same names."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import worker_sdk
import worker_sdk.adapters

ROOT = Path(__file__).resolve().parents[2]
LIST_MODULES = """
import json, sys
before = set(sys.modules)
import {module}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def modules_loaded_by(module: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-S", "-c", LIST_MODULES.format(module=module)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return set(json.loads(done.stdout))


def test_import_of_the_sdk_loads_only_the_standard_library() -> None:
    loaded = {name.partition(".")[0] for name in modules_loaded_by("worker_sdk")}
    assert loaded - sys.stdlib_module_names == {"worker_sdk"}


def test_import_of_the_sdk_starts_no_machinery() -> None:
    loaded = modules_loaded_by("worker_sdk")
    assert (
        loaded & {"asyncio", "concurrent.futures", "multiprocessing", "ssl", "http.client"} == set()
    )


def test_a_client_at_work_loads_no_event_loop_and_no_cryptography_of_its_own() -> None:
    # Beside what its drivers bring: they are most of what a client takes of its host's memory.
    loaded = modules_loaded_by("worker_sdk.client, worker_sdk.transports.memory")
    assert loaded & {"asyncio", "concurrent.futures", "hashlib", "socket", "ssl"} == set()


def test_pure_packages_load_only_the_standard_library() -> None:
    for module in ("worker_sdk.wire", "worker_sdk.core", "worker_sdk.errors", "balancer.core"):
        loaded = {name.partition(".")[0] for name in modules_loaded_by(module)}
        assert loaded - sys.stdlib_module_names <= {"worker_sdk", "balancer"}, module


def test_public_names_are_these_and_each_is_there() -> None:
    public = set(getattr(worker_sdk, "__all__", ()))
    assert public == PUBLIC_NAMES
    assert all(hasattr(worker_sdk, name) for name in public)
    assert public <= set(dir(worker_sdk))


# Written down by hand: a name that comes or goes is a decision, not an accident.
PUBLIC_NAMES: set[str] = {
    "ClientClosedError",
    "ClientState",
    "ConfigurationError",
    "DestinationHandle",
    "DestinationState",
    "ImpossibleRequestError",
    "Mode",
    "Permit",
    "PermitClient",
    "PermitError",
    "PermitTimeout",
    "ReentrantCallError",
    "TransportError",
}

PUBLIC_MEMBERS: dict[str, set[str]] = {
    "PermitClient": {
        "close",
        "destination",
        "destinations",
        "from_env",
        "has_state",
        "start",
        "state",
    },
    "DestinationHandle": {
        "acquire",
        "acquire_async",
        "acquire_many",
        "acquire_many_async",
        "concurrency",
        "limit_concurrency",
        "limited",
        "name",
        "permit",
        "rebind",
        "refund",
        "state",
        "try_acquire",
    },
    "Permit": set(),
}


@pytest.mark.parametrize("name", sorted(PUBLIC_MEMBERS))
def test_members_of_the_public_classes_are_these(name: str) -> None:
    kind = getattr(worker_sdk, name)
    assert {member for member in dir(kind) if not member.startswith("_")} == PUBLIC_MEMBERS[name]


ADAPTERS: dict[str, set[str]] = {
    "aiohttp": {"permit_middleware"},
    "aiokafka": {"permitted"},
    "celery": {"permit_task"},
    "confluent_kafka": {"permitted"},
    "faststream": {"permit_middleware"},
    "httpx": {"AsyncPermitTransport", "PermitTransport"},
    "opentelemetry": {"instrument"},
    "prometheus": {"PermitCollector"},
    "threads": {"PermitThreadPool"},
}


def test_adapters_and_what_they_give_are_these() -> None:
    found = {
        module.name: {
            name
            for name, value in vars(import_module(f"worker_sdk.adapters.{module.name}")).items()
            if getattr(value, "__module__", None) == f"worker_sdk.adapters.{module.name}"
            and not name.startswith("_")
            and callable(value)
        }
        for module in iter_modules(worker_sdk.adapters.__path__)
    }
    assert {name: values - {"P", "T"} for name, values in found.items()} == ADAPTERS


def test_adapters_are_loaded_only_by_who_names_them() -> None:
    for module in ("worker_sdk.client", "worker_sdk.testing", "worker_sdk.metrics"):
        loaded = modules_loaded_by(module)
        assert not any(name.startswith("worker_sdk.adapters") for name in loaded), module
