"""What a client was told, checked, and the drivers that follow from it.

Decides which settings are sound and which driver an address means. Knows nothing of threads.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from worker_sdk.core.engine import DESTINATIONS_MAX
from worker_sdk.errors import ConfigurationError, WireError
from worker_sdk.transports.base import Identity, ReportSink, ShareSource
from worker_sdk.wire.strict import as_name
from worker_sdk.wire.usage import USAGE_TOPIC

FLUSH_SECONDS_MIN: Final = 1.0
FLUSH_SECONDS_MAX: Final = 3600.0
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

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
    kafka: str | Mapping[str, object] | SinkFactory
    distribution: str | SourceFactory
    host: str
    group: str | None
    flush_seconds: float
    s3_endpoint_url: str | None
    s3_region: str | None
    usage_topic: str = USAGE_TOPIC

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
    host = os.environ.get("PERMIT_HOST") or socket.gethostname() if host is None else host
    try:
        for name in names:
            as_name(name, "destinations")
        as_name(host, "host")
        if group is not None:
            as_name(group, "group")
    except WireError as error:
        raise ConfigurationError(f"{error}; an example: orders-db") from error
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
        raise ConfigurationError(
            f"distribution: {distribution!r} is no address; "
            "an example: s3://permits/prod or http://balancer:8080"
        )
    if not kafka or not (callable(kafka) or _is_a(kafka, str, Mapping)):
        raise ConfigurationError("kafka is empty or no address; an example: localhost:9092")
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
    """Return the options that the environment gives.

    ``PERMIT_DESTINATIONS`` (separated by commas), ``PERMIT_KAFKA_BOOTSTRAP_SERVERS``,
    ``PERMIT_DISTRIBUTION`` or ``PERMIT_S3_BUCKET`` with ``PERMIT_S3_PREFIX``; if wanted
    ``PERMIT_HOST``, ``PERMIT_GROUP``, ``PERMIT_FLUSH_SECONDS``, ``PERMIT_KAFKA_USAGE_TOPIC``,
    ``PERMIT_S3_ENDPOINT_URL``.

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
            raise ConfigurationError(f"{name} is missing; an example: {example}")
    period = environ.get("PERMIT_FLUSH_SECONDS", "60")
    try:
        flush_seconds = float(period)
    except ValueError:
        raise ConfigurationError(
            f"PERMIT_FLUSH_SECONDS: {period!r} is no number; an example: 60"
        ) from None
    return make_options(
        destinations=[name.strip() for name in names.split(",") if name.strip()],
        kafka=kafka,
        distribution=distribution,
        host=environ.get("PERMIT_HOST") or None,
        group=environ.get("PERMIT_GROUP") or None,
        flush_seconds=flush_seconds,
        s3_endpoint_url=environ.get("PERMIT_S3_ENDPOINT_URL") or None,
        s3_region=None,
        usage_topic=environ.get("PERMIT_KAFKA_USAGE_TOPIC") or USAGE_TOPIC,
    )
