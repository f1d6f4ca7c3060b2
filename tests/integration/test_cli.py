"""The command line on real servers: what it prints, and its exit codes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from balancer.adapters.postgres.calls import place_of
from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.s3.objects import S3Config
from balancer.adapters.s3.store import S3DocumentStore
from balancer.commands import main
from balancer.core.model import Reason
from balancer.embedded import S3Part
from tests.support.recorded import round_of
from tests.support.servers import Stack
from tests.unit.test_view import document

NAME = "orders-db"


@dataclass
class Said:
    """What a command said."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Said]


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], postgres_dsn: str
) -> Iterator[Run]:
    """Run a command in this process, on a database of its own; its log is set up for it alone."""
    for name in [name for name in os.environ if name.startswith("PERMIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PERMIT_POSTGRES_DSN", postgres_dsn)

    def command(*arguments: str) -> Said:
        capsys.readouterr()
        code = main(arguments)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Said(code, said.out, said.err)

    loggers = [logging.getLogger(name) for name in ("", "balancer", "aiokafka")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield command
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture
def migrated(run: Run) -> Run:
    assert run("migrate").code == 0
    return run


def test_migrating_says_the_revision_and_may_be_repeated(run: Run) -> None:
    first, second = run("migrate", "--json"), run("migrate", "--json")
    assert (first.code, second.code) == (0, 0)
    assert first.json() == second.json()
    assert first.json()["revision"]


def test_destinations_are_set_shown_listed_and_removed(migrated: Run) -> None:
    assert "no destination yet" in migrated("destinations", "list").out
    created = migrated(
        "destinations", "set", NAME, "--capacity", "600", "--newcomer-reserve-percent", "0.5"
    )
    assert (created.code, f"{NAME}: created" in created.out) == (0, True)
    changed = migrated("destinations", "set", NAME, "--capacity", "700", "--json").json()
    assert (changed["capacity"], changed["window_seconds"]) == (700, 60)
    assert changed["policy"]["newcomer_reserve_points"] == 5_000_000
    assert migrated("destinations", "show", NAME, "--json").json() == changed
    assert "700 permits" in migrated("destinations", "show", NAME).out
    assert migrated("destinations", "list", "--json").json() == {"destinations": [changed]}
    assert NAME in migrated("destinations", "list").out
    assert "closed" in migrated("destinations", "remove", NAME).out
    again = migrated("destinations", "remove", NAME)
    assert (again.code, again.err) == (1, f"permit-balancer: there is no destination '{NAME}'\n")
    assert migrated("destinations", "show", NAME).code == 1


def test_every_part_of_a_policy_can_be_set(migrated: Run) -> None:
    said = migrated(
        *("destinations", "set", NAME, "--capacity", "10", "--window-seconds", "30", "--json"),
        *("--strategy", "surplus", "--valid-for-seconds", "90", "--guard-ms", "100"),
        *("--pacing", "window", "--trial"),
        *("--on-expiry-permille", "500", "--on-expiry-seconds", "60"),
    ).json()
    policy = said["policy"]
    assert (said["window_seconds"], policy["strategy"]) == (30, "surplus")
    assert (policy["valid_for_seconds"], policy["guard_ms"]) == (90, 100)
    assert (policy["pacing"], policy["enforce"]) == ("window", False)
    assert policy["on_expiry"] == {"permille": 500, "for_ms": 60_000}


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["destinations", "set", NAME], 2, "capacity is missing"),
        (["destinations", "set", NAME, "--capacity", "-1"], 2, "capacity is -1"),
        (["destinations", "set", NAME, "--capacity", "x"], 2, "--capacity"),
        (["destinations", "set", NAME, "--capacity", "1", "--guard-ms", "40000"], 2, "guard_ms"),
        (["destinations", "set", "a\nb", "--capacity", "1"], 2, "name"),
        (["destinations", "set", NAME, "--on-expiry-permille", "5"], 2, "go together"),
        (["destinations", "set", NAME, "--capacity", "1", "--window-seconds", "7"], 2, "divide"),
        (["demo", "--capacity", "p90"], 2, "a percentile goes with --trace"),
        (["demo", "--capacity", "0"], 2, "--capacity 0"),
        (["demo", "--minutes", "5"], 2, "--minutes goes with --trace"),
        (["demo", "--trace", __file__, "--windows", "5"], 2, "--windows does not go with --trace"),
        (["demo", "--trace", __file__], 2, "no column minute_1"),
        (["destinations"], 2, "Usage"),
        (["nonsense"], 2, "No such command"),
        (["serve", "--data-dir", "x"], 2, "--embedded"),
        (["explain", "--host", "a"], 2, "--destination"),
        (["explain", "--destination", NAME, "--limit", "0"], 2, "--limit"),
        (["explain", "--destination", NAME, "--host", "a"], 1, "there is no destination"),
        (["distribution", "show", "--host", "a", "--destination", "b"], 2, "exclude"),
        (["distribution", "show"], 2, "PERMIT_S3_BUCKET: is missing"),
        (["serve", "--config", "no-such-file.toml"], 2, "--config"),
        (["serve"], 2, "PERMIT_KAFKA_BOOTSTRAP_SERVERS: is missing"),
    ],
)
def test_a_mistake_is_told_in_words_with_the_right_exit_code(
    migrated: Run, arguments: list[str], code: int, told: str
) -> None:
    said = migrated(*arguments)
    assert said.code == code
    assert told in said.err


