"""Reports that lie or are none, in thousands, and a balancer whose clock is wrong.

As in `test_faults`: never over the capacity, nothing acknowledged and lost, and served again
without help within the stated time.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import time

import pytest
from aiokafka import AIOKafkaProducer

from tests.chaos.fleet import (
    NAME,
    SERVED_SECONDS,
    TAKEN_OVER_SECONDS,
    VALID_SECONDS,
    WINDOW_SECONDS,
    Fleet,
    leads,
    measured,
)
from tests.chaos.reports import send_reports
from tests.support.real_clients import query
from tests.support.served import Server, serving

pytestmark = pytest.mark.timeout(240)

POISON = 10_000
STEP_SECONDS = 600.0
CLOCK_SECONDS = 5.0
SEED = 20261130


def lie(rng: random.Random, now_ms: int) -> dict[str, object]:
    """Return a batch of which one thing is a lie, or many."""
    lies = [float("nan"), float("inf"), -1, 10**30, "9", None, [], {}, True, now_ms + 10**9]
    counts = [rng.choice([rng.choice(lies), 5]) for _ in range(8)]
    return {
        "v": rng.choice([1, 1, 1, 2, None]),
        "host": rng.choice(["", "x" * 300, "a\x00", 7, "liar"]),
        "instance": rng.choice(["i", "", None]),
        "sent_at_ms": rng.choice([now_ms, *lies]),
        "state": rng.choice(["running", "leaving", "asleep", 1]),
        "epochs": rng.choice([{}, {"0": 10**12}, {"0": -1}, [], {"zero": 1}]),
        "tuples": [[rng.choice([NAME, "", "\x7f"]), *counts]] * rng.choice([0, 1, 50]),
    }


def poison(number: int) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Return a record's value and headers: random bytes, a bomb, or lies."""
    rng = random.Random(SEED + number)
    kind = rng.randrange(10)
    if kind < 4:
        encoding = rng.choice([b"zstd", b"gzip", b"", b"br"])
        return rng.randbytes(rng.randrange(2_000)), [("content-encoding", encoding)]
    if kind == 4 and number % 100 == 0:  # each grows beyond what is allowed
        return gzip.compress(bytes(20 * 1024 * 1024)), [("content-encoding", b"gzip")]
    value = json.dumps(lie(rng, time.time_ns() // 1_000_000)).encode()
    return value[: len(value) - (kind == 5)], []


def rejected(balancer: Server) -> float:
    text = str(balancer.ask("/metrics")[1] or "")
    found = re.findall(r"^permit_ingest_rejected_total\{.*\} ([0-9.e+]+)$", text, re.MULTILINE)
    return sum(map(float, found))


@pytest.mark.long
def test_ten_thousand_poisonous_messages_cost_only_themselves(fleet: Fleet) -> None:
    before = sum(map(rejected, fleet.balancers))

    async def send() -> None:
        servers = fleet.stack.kafka.bootstrap_servers
        async with asyncio.timeout(120), AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for first in range(0, POISON, 500):
                sent = []
                for number in range(first, first + 500):
                    value, headers = poison(number)
                    key = b"%d" % number
                    sent.append(
                        await producer.send("permit-usage", value, key=key, headers=headers)
                    )
                await asyncio.gather(*sent)

    asyncio.run(send())
    fleet.await_service(SERVED_SECONDS)
    fleet.wait(
        lambda: sum(map(rejected, fleet.balancers)) - before >= POISON * 0.9,
        "read to the end",
        60,
    )
    fleet.await_service(SERVED_SECONDS)
    assert all(balancer.process.poll() is None for balancer in fleet.balancers)


@pytest.mark.long
@pytest.mark.parametrize("seconds", [STEP_SECONDS, -STEP_SECONDS])
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_balancers_clock_that_steps_by_ten_minutes_and_back_stops_nobody_for_long(
    fleet: Fleet, who: str, seconds: float
) -> None:
    leader, other = fleet.roles()
    balancer = leader if who == "leader" else other
    fleet.step_clock(balancer, seconds)
    try:
        time.sleep(VALID_SECONDS)
        fleet.await_service(TAKEN_OVER_SECONDS + SERVED_SECONDS)
        fleet.check_never_over()
        assert balancer.ask("/healthz")[0] == 200
    finally:
        fleet.step_clock(balancer, 0)
    fleet.wait(lambda: leads(leader) != leads(other), "one leader", TAKEN_OVER_SECONDS)
    fleet.await_service(SERVED_SECONDS + 2 * WINDOW_SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("seconds", [STEP_SECONDS, -STEP_SECONDS])
def test_a_third_balancer_whose_clock_was_never_right_reads_as_the_others_do_and_leads_nothing(
    fleet: Fleet, seconds: float
) -> None:
    """The broker does not tell when reports were appended: they live from their reading."""
    clock = fleet.folder / "clock-of-the-third"
    clock.write_text(str(seconds))
    hosts = [f"more-{number}" for number in range(40)]  # some of each partition
    servers = fleet.stack.kafka.bootstrap_servers
    far = "abs(seen_ms - extract(epoch FROM clock_timestamp()) * 1000) > 120000"
    settings = {**fleet.balancers[0].settings, "CHAOS_CLOCK": str(clock)}
    with serving(settings, fleet.folder) as third:
        third.wait_ready()

        def reads() -> bool:
            asyncio.run(send_reports(servers, hosts))
            return measured(third, "permit_ingest_stored_total") > 0

        fleet.wait(reads, "reading", SERVED_SECONDS)
        fleet.await_service(SERVED_SECONDS)
        count = f"SELECT count(*) FROM permit_usage WHERE {far}"
        assert asyncio.run(query(fleet.stack.postgres.dsn, count)) == 0
        assert measured(third, "permit_ingest_expired_total") == 0
        assert abs(measured(third, "permit_clock_ahead_seconds") - seconds) < CLOCK_SECONDS
        assert not leads(third)
        assert third.stop() == 0
    fleet.await_service(SERVED_SECONDS)
