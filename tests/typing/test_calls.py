"""What a type checker says to users' programs: nothing to right calls, an error to wrong ones.

All cases go through one run of mypy, each as a function of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 110
ERROR = re.compile(r"^calls\.py:(\d+): error: .*\[([\w-]+)\]$")

PREAMBLE = """
import asyncio
from collections.abc import Awaitable, Callable
from typing import assert_type
import aiohttp
import httpx
import prometheus_client
from worker_sdk import ClientState, DestinationHandle, Permit, PermitClient, PermitTimeout
from worker_sdk.adapters.aiohttp import permit_middleware
from worker_sdk.adapters.httpx import AsyncPermitTransport, PermitTransport
from worker_sdk.adapters.prometheus import PermitCollector
from worker_sdk.adapters.threads import PermitThreadPool
from worker_sdk.metrics import CATALOGUE, measure
from worker_sdk.testing import InMemoryBalancer, ManualClock, wait_until_ready

"""

RIGHT = [
    'PermitClient(destinations=["db"], kafka="k:9092", distribution="s3://b/p")',
    'PermitClient(destinations={"db"}, kafka={"bootstrap_servers": "k"}, distribution="http://b")',
    "assert_type(PermitClient.from_env(), PermitClient)",
    "assert_type(client.state, ClientState)",
    'assert_type(client.destination("db"), DestinationHandle)',
    "assert_type(orders.try_acquire(), bool)",
    "assert_type(orders.acquire_many(10, timeout=1), int)",
    "assert_type(await orders.acquire_many_async(10), int)",
    "orders.acquire(2, timeout=None)",
    "await orders.acquire_async(timeout=0.5)",
    "with orders.permit() as held: assert_type(held, Permit)",
    "async with orders.permit(2, 0.5) as held: assert_type(held, Permit)",
    "assert_type(orders.limited()(ord)('a'), int)",
    "assert_type(await orders.limited(timeout=1)(asyncio.sleep)(1, 'a'), str)",
    "orders.limit_concurrency(None)",
    "assert_type(orders.concurrency, int | None)",
    "assert_type(client.close(timeout=1), int)",
    "assert_type(PermitThreadPool(orders, 4).submit(ord, 'a').result(), int)",
    "httpx.Client(transport=PermitTransport(orders, httpx.HTTPTransport(), timeout=1))",
    "httpx.AsyncClient(transport=AsyncPermitTransport(orders))",
    "aiohttp.ClientSession(middlewares=[permit_middleware(orders, timeout=1)])",
    "prometheus_client.REGISTRY.register(PermitCollector(client))",
    "list(measure(client, CATALOGUE[0]))",
    'wait_until_ready(InMemoryBalancer({"db": 3}, members=2).client(clock=ManualClock()))',
]

WRONG = [
    ('PermitClient(kafka="k:9092", distribution="s3://b/p")', "call-arg"),
    ('PermitClient(["db"], "k:9092", "s3://b/p")', "call-arg"),
    ('PermitClient(destinations=["db"], kafka=9092, distribution="s3://b/p")', "arg-type"),
    ('PermitClient(destinations=[1], kafka="k", distribution="s3://b/p")', "list-item"),
    ('PermitClient(destinations=["db"], kafka="k", distribution=None)', "arg-type"),
    ('PermitClient(destinations=["d"], kafka="k", distribution="s3://b", flush=1)', "call-arg"),
    ("client.destination(1)", "arg-type"),
    ('client.close(timeout="5")', "arg-type"),
    ("client.try_acquire()", "attr-defined"),
    ("client.state.reads = 1", "misc"),
    ("orders.try_acquire(1.5)", "arg-type"),
    ("orders.try_acquire(timeout=1)", "call-arg"),
    ('orders.acquire("1")', "arg-type"),
    ("orders.acquire(timeout='soon')", "arg-type"),
    ("if orders.acquire(): pass", "func-returns-value"),
    ("orders.acquire_async()", "unused-coroutine"),
    ("await orders.acquire()", "func-returns-value"),
    ("orders.acquire_many()", "call-arg"),
    ("orders.limit_concurrency(1.5)", "arg-type"),
    ("orders.concurrency = 3", "misc"),
    ("orders.limited()(ord)(1)", "arg-type"),
    ("orders.limited(ord)", "arg-type"),
    ("await orders.limited()(ord)('a')", "misc"),
    ("with orders: pass", "attr-defined"),
    ("async with orders: pass", "attr-defined"),
    ("PermitThreadPool(orders, 4).submit(ord, 1)", "arg-type"),
    ("PermitThreadPool(4)", "arg-type"),
    ("PermitTransport(client)", "arg-type"),
    ("PermitTransport(orders, httpx.AsyncHTTPTransport())", "arg-type"),
    ("permit_middleware(orders, 1)", "call-arg"),
    ("PermitCollector(orders)", "arg-type"),
    ('measure(client, "permit_client_waiting")', "arg-type"),
    ('PermitTimeout("db")', "call-arg"),
    ('InMemoryBalancer({"db": "3"})', "dict-item"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The codes of mypy's errors by case."""
    cases = [*RIGHT, *(call for call, _ in WRONG)]
    lines = PREAMBLE.splitlines()
    case_of_line: dict[int, str] = {}
    for number, call in enumerate(cases):
        given = "client: PermitClient, orders: DestinationHandle"
        lines += [f"async def case_{number}({given}) -> None:", f"    {call}"]
        case_of_line[len(lines)] = call
    folder = tmp_path_factory.mktemp("typing")
    (folder / "calls.py").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--no-error-summary"),
            *("--cache-dir", str(folder / "cache"), "--no-incremental", "calls.py"),
        ],
        cwd=folder,
        env={"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode in {0, 1}, done.stdout
    found: dict[str, set[str]] = {call: set() for call in cases}
    for line in done.stdout.splitlines():
        match = ERROR.match(line)
        if match is not None:
            found[case_of_line[int(match[1])]].add(match[2])
    return found


@pytest.mark.parametrize("call", RIGHT)
def test_a_right_call_is_none(said: dict[str, set[str]], call: str) -> None:
    assert said[call] == set()


@pytest.mark.parametrize(("call", "code"), WRONG)
def test_a_wrong_call_is_a_type_error(said: dict[str, set[str]], call: str, code: str) -> None:
    assert code in said[call]