def test_a_database_without_a_schema_says_what_to_run(run: Run) -> None:
    said = run("destinations", "list")
    assert (said.code, len(said.err.splitlines())) == (1, 1)
    assert "permit-balancer migrate" in said.err


def test_an_absent_database_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERMIT_POSTGRES_DSN", "postgresql://permit:hunter2@127.0.0.1:1/permit")
    for arguments in (("destinations", "list"), ("migrate",)):
        said = run(*arguments)
        assert (said.code, len(said.err.splitlines())) == (1, 1)
        assert "PostgreSQL" in said.err
        assert "127.0.0.1:1:" in said.err
        assert "check PERMIT_POSTGRES_DSN" in said.err
        assert "hunter2" not in said.err


@pytest.mark.parametrize("command", [("destinations", "list"), ("migrate",)])
def test_a_refused_user_or_database_is_told_with_place_and_setting(
    run: Run, monkeypatch: pytest.MonkeyPatch, postgres_dsn: str, command: tuple[str, ...]
) -> None:
    at, _, _ = postgres_dsn.rpartition("/")
    place = at.rpartition("@")[2]
    for dsn, told in (
        (f"postgresql://permit:hunter2@{place}/postgres", "password authentication failed"),
        (f"{at}/no-such-database", '"no-such-database" does not exist'),
    ):
        monkeypatch.setenv("PERMIT_POSTGRES_DSN", dsn)
        said = run(*command)
        assert (said.code, len(said.err.splitlines())) == (1, 1)
        for part in (told, f"at {place}", "check PERMIT_POSTGRES_DSN"):
            assert part in said.err
        assert "hunter2" not in said.err


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        ("postgresql://permit:secret@localhost:5432/permit", "localhost:5432"),
        ("postgresql://permit:secret@one:1,two:2/permit?ssl=on", "one:1,two:2"),
        ("postgresql://permit:se@cret@localhost/permit", ""),  # read as a host "cret@localhost"
        ("postgresql://localhost?user=permit", "localhost"),
        ("postgresql:///permit?host=/run/postgresql", ""),
        ("postgresql://permit:se/cret@localhost/permit", ""),
        ("postgresql://permit:se?cret@localhost/permit", ""),
    ],
)
def test_the_place_of_a_database_is_told_without_any_of_its_password(dsn: str, place: str) -> None:
    assert place_of(dsn) == place


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PERMIT_POSTGRES_DSN", "hunter2@localhost"),
        ("PERMIT_KAFKA_SSL_CAFILE", "/no/such/file.pem"),
        ("PERMIT_S3_ENDPOINT_URL", "localhost:9000"),
        ("PERMIT_KAFKA_BOOTSTRAP_SERVERS", "a:b:c:d"),
    ],
)
def test_a_setting_that_a_client_cannot_use_stops_the_start_with_one_line(
    migrated: Run, monkeypatch: pytest.MonkeyPatch, s3: S3Part, name: str, value: str
) -> None:
    monkeypatch.setenv("PERMIT_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("PERMIT_S3_BUCKET", s3.bucket)
    monkeypatch.setenv("PERMIT_S3_ENDPOINT_URL", s3.endpoint_url)
    monkeypatch.setenv("PERMIT_HTTP_PORT", "0")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    monkeypatch.setenv(name, value)
    said = migrated("serve")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert name in said.err
    assert "hunter2" not in said.err


def test_a_reason_is_told_in_words_and_as_json(migrated: Run, postgres_dsn: str) -> None:
    migrated("destinations", "set", NAME, "--capacity", "1000")
    assert "no round has planned" in migrated("explain", "--destination", NAME, "--host", "a").err
    reason = Reason(
        destination=NAME,
        host="a",
        instance="i1",
        rule="level",
        asked_permits=500,
        used_permits=300,
        denied_permits=200,
        starved_ms=4_200,
        peak_permits=510,
        expected_permits=480,
        reserved_points=100_000_000,
        share_points=400_000_000,
        safe_points=90_000_000,
        level_permits=400,
    )

    async def store() -> None:
        repository = await PostgresRepository.open(postgres_dsn)
        await repository.store_round(round_of(reason, epoch=7))
        await repository.close()

    asyncio.run(store())
    told = migrated("explain", "--destination", NAME, "--host", "a")
    assert told.code == 0
    sentences = " ".join(told.out.split())
    for words in (
        "by epoch 7.",
        "40.000 % of orders-db, 400 of 1,000 permits in 60 s",
        "“level”: all together want more than there is",
        "the level, 400 permits for a weight of 1",
        "asked for 500 permits a window",
        "used 300, was refused 200 and waited 4.2 s",
        "recent peak is 510",
        "480 are expected by recurrence",
        "10.000 % (100 permits) of it are reserved",
        "9.000 % (90 permits) of it are safe",
        "What would change it: a larger capacity",
    ):
        assert words in sentences
    (row,) = migrated("explain", "--destination", NAME, "--host", "a", "--json").json()["members"]
    assert (row["epoch"], row["rule"], row["asked_permits"]) == (7, "level", 500)
    head, line = migrated("explain", "--destination", NAME).out.splitlines()
    assert head.split()[:5] == ["host", "instance", "share", "permits", "rule"]
    assert line.split()[:6] == ["a", "i1", "40.000", "%", "400", "level"]
    listed = migrated("explain", "--destination", NAME, "--limit", "1", "--json").json()
    assert (listed["members"], listed["more"]) == ([row], False)


@pytest.fixture
def published(
    run: Run,
    s3: S3Part,
    s3_prefix: str,
    aws_environment: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    monkeypatch.setenv("PERMIT_S3_BUCKET", s3.bucket)
    monkeypatch.setenv("PERMIT_S3_PREFIX", s3_prefix)
    monkeypatch.setenv("PERMIT_S3_ENDPOINT_URL", s3.endpoint_url)

    async def publish() -> None:
        store = S3DocumentStore(S3Config(s3.bucket, s3_prefix, s3.endpoint_url, s3.region))
        await store.open_layout(1)
        await store.publish(document(1, "a", "b"), keep=(), tag=None)
        store.close()

    asyncio.run(publish())
    return run


def test_published_shares_are_shown_by_host_destination_and_shard(published: Run) -> None:
    show = ("distribution", "show")
    assert "50.000 %" in published(*show, "--host", "a").out
    host = published(*show, "--host", "a", "--json").json()
    assert host["destinations"][NAME][0]["permits"] == 50
    for asked in (("--host", "a"), ("--destination", NAME)):
        assert "later" in published(*show, *asked).out  # its window is in the year 2027
    assert "50.000 %" in published(*show, "--destination", NAME).out
    shown = published(*show, "--destination", NAME, "--json").json()
    assert [member["host"] for member in shown["documents"][0]["members"]] == ["a", "b"]
    assert shown["documents"][0]["standing"] == "later"
    (shard,) = published(*show, "--json").json()["shards"]
    assert (shard["epoch"], shard["entries"]) == (1, 2)
    assert "entries" in published(*show).out
    for missing in (("--host", "c"), ("--destination", "other")):
        assert published(*show, *missing).code == 1


def test_a_store_without_layout_is_told(
    published: Run, monkeypatch: pytest.MonkeyPatch, s3_prefix: str
) -> None:
    monkeypatch.setenv("PERMIT_S3_PREFIX", f"{s3_prefix}-empty")
    said = published("distribution", "show")
    assert (said.code, "layout" in said.err) == (1, True)


@pytest.mark.usefixtures("aws_environment")
def test_the_doctor_finds_everything_right_and_leaves_nothing(
    migrated: Run, stack: Stack, s3_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stack.environment().items():
        if name != "PERMIT_POSTGRES_DSN":
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("PERMIT_S3_PREFIX", s3_prefix)
    said = migrated("doctor", "--json")
    states = {check["check"]: check["state"] for check in said.json()["checks"]}
    assert said.code == 0
    assert set(states) == {
        *("settings", "kafka", "topics", "clock", "postgres", "s3", "conditional put")
    }
    assert states["kafka"] == states["postgres"] == states["conditional put"] == "ok"
    assert "failed" not in states.values()
    assert "is really conditional" in migrated("doctor").out


@pytest.mark.usefixtures("aws_environment")
def test_the_doctor_names_each_fault_with_its_remedy(
    run: Run, s3: S3Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERMIT_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("PERMIT_S3_BUCKET", "no-such-bucket")
    monkeypatch.setenv("PERMIT_S3_ENDPOINT_URL", s3.endpoint_url)
    said = run("doctor", "--json")
    assert said.code == 1
    found = {check["check"]: check for check in said.json()["checks"]}
    assert found["settings"]["state"] == "ok"
    for name, told in (
        ("kafka", "127.0.0.1:1"),
        ("postgres", "permit-balancer migrate"),
        ("s3", "PERMIT_S3_BUCKET=no-such-bucket"),
    ):
        assert found[name]["state"] == "failed"
        assert told in found[name]["words"] + str(found[name]["remedy"])
        assert found[name]["remedy"]
    for name, cause in (("topics", "kafka"), ("clock", "kafka"), ("conditional put", "s3")):
        check = found[name]
        told_of = (check["state"], check["words"], check["remedy"])
        assert told_of == ("failed", f"as {cause} says", None)
