"""Settings: what is legal, and the one line that a wrong one gives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from balancer.errors import SettingsError
from balancer.settings import EXAMPLES, Settings, is_loopback, load_settings, unknown_variables


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PERMIT_")]:
        monkeypatch.delenv(name)


def line_of(error: pytest.ExceptionInfo[SettingsError]) -> str:
    line = str(error.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PORT", "http"),
        ("HTTP_PORT", "70000"),
        ("ROUND_SECONDS", "0"),
        ("ROUND_SECONDS", "1.5"),
        ("TTL_SECONDS", "nan"),
        ("SHARDS", "5000"),
        ("KAFKA_PARTITIONS", "-1"),
        ("KAFKA_CREATE_TOPICS", "perhaps"),
        ("KAFKA_SECURITY_PROTOCOL", "TLS"),
        ("LOG_LEVEL", "loud"),
        ("HTTP_TOKEN", "short"),
        ("KAFKA_BOOTSTRAP_SERVERS", "localhost:x"),
        ("KAFKA_BOOTSTRAP_SERVERS", "http://localhost:9092"),
        ("KAFKA_BOOTSTRAP_SERVERS", "a:9092,,b:9092"),
    ],
)
def test_a_wrong_value_gives_one_line_with_setting_and_example(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"PERMIT_{name}", value)
    with pytest.raises(SettingsError) as error:
        load_settings()
    line = line_of(error)
    assert line.startswith(f"PERMIT_{name}: ")
    assert f"for example PERMIT_{name}={EXAMPLES[name.lower()]}" in line


def test_a_missing_value_is_told_when_it_is_needed() -> None:
    settings = load_settings()
    with pytest.raises(SettingsError) as error:
        settings.need("kafka_group_id", "postgres_dsn")
    assert line_of(error) == (
        "PERMIT_POSTGRES_DSN: is missing; "
        "for example PERMIT_POSTGRES_DSN=postgresql://permit:secret@localhost/permit"
    )


def test_every_example_is_legal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in EXAMPLES.items():
        monkeypatch.setenv(f"PERMIT_{name.upper()}", value)
    settings = load_settings()
    settings.check_relations()
    settings.need(*EXAMPLES)
    assert set(EXAMPLES) <= set(Settings.model_fields)


def test_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERMIT_POSTGRES_DSN", "postgresql://permit:hunter2@localhost/permit")
    monkeypatch.setenv("PERMIT_HTTP_TOKEN", "hunter2hunter2")
    monkeypatch.setenv("PERMIT_KAFKA_SASL_PASSWORD", "hunter2")
    assert "hunter2" not in repr(load_settings())


def test_a_file_gives_values_and_the_environment_counts_before_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "permit.toml"
    file.write_text('s3_bucket = "permits"\nround_seconds = 30\nshards = 4\n')
    monkeypatch.setenv("PERMIT_SHARDS", "8")
    settings = load_settings(file)
    assert (settings.s3_bucket, settings.round_seconds, settings.shards) == ("permits", 30, 8)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("round_second = 5\n", "there is no such setting; is round_seconds meant?"),
        ("round_seconds = \n", "is no TOML"),
        ("round_seconds = 'x'\n", "PERMIT_ROUND_SECONDS"),
        ("\xff", "is no TOML"),
    ],
)
def test_a_wrong_file_gives_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "permit.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError) as error:
        load_settings(file)
    assert told in line_of(error)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--config"):
        load_settings(tmp_path / "none.toml")


def test_variables_of_workers_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERMIT_HOST", "worker-1")
    monkeypatch.setenv("PERMIT_DISTRIBUTION", "s3://permits")
    load_settings()


def test_variables_that_nothing_reads_are_told_with_what_may_be_meant() -> None:
    told = unknown_variables(
        {
            "PERMIT_ROUND_SECOND": "5",
            "PERMIT_S3_ENDPOINT": "http://127.0.0.1:9000",
            "PERMIT_XYZZY": "",
            "PERMIT_ROUND_SECONDS": "5",
            "PERMIT_DESTINATIONS": "db",
            "PERMIT_TEST_KAFKA": "apache",
            "PERMIT_BALANCER_SERVICE_HOST": "10.0.0.1",
            "PERMIT_BALANCER_PORT_8080_TCP": "tcp://10.0.0.1:8080",
            "MY_PERMIT_ROUNDS": "1",
        }
    )
    assert told == [
        "PERMIT_ROUND_SECOND: nothing reads this variable; is PERMIT_ROUND_SECONDS meant?",
        "PERMIT_S3_ENDPOINT: nothing reads this variable; is PERMIT_S3_ENDPOINT_URL meant?",
        "PERMIT_XYZZY: nothing reads this variable",
    ]


def test_a_flood_of_variables_that_nothing_reads_is_cut() -> None:
    told = unknown_variables({f"PERMIT_XYZZY_{number:02}": "" for number in range(50)})
    assert len(told) == 11
    assert told[-1] == "and 40 more that nothing reads"


def test_beyond_loopback_there_must_be_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERMIT_HTTP_HOST", "0.0.0.0")
    settings = load_settings()
    with pytest.raises(SettingsError) as error:
        settings.check_relations()
    assert "PERMIT_HTTP_TOKEN" in line_of(error)
    monkeypatch.setenv("PERMIT_HTTP_TOKEN", "a-long-random-text")
    load_settings().check_relations()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("balancer.example", False),
    ],
)
def test_only_loopback_counts_as_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_ttl_of_less_than_two_rounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERMIT_TTL_SECONDS", "100")
    with pytest.raises(SettingsError, match="PERMIT_TTL_SECONDS"):
        load_settings().check_relations()


@pytest.mark.parametrize(("seconds", "lease_ms"), [("60", 10_000), ("5", 2_000), ("20", 5_000)])
def test_a_lease_is_short_against_a_round(
    monkeypatch: pytest.MonkeyPatch, seconds: str, lease_ms: int
) -> None:
    monkeypatch.setenv("PERMIT_ROUND_SECONDS", seconds)
    assert load_settings().lease_ms == lease_ms
