"""A client's settings: wrong ones are named at once, with an example."""

from __future__ import annotations

import pytest

from worker_sdk import ClientClosedError, ConfigurationError, PermitClient
from worker_sdk.testing import InMemoryBalancer
from worker_sdk.transports import kafka as kafka_module
from worker_sdk.transports import s3 as s3_module
from worker_sdk.transports.memory import MemorySink, MemorySource


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
        ({"kafka": ["a:9092", "b:9092"]}, "kafka must be text.*broker-1:9092,broker-2:9092"),
        ({"kafka": "localhost:x"}, "kafka: 'localhost:x' is no host and port.*localhost:9092"),
        ({"kafka": "a:9092,b:70000"}, "'b:70000' has a port that there is not"),
        ({"kafka": "http://kafka:9092"}, "kafka: 'http://kafka:9092' is a URL"),
        ({"kafka": "a:9092,"}, "kafka: an address is empty"),
        ({"kafka": "a 9092"}, "no host and port"),
        ({"kafka": {}}, "kafka: bootstrap_servers is missing"),
        ({"kafka": {"bootstrap_servers": "kafka:"}}, "kafka: bootstrap_servers: 'kafka:'"),
        ({"kafka": {"bootstrap_servers": ["a:1", 5]}}, "bootstrap_servers: 5 is no text"),
        ({"host": ""}, "^host is empty; an example: worker-17"),
        ({"group": ""}, "^group is empty; an example: batch"),
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


@pytest.mark.parametrize(
    "servers",
    [
        *("localhost", "kafka_1:9092", "a:1, b:2", "[::1]:9092", "::1", "10.0.0.1:9092"),
        {"bootstrap_servers": ["a:9092", "b.example"]},
    ],
)
def test_addresses_that_kafkas_clients_take_are_taken(servers: object) -> None:
    PermitClient(
        destinations=["db"],
        kafka=servers,  # type: ignore[arg-type]  # of both kinds
        distribution="s3://permits/prod",
    )


def test_a_password_in_an_address_is_not_told_on() -> None:
    with pytest.raises(ConfigurationError, match="settings of their own") as raised:
        PermitClient(
            destinations=["db"],
            kafka="kafka://me:hunter2@broker:9092",
            distribution="s3://permits/prod",
        )
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("address", ["ftp://me:hunter2@host/a", "me:hunter2@balancer:8080"])
def test_a_password_in_an_address_that_is_none_is_not_told_on(address: str) -> None:
    with pytest.raises(ConfigurationError, match="is no address") as refused:
        PermitClient(destinations=["db"], kafka="kafka:9092", distribution=address)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PERMIT_KAFKA_BOOTSTRAP_SERVERS", "a:b", "^PERMIT_KAFKA_BOOTSTRAP_SERVERS: 'a:b' is no"),
        ("PERMIT_DISTRIBUTION", "permits", "^PERMIT_DISTRIBUTION: 'permits' is no address"),
        ("PERMIT_DESTINATIONS", ", ,", "^PERMIT_DESTINATIONS must be 1 to"),
        ("PERMIT_GROUP", "a\nb", "^PERMIT_GROUP has a control character"),
    ],
)
def test_a_wrong_value_of_the_environment_is_told_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv("PERMIT_KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    monkeypatch.setenv("PERMIT_DESTINATIONS", "db")
    monkeypatch.setenv("PERMIT_DISTRIBUTION", "s3://permits/prod")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=message):
        PermitClient.from_env()


def test_a_misspelt_variable_is_named_where_the_right_one_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PERMIT_DESTINATIONS", raising=False)
    monkeypatch.setenv("PERMIT_DESTINATION", "db")
    with pytest.raises(ConfigurationError, match=r"there is PERMIT_DESTINATION, which nothing"):
        PermitClient.from_env()


@pytest.mark.parametrize(
    ("given", "wanted"), [(None, "http://127.0.0.1:9000"), ("http://other:1", "http://other:1")]
)
def test_the_stores_address_is_of_the_environment_unless_it_is_given(
    monkeypatch: pytest.MonkeyPatch, given: str | None, wanted: str
) -> None:
    made: list[str | None] = []

    class Source(MemorySource):
        def __init__(
            self, identity: object, url: str, *, endpoint_url: str | None, region: str | None
        ) -> None:
            super().__init__()
            made.append(endpoint_url)

    monkeypatch.setattr(s3_module, "S3Source", Source)
    monkeypatch.setenv("PERMIT_S3_ENDPOINT_URL", "http://127.0.0.1:9000")
    client = PermitClient(
        destinations=["db"],
        kafka=MemorySink,
        distribution="s3://permits/prod",
        s3_endpoint_url=given,
    )
    client.start()
    client.close()
    assert made == [wanted]


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


def test_how_to_speak_to_kafka_comes_from_the_balancers_variables_and_no_password_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[object] = []

    class Sink(MemorySink):
        def __init__(self, kafka: object, *, topic: str) -> None:
            super().__init__()
            given.append(kafka)

    monkeypatch.setattr(kafka_module, "KafkaSink", Sink)
    for name, value in {
        "PERMIT_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "PERMIT_DESTINATIONS": "db",
        "PERMIT_DISTRIBUTION": "http://127.0.0.1:1",
        "PERMIT_FLUSH_SECONDS": "",
        "PERMIT_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "PERMIT_KAFKA_SASL_MECHANISM": "",
        "PERMIT_KAFKA_SASL_USERNAME": "worker",
        "PERMIT_KAFKA_SASL_PASSWORD": "a-password",
    }.items():
        monkeypatch.setenv(name, value)
    client = PermitClient.from_env()
    with client:
        assert "a-password" not in repr((client, client.destination("db"), client._options))
    assert given == [
        {
            "bootstrap_servers": "127.0.0.1:1",
            "security_protocol": "SASL_SSL",
            "sasl_plain_username": "worker",
            "sasl_plain_password": "a-password",
        }
    ]


def test_who_forgets_to_start_is_told_how() -> None:
    client = InMemoryBalancer({"db": 1}).client()
    for attempt in (client.destination("db").try_acquire, client.destination("db").acquire):
        with pytest.raises(ClientClosedError, match=r"call start\(\), or use"):
            attempt()
