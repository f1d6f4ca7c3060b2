"""The one place where parts are put together.

Decides which driver stands behind which port, and the order in which the service starts and stops.
Knows the settings; the parts know none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from balancer.adapters.clock import SystemClock
from balancer.adapters.http.distribution import Distribution
from balancer.adapters.http.operations import Operations
from balancer.adapters.http.server import Address, HttpServer
from balancer.adapters.kafka.compression import decode_record
from balancer.adapters.kafka.config import KafkaConfig
from balancer.adapters.kafka.probe import list_topics
from balancer.adapters.kafka.topics import ensure_topics
from balancer.adapters.kafka.usage_log import KafkaUsageLog
from balancer.adapters.metrics.prometheus import PrometheusMetrics
from balancer.adapters.postgres.repository import PostgresRepository
from balancer.adapters.s3.objects import S3Config
from balancer.adapters.s3.store import S3DocumentStore
from balancer.adapters.watched import WatchedRepository, WatchedStore
from balancer.app.clocks import SteadyClock
from balancer.app.cycle import Cycle, CycleLimits
from balancer.app.ingest import Ingest
from balancer.app.readiness import Readiness, Writes
from balancer.app.supervisor import Options, Supervisor
from balancer.app.view import DistributionView
from balancer.errors import NewerSchemaError, SettingsError, UnavailableError
from balancer.ports import Repository
from balancer.settings import Settings
from worker_sdk.wire.distribution import Document
from worker_sdk.wire.pointer import shard_of

WAIT_SECONDS: Final = 1.0
"""Between two looks at a dependency that is absent at start."""

TELL_SECONDS: Final = 15.0
"""Between two lines that say so."""

REACHED_BY: Final = {
    "postgres": "PERMIT_POSTGRES_DSN",
    "s3": "PERMIT_S3_ENDPOINT_URL",
    "kafka": "PERMIT_KAFKA_BOOTSTRAP_SERVERS",
}
"""The setting that says where a dependency is."""

LEAVE_SECONDS: Final = 1.0
"""How long what is left where it is may take to see it, when told to stop."""

_log = logging.getLogger("balancer.serve")


def kafka_config(settings: Settings) -> KafkaConfig:
    """Return how to reach Kafka.

    Raises:
        SettingsError: where a setting is missing, or names a file that is not there.
    """
    settings.need("kafka_bootstrap_servers")
    cafile = settings.kafka_ssl_cafile
    if cafile is not None and not Path(cafile).is_file():
        raise SettingsError(
            f"PERMIT_KAFKA_SSL_CAFILE: there is no file {cafile}; "
            "for example PERMIT_KAFKA_SSL_CAFILE=/etc/ssl/kafka.pem"
        )
    password = settings.kafka_sasl_password
    return KafkaConfig(
        bootstrap_servers=settings.kafka_bootstrap_servers or "",
        group_id=settings.kafka_group_id,
        usage_topic=settings.kafka_usage_topic,
        rejected_topic=settings.kafka_rejected_topic,
        security_protocol=settings.kafka_security_protocol,
        sasl_mechanism=settings.kafka_sasl_mechanism,
        sasl_username=settings.kafka_sasl_username,
        sasl_password=None if password is None else password.get_secret_value(),
        ssl_cafile=settings.kafka_ssl_cafile,
        session_timeout_ms=settings.kafka_session_seconds * 1000,
    )


def s3_config(settings: Settings) -> S3Config:
    """Return where the bucket is."""
    settings.need("s3_bucket")
    return S3Config(
        bucket=settings.s3_bucket or "",
        prefix=settings.s3_prefix,
        endpoint_url=settings.s3_endpoint_url,
        region=settings.s3_region,
    )


def postgres_dsn(settings: Settings) -> str:
    """Return the database's DSN, with its password.

    Raises:
        SettingsError: where it is missing or none; it is not shown, for the password in it.
    """
    settings.need("postgres_dsn")
    dsn = "" if settings.postgres_dsn is None else settings.postgres_dsn.get_secret_value()
    if not dsn.startswith(("postgresql://", "postgres://")):
        raise SettingsError(
            "PERMIT_POSTGRES_DSN: does not begin with postgresql://; "
            "for example PERMIT_POSTGRES_DSN=postgresql://permit:secret@localhost/permit"
        )
    return dsn


@asynccontextmanager
async def opened_repository(settings: Settings) -> AsyncIterator[PostgresRepository]:
    """Yield the repository, connected and with the right schema, for a command.

    Raises:
        UnavailableError: where the database does not answer.
        SchemaError: says what to run.
    """
    repository = await PostgresRepository.open(postgres_dsn(settings), pool_size=2)
    try:
        await repository.check_schema()
        yield repository
    finally:
        await repository.close()


@asynccontextmanager
async def opened_store(settings: Settings) -> AsyncIterator[S3DocumentStore]:
    """Yield the document store, for a command."""
    store = S3DocumentStore(s3_config(settings))
    try:
        yield store
    finally:
        store.close()


class Service:
    """The balancer: `run` from the first listening to the last closing."""

    def __init__(self, settings: Settings) -> None:
        """Put together what needs no connection.

        Raises:
            SettingsError: where a setting is missing or wrong.
        """
        settings.check_relations()
        self._settings = settings
        self._kafka = kafka_config(settings)
        self._dsn = postgres_dsn(settings)
        self._clock = SteadyClock(SystemClock())
        self._metrics = PrometheusMetrics()
        self._writes = {
            dependency: Writes(dependency, name, self._clock, self._metrics)
            for dependency, name in (("postgres", "PostgreSQL"), ("s3", "S3"))
        }
        self._store = WatchedStore(s3_config(settings), self._writes["s3"])
        self._repository: PostgresRepository | None = None
        self._supervisor: Supervisor | None = None
        self._ingest: Ingest | None = None
        self._has_caught_up = False
        self._view = DistributionView(follows=settings.http_distribution)
        self._readiness = Readiness(
            {
                "kafka": self._check_kafka,
                "postgres": self._check_postgres,
                "s3": self._check_s3,
            },
            self._view,
            self._metrics,
            {"reports": self._reports_fault},
        )
        self._http = self._make_http()

    def _make_http(self) -> HttpServer:
        settings = self._settings
        distribution = Distribution(
            self._view,
            self._known_host,
            self._metrics,
            waiters_max=settings.http_waiters_max,
            round_seconds=settings.round_seconds,
        )
        token = settings.http_token
        operations = Operations(
            repository=self._connected,
            documents=self._documents,
            readiness=self._readiness,
            clock=self._clock,
            metrics_text=self._metrics.text,
            token=None if token is None else token.get_secret_value(),
            round_seconds=settings.round_seconds,
            on_change=self._on_change,
        )
        return HttpServer(distribution, operations, self._metrics)

    async def run(self, stop: asyncio.Event, started: Callable[[str], None]) -> None:
        """Serve until told to stop.

        Args:
            stop: set from outside.
            started: called once with the address of HTTP, when everything is there.

        Raises:
            BalancerError: where the service cannot start and waiting is in vain.
        """
        self._readiness.end_with(stop)
        async with contextlib.AsyncExitStack() as closing:
            closing.callback(self._store.close)
            closing.push_async_callback(self._close_repository)
            address = await self._http.start(
                Address(
                    self._settings.http_host,
                    self._settings.http_port,
                    shared=self._settings.http_share_port,
                )
            )
            closing.push_async_callback(self._http.stop)
            if not await _unless(stop, self._begin()):
                return
            supervisor = self._make_supervisor(self._connected())
            self._supervisor = supervisor
            # Left at once: a check may wait for an answer that does not come.
            watching = self._readiness.keep_looking(self._look_seconds())
            looking = asyncio.create_task(_unless(stop, watching))
            closing.push_async_callback(_cancelled, looking)
            host = f"[{address.host}]" if ":" in address.host else address.host
            started(f"http://{host}:{address.port}")
            await supervisor.run(stop)

    def _look_seconds(self) -> float:
        return min(10.0, max(1.0, self._settings.round_seconds / 6))

    async def _begin(self) -> None:
        """Wait for every dependency, and see that what is needed in them is there."""
        for name in ("postgres", "s3", "kafka"):
            await self._answers(name)
        while True:
            try:
                return await self._prepare()
            except UnavailableError as error:  # one went away again
                _log.warning("%s", error, extra={"action": "waiting"})
                await asyncio.sleep(WAIT_SECONDS)

    async def _answers(self, name: str) -> None:
        """Wait until a dependency answers, with a line now and then."""
        loop = asyncio.get_running_loop()
        tell_at = loop.time()
        while (fault := await self._readiness.look_at(name)) is not None:
            if loop.time() >= tell_at:
                remedy = "" if "check PERMIT_" in fault else f"; check {REACHED_BY[name]}"
                _log.warning(
                    "waiting for %s: %s%s", name, fault, remedy, extra={"action": "waiting"}
                )
                tell_at = loop.time() + TELL_SECONDS
            await asyncio.sleep(WAIT_SECONDS)

    async def _prepare(self) -> None:
        """Create topics and the layout where they are missing."""
        settings = self._settings
        if settings.kafka_create_topics:
            for fault in await ensure_topics(
                self._kafka,
                partitions=settings.kafka_partitions,
                retention_ms=settings.kafka_retention_seconds * 1000,
            ):
                _log.error("%s", fault, extra={"action": "topics"})
        shards, created = await self._store.open_layout(settings.shards)
        if shards != settings.shards:
            _log.warning(
                "PERMIT_SHARDS is %d, but the store was laid out for %d shards, which counts",
                settings.shards,
                shards,
                extra={"action": "layout"},
            )
        elif created:
            _log.info("laid out the store for %d shards", shards, extra={"action": "layout"})
        self._view.shards = shards

    def _make_supervisor(self, repository: PostgresRepository) -> Supervisor:
        settings = self._settings
        limits = CycleLimits(settings.round_seconds * 1000, settings.ttl_seconds * 1000)
        ingest = Ingest(
            KafkaUsageLog(self._kafka),
            repository,
            self._clock.shared,
            self._metrics,
            decode_record,
            ttl_ms=limits.ttl_ms,
            on_change=self._note_change,
            jitter=random.random,
        )
        self._ingest = ingest
        return Supervisor(
            cycle=Cycle(repository, self._store, self._view, self._clock, self._metrics, limits),
            ingest=ingest,
            repository=repository,
            board=repository,
            store=self._store,
            view=self._view,
            clock=self._clock,
            metrics=self._metrics,
            limits=limits,
            options=Options(
                holder=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}",
                lease_ms=settings.lease_ms,
                keep_files_ms=settings.keep_files_seconds * 1000,
                keep_details_ms=settings.history_detail_hours * 3_600_000,
                keep_history_ms=settings.history_days * 86_400_000,
            ),
        )

    def _reports_fault(self) -> str | None:
        """Say what is wrong until the reports found at start were read, once."""
        if not self._has_caught_up and self._ingest is not None:
            self._has_caught_up = self._ingest.view().caught_up
        return None if self._has_caught_up else "the reports found at start are not read yet"

    async def _check_kafka(self) -> None:
        await list_topics(self._kafka)

    async def _check_s3(self) -> None:
        await self._writes["s3"].check(self._store.check)

    async def _check_postgres(self) -> None:
        if self._repository is None:
            self._repository = await WatchedRepository.watched(
                self._dsn,
                self._writes["postgres"],
                pool_size=self._settings.postgres_pool_size,
            )
        await self._writes["postgres"].check(self._check_schema)

    async def _check_schema(self) -> None:
        try:
            await self._connected().check_schema()
        except NewerSchemaError:
            if self._supervisor is None:  # what runs goes on where an upgrade has begun
                raise

    def _connected(self) -> PostgresRepository:
        if self._repository is None:
            raise UnavailableError("PostgreSQL is not connected yet")
        return self._repository

    async def _known_host(self, host: str) -> bool:
        repository: Repository = self._connected()
        return await repository.known_host(host)

    async def _documents(self, destination: str) -> tuple[int, Sequence[Document]]:
        """Return a destination's shard, and what is published of it."""
        shard = shard_of(destination, self._view.shards) if self._view.shards else 0
        if self._view.follows or not self._view.shards:
            return shard, self._view.documents_of(shard)
        found = await self._store.current(shard, tag=None)
        return shard, () if found is None else found.documents

    def _note_change(self, destinations: Collection[str]) -> None:
        if self._supervisor is not None:
            self._supervisor.note_change(destinations)

    def _on_change(self) -> None:
        if self._supervisor is not None:
            self._supervisor.look_at_destinations()

    async def _close_repository(self) -> None:
        if self._repository is not None:
            await self._repository.close()


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Do the work and return True, or leave it where it is once told to stop."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        for task in (working, stopping):
            task.cancel()
        # A driver may take its time to see that it was cancelled; whoever stops does not wait.
        await asyncio.wait({working, stopping}, timeout=LEAVE_SECONDS)


async def _cancelled(task: asyncio.Task[bool]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=LEAVE_SECONDS)
