"""Calls of the Kafka client: each within a time, and whatever goes wrong is one kind of error.

Knows nothing of what is called.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import ConsumerStoppedError, KafkaError, ProducerClosed

from balancer.app.cancellation import is_cancelled
from balancer.errors import UnavailableError

SENDER_SECONDS: Final = 0.3
"""So long a producer that is cut short waits for the answer to what it sent."""


@asynccontextmanager
async def bounded(what: str, seconds: float) -> AsyncIterator[None]:
    """Give a block so many seconds.

    Raises:
        UnavailableError: "Kafka could not ``what``", where the block takes longer or the client
            fails.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except (KafkaError, ConsumerStoppedError, OSError, TimeoutError) as error:
        raise UnavailableError(f"Kafka could not {what}: {error!r}") from error
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise UnavailableError(f"Kafka could not {what}: {error!r}") from error


def looked_at(call: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., asyncio.Task[Any]]:
    """Return ``call`` as one whose failure is no news where nobody waits for it any more."""

    def begin(*given: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(call(*given))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    return begin


class Consumer(AIOKafkaConsumer):  # type: ignore[misc]  # the client has no types
    """Stops also while a fetch fails, where the client lets that one's cancellation through.

    A commit that was given up goes on in the client; that it fails later is not told as a crash.
    """

    async def start(self) -> None:
        """Join the group."""
        await super().start()
        commit = getattr(self._coordinator, "_do_commit_offsets", None)
        if commit is not None:
            self._coordinator._do_commit_offsets = looked_at(commit)  # noqa: SLF001

    async def stop(self) -> None:
        """Leave the group and close all connections, these also where the leaving is cut short."""
        try:
            await super().stop()
        except asyncio.CancelledError:
            if is_cancelled():
                raise
        finally:
            await self._end()

    async def _end(self) -> None:
        """End whatever still runs of it where it was not stopped in order."""
        for part, name in (
            (self._coordinator, "_stop_heartbeat_task"),
            (self._coordinator, "_stop_commit_offsets_refresh_task"),
            (self._fetcher, "close"),
            (self._client, "close"),
        ):
            end = getattr(part, name, None)
            if end is not None:
                with contextlib.suppress(asyncio.CancelledError, KafkaError):
                    await end()


async def left(client: Consumer | AIOKafkaProducer, seconds: float) -> None:
    """Stop a client within so many seconds; whoever is cancelled meanwhile leaves none open."""
    try:
        with contextlib.suppress(UnavailableError):
            async with bounded("be left", seconds):
                await client.stop()
    finally:
        if isinstance(client, AIOKafkaProducer):
            # Told to end, it waits for what is under way; told again, it does not.
            with contextlib.suppress(asyncio.CancelledError, KafkaError, TimeoutError):
                async with asyncio.timeout(SENDER_SECONDS):
                    await client._sender.close()  # noqa: SLF001 - its stop was cut short
            # Else what waits for its answers does so for ever.
            client._message_accumulator.fail_all(ProducerClosed())  # noqa: SLF001
            await client.client.close()
