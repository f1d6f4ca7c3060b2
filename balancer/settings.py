"""Settings: the only reader of the environment.

Decides what a legal setting is, what stands where none is given, and how a wrong one is told: one
line with the setting, the fault and an example. Knows nothing of what is made of them.

The environment counts before the file. Names are those of the fields: in the environment in upper
case behind ``PERMIT_``, in a file as they are. A name that nothing reads stops a file's reading; in
the environment, which others fill as well, it is told and no more.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from balancer.errors import SettingsError
from worker_sdk.wire.addresses import kafka_fault
from worker_sdk.wire.limits import SHARDS_MAX, WINDOW_SECONDS_MAX
from worker_sdk.wire.usage import REJECTED_TOPIC, USAGE_TOPIC

PREFIX: Final = "PERMIT_"
FILE_MAX_BYTES: Final = 256 * 1024

EXAMPLES: Final = {
    "kafka_bootstrap_servers": "localhost:9092",
    "kafka_security_protocol": "SASL_SSL",
    "kafka_sasl_mechanism": "SCRAM-SHA-512",
    "kafka_sasl_username": "permit",
    "kafka_sasl_password": "secret",
    "kafka_ssl_cafile": "/etc/ssl/kafka.pem",
    "kafka_create_topics": "true",
    "kafka_partitions": "8",
    "kafka_retention_seconds": "3600",
    "kafka_session_seconds": "10",
    "postgres_dsn": "postgresql://permit:secret@localhost/permit",
    "postgres_pool_size": "8",
    "s3_bucket": "permits",
    "s3_endpoint_url": "http://127.0.0.1:9000",
    "s3_region": "eu-central-1",
    "http_host": "127.0.0.1",
    "http_port": "8080",
    "http_token": "a-long-random-text",
    "http_waiters_max": "20000",
    "http_share_port": "true",
    "http_distribution": "false",
    "round_seconds": "60",
    "ttl_seconds": "180",
    "shards": "16",
    "lease_seconds": "10",
    "keep_files_seconds": "86400",
    "history_detail_hours": "48",
    "history_days": "30",
    "log_level": "info",
    "log_format": "text",
}
"""A legal value of each setting whose meaning its name does not tell."""

OF_OTHERS: Final = frozenset(
    PREFIX + name
    for name in (
        *("DESTINATIONS", "DISTRIBUTION", "FLUSH_SECONDS", "GROUP", "HOST"),  # workers
        *("CAPACITY", "WINDOW_SECONDS"),  # docker-compose.yml
        "CACHE_DIR",  # tests
    )
)
"""Variables that others of this distribution read."""

OF_TESTS: Final = f"{PREFIX}TEST_"
UNKNOWN_MAX: Final = 10
_OF_SERVICE: Final = "_SERVICE_HOST"

Text = Annotated[str, Field(min_length=1, max_length=1_000)]
Seconds = Annotated[int, Field(ge=1, le=WINDOW_SECONDS_MAX)]


class Settings(BaseSettings):
    """Every setting of the balancer; what a command needs it asks for with `need`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", env_ignore_empty=True, hide_input_in_errors=True
    )

    kafka_bootstrap_servers: Text | None = None
    kafka_group_id: Text = "permit-balancer"
    kafka_usage_topic: Text = USAGE_TOPIC
    kafka_rejected_topic: Text = REJECTED_TOPIC
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    kafka_sasl_username: Text | None = None
    kafka_sasl_password: SecretStr | None = None
    kafka_ssl_cafile: Text | None = None
    kafka_create_topics: bool = True
    kafka_partitions: Annotated[int, Field(ge=1, le=1_000)] = 8
    kafka_retention_seconds: Annotated[int, Field(ge=60)] = 3_600
    kafka_session_seconds: Annotated[int, Field(ge=1, le=300)] = 10
    postgres_dsn: SecretStr | None = None
    postgres_pool_size: Annotated[int, Field(ge=2, le=100)] = 8
    s3_bucket: Text | None = None
    s3_prefix: str = ""
    s3_endpoint_url: Text | None = None
    s3_region: Text | None = None
    http_host: Text = "127.0.0.1"
    http_port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    http_token: Annotated[SecretStr, Field(min_length=8)] | None = None
    http_waiters_max: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    http_share_port: bool = False
    http_distribution: bool = True
    round_seconds: Seconds = 60
    ttl_seconds: Seconds = 180
    shards: Annotated[int, Field(ge=1, le=SHARDS_MAX)] = 16
    lease_seconds: Annotated[int, Field(ge=1, le=3_600)] | None = None
    keep_files_seconds: Annotated[int, Field(ge=60)] = 86_400
    history_detail_hours: Annotated[int, Field(ge=1, le=8_784)] = 48
    history_days: Annotated[int, Field(ge=1, le=3_660)] = 30
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    @field_validator("kafka_bootstrap_servers")
    @classmethod
    def _check_kafka(cls, servers: str | None) -> str | None:
        fault = None if servers is None else kafka_fault(servers)
        if fault is not None:
            raise ValueError(fault)
        return servers

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment count before what a file said."""
        return env_settings, init_settings

    @property
    def lease_ms(self) -> int:
        """How long a lease lasts: short against a round, so that another takes over in time."""
        if self.lease_seconds is not None:
            return self.lease_seconds * 1000
        return min(10_000, max(2_000, self.round_seconds * 250))

    def need(self, *names: str) -> None:
        """Check that settings without a default are there.

        Raises:
            SettingsError: naming the first that is missing.
        """
        for name in names:
            value = getattr(self, name)
            if value is None or (isinstance(value, SecretStr) and not value.get_secret_value()):
                raise SettingsError(_line(name, "is missing"))

    def check_relations(self) -> None:
        """Check the settings against one another.

        Raises:
            SettingsError: naming one of them.
        """
        if self.ttl_seconds < 2 * self.round_seconds:
            raise SettingsError(
                f"{PREFIX}TTL_SECONDS: {self.ttl_seconds} is less than two rounds of "
                f"{self.round_seconds} s, so that one lost report would end a live worker; "
                f"for example {PREFIX}TTL_SECONDS={3 * self.round_seconds}"
            )
        if not is_loopback(self.http_host) and self.http_token is None:
            raise SettingsError(
                f"{PREFIX}HTTP_TOKEN: is missing, though {PREFIX}HTTP_HOST={self.http_host} lets "
                f"other machines ask; for example {PREFIX}HTTP_TOKEN={EXAMPLES['http_token']}"
            )
        if self.kafka_security_protocol.startswith("SASL"):
            self.need("kafka_sasl_username", "kafka_sasl_password")


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach what listens on ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_settings(file: Path | None = None) -> Settings:
    """Return the settings of the environment and, behind it, of a TOML file.

    Raises:
        SettingsError: one line naming the setting, the fault and an example.
    """
    values = {} if file is None else _read(file)
    unknown = sorted(set(values) - set(Settings.model_fields))
    if unknown:
        meant = _meant(unknown[0].lower(), Settings.model_fields, prefix="")
        raise SettingsError(
            f"{unknown[0]} in {file}: there is no such setting{meant}; "
            "for example round_seconds = 60"
        )
    try:
        settings = Settings(**values)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = str(fault["loc"][0]) if fault["loc"] else "settings"
        raise SettingsError(_line(name, _said(fault["msg"]))) from None
    return settings


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return a line for each variable behind ``PERMIT_`` that nothing reads, the likeliest meant.

    Args:
        environ: for tests; the process's environment if not given.
    """
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | OF_OTHERS
    names = [name for name in (os.environ if environ is None else environ) if PREFIX in name]
    of_others = (
        OF_TESTS,
        # Kubernetes makes variables for each service, also for one that is called permit-...
        *(name.removesuffix(_OF_SERVICE) + "_" for name in names if name.endswith(_OF_SERVICE)),
    )
    unknown = sorted(
        name
        for name in names
        if name.startswith(PREFIX) and name not in known and not name.startswith(of_others)
    )
    names = [name.removeprefix(PREFIX) for name in known]
    lines = [
        f"{name}: nothing reads this variable{_meant(name.removeprefix(PREFIX), names)}"
        for name in unknown[:UNKNOWN_MAX]
    ]
    more = len(unknown) - UNKNOWN_MAX
    return [*lines, f"and {more} more that nothing reads"] if more > 0 else lines


def _meant(name: str, known: Iterable[str], *, prefix: str = PREFIX) -> str:
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; is {prefix}{found[0]} meant?" if found else ""


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            text = stream.read(FILE_MAX_BYTES + 1)
        if len(text) > FILE_MAX_BYTES:
            raise SettingsError(f"--config: {file} is over {FILE_MAX_BYTES} bytes")
        return tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise SettingsError(f"--config: {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"--config: {file} is no TOML: {error}; for example round_seconds = 60"
        ) from None


def _line(name: str, fault: str) -> str:
    variable = f"{PREFIX}{name.upper()}"
    example = EXAMPLES.get(name)
    return f"{variable}: {fault}" + (f"; for example {variable}={example}" if example else "")


def _said(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
