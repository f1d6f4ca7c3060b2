"""History from the round to the command line, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import asyncpg
import pytest

from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.postgres.schema import migrate
from balancer.app.cycle import Cycle, CycleLimits, ShardState
from balancer.app.history import RoundHistory
from balancer.app.instants import date_and_time
from balancer.app.view import DistributionView
from balancer.commands import main
from balancer.core.learning import IngestView
from balancer.core.model import Destination, Policy, RoundKind
from balancer.ports import AcceptedBatch
from tests.support.fakes_store import MemoryDocumentStore
from tests.support.recorded import reason, round_of
from tests.support.service_doubles import CountingMetrics, ManualClock
from worker_sdk.wire.usage import MemberState, UsageBatch, UsageTuple

NAME = "orders-db"
ROUND_MS = 60_000
DAY_MS = 86_400_000
HOSTS = ("web-1", "web-2", "batch")


def begin_ms(rounds: int) -> int:
    """The start of a minute so many rounds before the present one."""
    return (time.time_ns() // 1_000_000 // ROUND_MS - rounds) * ROUND_MS


class AtOurTime(PostgresRepository):
    """The real database, whose clock shows the instant of our choice."""

    clock = ManualClock(0)

    async def now_ms(self) -> int:
        return self.clock.now_ms()


class Service:
    """Rounds on the real database at instants of our choice; files are kept in memory."""

    def __init__(self, repository: AtOurTime) -> None:
        self.repository = repository
        self.clock = repository.clock = ManualClock(0)
        self.metrics = CountingMetrics()
        limits = CycleLimits(ROUND_MS, 3 * ROUND_MS)
        view, store = DistributionView(1), MemoryDocumentStore(None)
        self.cycle = Cycle(repository, store, view, self.clock, self.metrics, limits)

    async def rounds(self, first_ms: int, wanted: list[dict[str, int]]) -> None:
        """Run one round a minute; each has the hosts' used permits."""
        self.clock.ms = first_ms
        lease_ms = (len(wanted) + 1) * ROUND_MS
        (lease,) = await self.repository.acquire_leases(
            "one", [0], now_ms=first_ms, ttl_ms=lease_ms
        )
        state = ShardState.of(lease)
        for number, hosts in enumerate(wanted):
            now_ms = self.clock.ms = first_ms + number * ROUND_MS + 38_000
            await self.repository.store_batches(
                [
                    AcceptedBatch(
                        UsageBatch(
                            host,
                            "i",
                            now_ms,
                            MemberState.RUNNING,
                            tuples=(
                                UsageTuple(
                                    NAME, now_ms - ROUND_MS, now_ms, 0, 9_999, used, 0, 0, 0
                                ),
                            ),
                        ),
                        now_ms,
                        now_ms,
                    )
                    for host, used in hosts.items()
                ]
            )
            told = await self.cycle.run(
                state, RoundKind.REGULAR, IngestView(now_ms, 0, caught_up=True)
            )
            assert told.outcome == "published"


