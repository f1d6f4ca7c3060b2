"""What the SDK's parts load: drivers only when an address asks for them."""

from __future__ import annotations

import sys

from tests.architecture.test_sdk_surface import modules_loaded_by


def test_the_client_loads_no_driver_and_nothing_outside_the_standard_library() -> None:
    loaded = modules_loaded_by("worker_sdk.client")
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"worker_sdk"}
    drivers = {"kafka", "s3", "http", "memory"}
    assert {f"worker_sdk.transports.{name}" for name in drivers} & loaded == set()


def test_the_http_driver_needs_no_package() -> None:
    loaded = modules_loaded_by("worker_sdk.transports.http")
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"worker_sdk"}


def test_the_fakes_for_users_tests_need_no_package() -> None:
    loaded = modules_loaded_by("worker_sdk.testing")
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"worker_sdk"}
