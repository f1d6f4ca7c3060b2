"""`PermitClient`: a worker's membership, from start to close.

Decides nothing: settings are checked by the options, lives begin and end in the runtime, and
permits are taken by handles. Nothing here does I/O; that is the background's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, NoReturn, Self

from worker_sdk.errors import ConfigurationError
from worker_sdk.handle import DestinationHandle
from worker_sdk.runtime.asking import checked_seconds
from worker_sdk.runtime.clocks import Clock, SystemClock
from worker_sdk.runtime.gate import Gates
from worker_sdk.runtime.life import Lives
from worker_sdk.runtime.member import Member
from worker_sdk.runtime.options import (
    Options,
    SinkFactory,
    SourceFactory,
    make_options,
    options_from_environment,
)
from worker_sdk.runtime.states import ClientState, client_state
from worker_sdk.wire.usage import USAGE_TOPIC

FLUSH_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 5.0
CLOSE_SECONDS_MAX: Final = 86_400.0


class PermitClient:
    """A member of the fleet: it reports what it uses and knows what it may send.

    Give it time to start: until the first distribution names it, every permit is refused or waited
    for. One client a process serves all its threads and event loops; after a fork the child's copy
    becomes a member of its own at its first use.

    Use it with ``with``, ``async with``, or `start` and `close`. It may be entered several times,
    one in another or by several threads: the last to leave closes it.
    """

    def __init__(
        self,
        *,
        destinations: Iterable[str],
        kafka: str | Mapping[str, object] | SinkFactory,
        distribution: str | SourceFactory,
        host: str | None = None,
        group: str | None = None,
        flush_seconds: float = FLUSH_SECONDS,
        s3_endpoint_url: str | None = None,
        s3_region: str | None = None,
        usage_topic: str = USAGE_TOPIC,
        clock: Clock | None = None,
    ) -> None:
        """Check the settings; nothing is connected before `start`.

        Args:
            destinations: names of what permits are wanted for.
            kafka: bootstrap servers (``"broker:9092"``), or settings of aiokafka's producer with
                TLS and SASL (``{"bootstrap_servers": ..., "security_protocol": ...}``).
            distribution: ``s3://bucket/prefix`` or ``http://balancer:8080``.
            host: name of this host; ``PERMIT_HOST`` or the hostname if not given.
            group: a name by which policies may address this member.
            flush_seconds: period of reports; the balancer's round.
            s3_endpoint_url: of a store other than Amazon's; ``PERMIT_S3_ENDPOINT_URL`` if it is
                not given.
            s3_region: if it is not in the environment.
            usage_topic: where reports go; the balancer's ``PERMIT_KAFKA_USAGE_TOPIC``.
            clock: for tests.

        Raises:
            ConfigurationError: naming the setting, the fault and an example.
        """
        options = make_options(
            destinations=destinations,
            kafka=kafka,
            distribution=distribution,
            host=host,
            group=group,
            flush_seconds=flush_seconds,
            s3_endpoint_url=s3_endpoint_url,
            s3_region=s3_region,
            usage_topic=usage_topic,
        )
        self._adopt(options, clock)

    def _adopt(self, options: Options, clock: Clock | None) -> None:
        self._options = options
        self._lives = Lives(options, clock or SystemClock(), self._rebind)
        gates = Gates()
        self._handles = {
            name: DestinationHandle(name, self._lives, gates) for name in options.destinations
        }

    @classmethod
    def from_env(cls) -> Self:
        """Return a client with the settings of the environment.

        ``PERMIT_DESTINATIONS`` (separated by commas), ``PERMIT_KAFKA_BOOTSTRAP_SERVERS``,
        ``PERMIT_DISTRIBUTION`` (or ``PERMIT_S3_BUCKET`` and ``PERMIT_S3_PREFIX``); if wanted
        ``PERMIT_HOST``, ``PERMIT_GROUP``, ``PERMIT_FLUSH_SECONDS``, ``PERMIT_KAFKA_USAGE_TOPIC``,
        ``PERMIT_S3_ENDPOINT_URL``, and for Kafka with TLS or a password
        ``PERMIT_KAFKA_SECURITY_PROTOCOL``, ``PERMIT_KAFKA_SASL_MECHANISM``,
        ``PERMIT_KAFKA_SASL_USERNAME``, ``PERMIT_KAFKA_SASL_PASSWORD``.

        Raises:
            ConfigurationError: naming the variable, the fault and an example.
        """
        client = cls.__new__(cls)
        client._adopt(options_from_environment(os.environ), None)  # noqa: SLF001 - its own class
        return client

    def start(self) -> None:
        """Begin: announce this member, read its shares. Returns at once.

        Raises:
            ConfigurationError: where a driver is missing or refuses its settings, or where the
                process is one in which the client cannot work.
            ClientClosedError: where the system gives no thread (any more).
        """
        self._lives.start()

    def close(self, timeout: float = CLOSE_SECONDS) -> int:
        """Say goodbye with the last account, and end. Waiters get `ClientClosedError`.

        In a signal handler that interrupts another call of this client in its own thread it
        returns at once, and the goodbye leaves as soon as that call has ended.

        Args:
            timeout: seconds that this may take, whatever state Kafka is in; at most a day.

        Returns:
            How many usage tuples could not be delivered (yet).

        Raises:
            ValueError: if ``timeout`` is no number of seconds; nothing is closed then.
        """
        return self._lives.end(min(max(0.0, checked_seconds(timeout)), CLOSE_SECONDS_MAX))

    @property
    def destinations(self) -> tuple[str, ...]:
        """The names that the client was made for, each once."""
        return self._options.destinations

    def destination(self, name: str) -> DestinationHandle:
        """Return the handle of a destination; keep it, it is the same at each call.

        Raises:
            ConfigurationError: if the client was not made for it.
        """
        handle = self._handles.get(name)
        if handle is None:
            known = ", ".join(sorted(self._handles)[:5])
            raise ConfigurationError(
                f"destination {name!r} is none of this client's; it was made for: {known}"
            )
        return handle

    @property
    def state(self) -> ClientState:
        """What the client has done and failed to do.

        After the end it is the last state.

        Raises:
            ClientClosedError: before the start.
        """
        member = self._lives.last
        return client_state(self._lives.present() if member is None else member)

    @property
    def has_state(self) -> bool:
        """Whether `state` tells of this process without beginning anything.

        It does not before the start, nor in a forked child before its first use.
        """
        return self._lives.last is not None

    def _rebind(self, member: Member | None) -> None:
        for handle in self._handles.values():
            handle.rebind(member)

    def __repr__(self) -> str:
        count = len(self._options.destinations)
        return f"<PermitClient of host {self._options.host!r} for {count} destinations>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a PermitClient cannot be sent to another process; make one there, or let it be "
            "inherited by a fork"
        )

    def __enter__(self) -> Self:
        self._lives.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lives.leave(CLOSE_SECONDS)

    async def __aenter__(self) -> Self:
        self._lives.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import asyncio  # noqa: PLC0415 - whoever comes here has it loaded

        leaving = asyncio.get_running_loop().run_in_executor(None, self._lives.leave, CLOSE_SECONDS)
        # Where all the loop's threads are busy, a cancellation would take it from their queue, and
        # whoever leaves last would wait for this one.
        await asyncio.shield(leaving)