@pytest.fixture
async def service(postgres_dsn: str) -> AsyncIterator[Service]:
    await asyncio.to_thread(migrate, postgres_dsn)
    repository = await AtOurTime.open(postgres_dsn)
    policy = Policy(newcomer_reserve_points=0)
    await repository.put_destination(Destination(NAME, 1000, 60, policy))
    yield Service(repository)
    await repository.close()


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], postgres_dsn: str
) -> Run:
    """Run a command in a process with a loop of its own; return its code and what it said."""
    for name in [name for name in os.environ if name.startswith("PERMIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PERMIT_POSTGRES_DSN", postgres_dsn)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return command


async def test_what_rounds_did_is_told_explained_and_run_again_by_the_command_line(
    service: Service, run: Run
) -> None:
    begin = begin_ms(10)
    calm = dict.fromkeys(HOSTS, 100)
    await service.rounds(begin, [calm, calm, calm | {"batch": 5_000}, calm, calm])
    assert service.metrics.counts[("permit_history_lost_total",)] == 0

    async def call(*arguments: str) -> str:
        code, out, err = await asyncio.to_thread(run, *arguments)
        assert (code, err) == (0, "")
        return out

    whom = ("--destination", NAME)
    stretch = ("--from", str(begin), "--to", str(begin + 5 * ROUND_MS))
    table = (await call("history", *whom, *stretch)).splitlines()
    assert len(table) == 6
    burst_ms = begin + 2 * ROUND_MS + 38_000
    (row,) = [line for line in table if line.startswith(date_and_time(burst_ms))]
    assert row.split()[2:7] == ["regular", "3", "1000", "3", "5200"]
    told = json.loads(await call("history", *whom, *stretch, "--json"))
    assert [entry["asked_permits"] for entry in told["rounds"]] == [300, 300, 5200, 300, 300]
    assert len(told["shard_rounds"]) == 5
    in_force_ms = begin + 3 * ROUND_MS + 1_000  # of the round that saw the burst
    at = ("--at", str(in_force_ms))
    text = await call("history", *whom, *at)
    assert "epoch 3, regular round" in text
    assert "asked 5,200" in text
    assert "limited to" in text
    assert "batch" in text
    sentences = await call("explain", *whom, "--host", "batch", *at)
    assert "by epoch 3" in sentences
    assert "“level”" in sentences
    assert "“level”" not in await call("explain", *whom, "--host", "batch")
    followed = await call("history", *whom, "--host", "batch", *stretch)
    rules = [line.split()[7] for line in followed.splitlines()[1:]]
    assert (len(rules), rules[2]) == (5, "level")
    replayed = json.loads(
        await call("simulate", *whom, "--replay", *stretch[1::2], "--strategy", "equal", "--json")
    )
    assert (replayed["hosts"], replayed["windows"], replayed["strategy"]) == (3, 5, "equal")
    assert replayed["broken"] == []
    assert replayed["worst_window_over_capacity"] <= 1.0


async def test_questions_without_an_answer_are_told(service: Service, run: Run) -> None:
    async def call(*arguments: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(run, *arguments)

    code, out, _ = await call("history", "--destination", NAME)
    assert (code, "nothing is kept of orders-db from" in out) == (0, True)
    code, out, _ = await call("history", "--destination", NAME, "--at", "-15m")
    assert (code, "nothing is kept of orders-db at" in out) == (0, True)
    for at in ((), ("--at", "-15m")):
        code, _, err = await call("history", "--destination", "nope", *at)
        assert (code, "there is no destination 'nope', and nothing is kept" in err) == (1, True)
    code, _, err = await call("explain", "--destination", NAME, "--host", "a", "--at", "-15m")
    assert (code, "PERMIT_HISTORY_DETAIL_HOURS" in err) == (1, True)
    code, _, err = await call("simulate", "--destination", NAME, "--replay", "-1h", "now")
    assert (code, "a replay needs two and more" in err) == (2, True)
    code, _, err = await call("history", "--destination", NAME, "--from", "now", "--to", "-1m")
    assert (code, "--to must be later than --from" in err) == (2, True)


async def test_a_day_later_rounds_are_ten_minutes_and_after_their_ages_nothing(
    service: Service,
) -> None:
    begin = begin_ms(0) // 600_000 * 600_000
    await service.rounds(begin, [dict.fromkeys(HOSTS, 100)] * 12)
    repository = service.repository
    keeper = RoundHistory(repository, service.clock, service.metrics, ROUND_MS)

    async def clean(at_ms: int) -> int:
        service.clock.ms = at_ms
        return await keeper.clean(keep_ms=3 * DAY_MS, keep_details_ms=2 * DAY_MS)

    async def kept() -> tuple[int, int, int, int]:
        found = await repository.load_history(
            NAME, from_ms=0, until_ms=begin + 9 * DAY_MS, limit=99
        )
        details = await repository.load_details(
            NAME, from_ms=0, until_ms=begin + 9 * DAY_MS, limit=99
        )
        return len(found.spans), len(found.destinations), len(found.rounds), len(details)

    assert (await clean(begin + 20 * ROUND_MS), await kept()) == (0, (0, 12, 12, 12))
    assert (await clean(begin + 15 * ROUND_MS + DAY_MS), await kept()) == (10, (1, 2, 12, 12))
    assert (await clean(begin + 20 * ROUND_MS + DAY_MS), await kept()) == (2, (2, 0, 12, 12))
    first, second = (
        await repository.load_history(NAME, from_ms=begin, until_ms=begin + DAY_MS, limit=9)
    ).spans
    assert (first.rounds, first.asked_permits, first.members_most) == (10, 3_000, 3)
    assert (second.rounds, second.asked_permits) == (2, 600)
    assert len(await repository.load_reasons(NAME, at_ms=begin + 5 * ROUND_MS)) == 3
    assert await clean(begin + 30 * ROUND_MS + 2 * DAY_MS) == 12
    assert await kept() == (2, 0, 12, 0)
    assert await clean(begin + 30 * ROUND_MS + 3 * DAY_MS) == 2 + 12
    assert await kept() == (0, 0, 0, 0)


async def test_two_balancers_that_clean_at_once_sum_up_each_round_once(
    service: Service, postgres_dsn: str
) -> None:
    begin = begin_ms(0) // 600_000 * 600_000
    for number in range(40):
        names = (f"d{number % 7}", "shared")
        told = [replace(reason("a", asked=1), destination=name) for name in names]
        await service.repository.store_round(
            round_of(*told, epoch=number, planned_at_ms=begin + number * 1_000)
        )
    other = await PostgresRepository.open(postgres_dsn)

    async def clean(repository: PostgresRepository) -> None:
        while await repository.clean_history(
            roll_up_before_ms=begin + DAY_MS, before_ms=0, details_before_ms=0, limit=3
        ):
            pass

    await asyncio.gather(clean(service.repository), clean(other))
    await clean(service.repository)
    await other.close()
    found = await service.repository.load_history(
        "shared", from_ms=0, until_ms=begin + DAY_MS, limit=99
    )
    (span,) = found.spans
    assert (span.rounds, span.asked_permits, found.destinations) == (40, 40, [])


async def test_a_leader_of_the_version_before_goes_on_beside_the_new_schema(
    service: Service, postgres_dsn: str
) -> None:
    """It keeps its reasons where it always did, and leaves no history: there is a gap, no fault."""
    connection = await asyncpg.connect(postgres_dsn, timeout=10)
    await connection.execute(
        "INSERT INTO permit_reason VALUES ('orders-db', 'old', 'i', 0, 7, '{}')", timeout=10
    )
    await connection.close(timeout=5)
    assert await service.repository.load_reasons(NAME) == []
    begin = begin_ms(5)
    await service.rounds(begin, [{"web-1": 5}])
    ((_, told),) = await service.repository.load_reasons(NAME)
    assert told.host == "web-1"
    assert await service.repository.load_history_at(NAME, begin - ROUND_MS) is None
