"""What a client was told, checked, and the drivers that follow from it.

Decides which settings are sound and which driver an address means. Knows nothing of threads.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from worker_sdk.core.engine import DESTINATIONS_MAX
from worker_sdk.errors import ConfigurationError, WireError
from worker_sdk.transports.base import Identity, ReportSink, ShareSource
from worker_sdk.wire import addresses
from worker_sdk.wire.strict import as_name
from worker_sdk.wire.usage import USAGE_TOPIC

FLUSH_SECONDS_MIN: Final = 1.0
FLUSH_SECONDS_MAX: Final = 3600.0
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

VARIABLES: Final = {
    "destinations": "PERMIT_DESTINATIONS",
    "kafka": "PERMIT_KAFKA_BOOTSTRAP_SERVERS",
    "distribution": "PERMIT_DISTRIBUTION",
    "host": "PERMIT_HOST",
    "group": "PERMIT_GROUP",
    "flush_seconds": "PERMIT_FLUSH_SECONDS",
    "s3_endpoint_url": "PERMIT_S3_ENDPOINT_URL",
    "usage_topic": "PERMIT_KAFKA_USAGE_TOPIC",
}
"""Settings, and the variables of the environment that give them."""

KAFKA_VARIABLES: Final = {
    "security_protocol": "PERMIT_KAFKA_SECURITY_PROTOCOL",
    "sasl_mechanism": "PERMIT_KAFKA_SASL_MECHANISM",
    "sasl_plain_username": "PERMIT_KAFKA_SASL_USERNAME",
    "sasl_plain_password": "PERMIT_KAFKA_SASL_PASSWORD",
}
"""Settings of Kafka's producer, and the variables that give them: the balancer's own."""

SinkFactory = Callable[[], ReportSink]
SourceFactory = Callable[[Identity], ShareSource]


@dataclass(frozen=True, slots=True)
class Options:
    """A client's settings.

    Attributes:
        destinations: names, each once.
        kafka: bootstrap servers, the producer's settings, or what makes a sink.
        distribution: an ``s3://`` or ``http(s)://`` address, or what makes a source.
        host: name of the host.
        group: name by which policies may address the member.
        flush_seconds: period of reports; the balancer's round.
        s3_endpoint_url: of a store other than Amazon's.
        s3_region: if it is not in the environment.
        usage_topic: where reports go.
    """

    destinations: tuple[str, ...]
    kafka: str | Mapping[str, object] | SinkFactory = field(repr=False)
    distribution: str | SourceFactory
    host: str
    group: str | None
    flush_seconds: float
    s3_endpoint_url: str | None
    s3_region: str | None
    usage_topic: str = USAGE_TOPIC

    @property
    def place(self) -> str:
        """Where shares are looked for, for people; without a password in it."""
        if callable(self.distribution):
            return "the distribution"
        scheme, _, rest = self.distribution.partition("://")
        authority, slash, path = rest.partition("/")
        store = "" if self.s3_endpoint_url is None else f" (at {_bare(self.s3_endpoint_url)})"
        shown = f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"
        return f"{shown}{store if scheme == 's3' else ''}"

    @property
    def reports_to(self) -> str:
        """Where reports go, for people."""
        if callable(self.kafka):
            return "by the sink that was given"
        servers: object = self.kafka
        if isinstance(self.kafka, Mapping):
            servers = self.kafka.get("bootstrap_servers")
        shown = servers if isinstance(servers, str) else ",".join(_texts(servers))
        return f"topic {self.usage_topic!r} at {shown}"

    def open_sink(self) -> ReportSink:
        """Return a new report sink, its driver loaded.

        Raises:
            ConfigurationError: where the driver is missing or refuses the settings.
        """
        if callable(self.kafka):
            return self.kafka()
        from worker_sdk.transports.kafka import KafkaSink  # noqa: PLC0415 - lazy on purpose

        return KafkaSink(self.kafka, topic=self.usage_topic)

    def open_source(self, identity: Identity) -> ShareSource:
        """Return a new share source, its driver loaded.

        Raises:
            ConfigurationError: where the driver is missing or refuses the settings.
        """
        if callable(self.distribution):
            return self.distribution(identity)
        if self.distribution.startswith("s3://"):
            from worker_sdk.transports.s3 import S3Source  # noqa: PLC0415 - lazy on purpose

            return S3Source(
                identity,
                self.distribution,
                endpoint_url=self.s3_endpoint_url,
                region=self.s3_region,
            )
        from worker_sdk.transports.http import HttpSource  # noqa: PLC0415 - lazy on purpose

        return HttpSource(identity, self.distribution)


def make_options(
    *,
    destinations: Iterable[str],
    kafka: str | Mapping[str, object] | SinkFactory,
    distribution: str | SourceFactory,
    host: str | None,
    group: str | None,
    flush_seconds: float,
    s3_endpoint_url: str | None,
    s3_region: str | None,
    usage_topic: str,
) -> Options:
    """Return checked options.

    Raises:
        ConfigurationError: naming the setting, the fault and an example.
    """
    names = _names(destinations)
    if not 1 <= len(names) <= DESTINATIONS_MAX:
        raise ConfigurationError(
            f"destinations must be 1 to {DESTINATIONS_MAX} names, not {len(names)}"
        )
    host = os.environ.get("PERMIT_HOST") or os.uname().nodename if host is None else host
    for name in names:
        _check_name(name, "destinations", "orders-db")
    _check_name(host, "host", "worker-17")
    if group is not None:
        _check_name(group, "group", "batch")
    period: object = flush_seconds
    if (
        not isinstance(period, (int, float))
        or not FLUSH_SECONDS_MIN <= flush_seconds <= FLUSH_SECONDS_MAX
    ):
        raise ConfigurationError(
            f"flush_seconds must be from {FLUSH_SECONDS_MIN:g} to {FLUSH_SECONDS_MAX:g}, "
            f"not {flush_seconds!r:.40}; an example: 60"
        )
    known = ("s3://", "http://", "https://")
    if not callable(distribution) and not (
        _is_a(distribution, str) and distribution.startswith(known)
    ):
        shown = _bare(distribution) if _is_a(distribution, str) else distribution
        raise ConfigurationError(
            f"distribution: {shown!r:.80} is no address; "
            "an example: s3://permits/prod or http://balancer:8080"
        )
    _check_kafka(kafka)
    if s3_endpoint_url is None and not callable(distribution):
        # Like PERMIT_HOST it says where the process runs, and not what it does.
        s3_endpoint_url = os.environ.get("PERMIT_S3_ENDPOINT_URL") or None
    _check_texts(s3_endpoint_url, s3_region, usage_topic)
    return Options(
        names,
        kafka,
        distribution,
        host,
        group,
        float(flush_seconds),
        s3_endpoint_url,
        s3_region,
        usage_topic,
    )


def _check_name(name: object, setting: str, example: str) -> None:
    try:
        as_name(name, setting)
    except WireError as error:
        fault = str(error).removeprefix(f"{error.reason.value}: ")
        raise ConfigurationError(f"{fault}; an example: {example}") from error


def _check_kafka(kafka: object) -> None:
    if callable(kafka):
        return
    setting, servers = "kafka", kafka
    if isinstance(kafka, Mapping):
        setting, servers = "kafka: bootstrap_servers", kafka.get("bootstrap_servers")
        if servers is None:
            raise ConfigurationError(f"{setting} is missing; an example: {addresses.EXAMPLE}")
    elif not isinstance(kafka, str):
        raise ConfigurationError(
            f"kafka must be text or settings of a producer, not {kafka!r:.40}; "
            f"an example: localhost:9092 or {addresses.EXAMPLE}"
        )
    fault = addresses.kafka_fault(servers)
    if fault is not None:
        raise ConfigurationError(
            f"{setting}: {fault}; an example: localhost:9092 or {addresses.EXAMPLE}"
        )


def _bare(url: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _texts(values: object) -> list[str]:
    return [str(value) for value in values] if isinstance(values, Iterable) else []


def _check_texts(s3_endpoint_url: object, s3_region: object, usage_topic: object) -> None:
    for setting, value in (("s3_endpoint_url", s3_endpoint_url), ("s3_region", s3_region)):
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"{setting} must be text, not {value!r:.40}")
    if not isinstance(usage_topic, str) or not _TOPIC.fullmatch(usage_topic):
        raise ConfigurationError(
            f"usage_topic: {usage_topic!r:.40} is no name of a topic; an example: {USAGE_TOPIC}"
        )


def _is_a(value: object, *kinds: type) -> bool:
    # Programs without types can hand over anything, whatever the signature says.
    return isinstance(value, kinds)


def _names(destinations: Iterable[str]) -> tuple[str, ...]:
    if not isinstance(destinations, str):
        # Anything may come from a program without types: what cannot be counted is no list.
        with contextlib.suppress(TypeError):
            return tuple(dict.fromkeys(destinations))
    raise ConfigurationError('destinations must be a list of names; an example: ["orders-db"]')


def options_from_environment(environ: Mapping[str, str]) -> Options:
    """Return the options that the environment gives; an empty variable counts as missing.

    Raises:
        ConfigurationError: naming the variable, the fault and an example.
    """
    distribution = environ.get("PERMIT_DISTRIBUTION", "")
    bucket = environ.get("PERMIT_S3_BUCKET", "")
    if not distribution and bucket:
        distribution = f"s3://{bucket}/{environ.get('PERMIT_S3_PREFIX', '')}"
    names = environ.get("PERMIT_DESTINATIONS", "")
    kafka = environ.get("PERMIT_KAFKA_BOOTSTRAP_SERVERS", "")
    for name, value, example in (
        ("PERMIT_DESTINATIONS", names, "orders-db,billing"),
        ("PERMIT_KAFKA_BOOTSTRAP_SERVERS", kafka, "localhost:9092"),
        ("PERMIT_DISTRIBUTION", distribution, "s3://permits/prod or http://balancer:8080"),
    ):
        if not value:
            meant = _meant(name, environ)
            raise ConfigurationError(f"{name} is missing{meant}; an example: {example}")
    period = environ.get("PERMIT_FLUSH_SECONDS") or "60"
    try:
        flush_seconds = float(period)
    except ValueError:
        raise ConfigurationError(
            f"PERMIT_FLUSH_SECONDS: {period!r} is no number; an example: 60"
        ) from None
    secured = {
        setting: environ[name] for setting, name in KAFKA_VARIABLES.items() if environ.get(name)
    }
    try:
        return make_options(
            destinations=[name.strip() for name in names.split(",") if name.strip()],
            kafka={"bootstrap_servers": kafka, **secured} if secured else kafka,
            distribution=distribution,
            host=environ.get("PERMIT_HOST") or None,
            group=environ.get("PERMIT_GROUP") or None,
            flush_seconds=flush_seconds,
            s3_endpoint_url=environ.get("PERMIT_S3_ENDPOINT_URL") or None,
            s3_region=None,
            usage_topic=environ.get("PERMIT_KAFKA_USAGE_TOPIC") or USAGE_TOPIC,
        )
    except ConfigurationError as error:
        raise ConfigurationError(_by_variable(str(error))) from error


def _by_variable(message: str) -> str:
    """Return a message that begins with a setting so that it begins with its variable."""
    setting = re.split(r"[^a-z0-9_]", message, maxsplit=1)[0]
    return VARIABLES.get(setting, setting) + message.removeprefix(setting)


def _meant(name: str, environ: Mapping[str, str]) -> str:
    """Return what is there instead of a variable that is missing, if a slip of the pen."""
    import difflib  # noqa: PLC0415 - for an error alone

    own = {*VARIABLES.values(), *KAFKA_VARIABLES.values()}
    known = own | {"PERMIT_S3_BUCKET", "PERMIT_S3_PREFIX"}
    others = [key for key in environ if key.startswith("PERMIT_") and key not in known]
    found = difflib.get_close_matches(name, others, n=1, cutoff=0.8)
    return f" (there is {found[0]}, which nothing reads)" if found else ""
