"""A client's settings: wrong ones are named at once, with an example."""

from __future__ import annotations

import pytest

from worker_sdk import ConfigurationError, PermitClient
from worker_sdk.transports import kafka as kafka_module
from worker_sdk.transports.memory import MemorySink


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"destinations": []}, "destinations"),
        ({"destinations": "db"}, "must be a list"),
        ({"destinations": ["a\n"]}, "control character"),
        ({"host": ""}, "host"),
        ({"distribution": "ftp://x"}, "s3://permits/prod"),
        ({"kafka": ""}, "localhost:9092"),
        ({"flush_seconds": 0}, "flush_seconds"),
        ({"flush_seconds": float("nan")}, "flush_seconds"),
        ({"flush_seconds": "60"}, "flush_seconds"),
        ({"destinations": None}, "must be a list"),
        ({"destinations": [5]}, "destinations"),
        ({"destinations": [b"db"]}, "destinations"),
        ({"destinations": [["db"]]}, "must be a list"),
        ({"host": 5}, "host"),
        ({"host": "h" * 256}, "host"),
        ({"group": b"g"}, "group"),
        ({"distribution": None}, "s3://permits/prod"),
        ({"kafka": 9092}, "localhost:9092"),
        ({"s3_endpoint_url": 9000}, "s3_endpoint_url"),
        ({"usage_topic": ""}, "usage_topic.*permit-usage"),
        ({"usage_topic": "a b"}, "usage_topic"),
        ({"usage_topic": None}, "usage_topic"),
    ],
)
def test_a_wrong_setting_is_named_with_an_example(
    settings: dict[str, object], message: str
) -> None:
    good: dict[str, object] = {
        "destinations": ["db"],
        "kafka": "localhost:9092",
        "distribution": "s3://permits/prod",
    }
    with pytest.raises(ConfigurationError, match=message):
        PermitClient(**{**good, **settings})  # type: ignore[arg-type]  # wrong on purpose


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PERMIT_DESTINATIONS", "PERMIT_DISTRIBUTION", "PERMIT_S3_BUCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PERMIT_KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    with pytest.raises(ConfigurationError, match="PERMIT_DESTINATIONS"):
        PermitClient.from_env()
    monkeypatch.setenv("PERMIT_DESTINATIONS", "orders-db, billing")
    with pytest.raises(ConfigurationError, match="PERMIT_DISTRIBUTION"):
        PermitClient.from_env()
    monkeypatch.setenv("PERMIT_S3_BUCKET", "permits")
    client = PermitClient.from_env()
    assert client.destination("billing").name == "billing"
    with pytest.raises(ConfigurationError, match="orders-db"):
        client.destination("other")


def test_the_topic_of_reports_comes_from_the_environment_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics: list[str] = []

    class Sink(MemorySink):
        def __init__(self, kafka: object, *, topic: str) -> None:
            super().__init__()
            topics.append(topic)

    monkeypatch.setattr(kafka_module, "KafkaSink", Sink)
    monkeypatch.setenv("PERMIT_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("PERMIT_DESTINATIONS", "db")
    monkeypatch.setenv("PERMIT_DISTRIBUTION", "http://127.0.0.1:1")
    for name in ("", "usage-of-a-trial"):
        monkeypatch.setenv("PERMIT_KAFKA_USAGE_TOPIC", name)
        with PermitClient.from_env():
            pass
    assert topics == ["permit-usage", "usage-of-a-trial"]
