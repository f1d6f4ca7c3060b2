"""Celery tasks that take a permit before they run.

Decides that a task which gets no permit in time goes back to its queue instead of holding a
worker, without counting as one of its retries. Knows nothing of pools: with processes each child is
a member of its own, with threads they share one.
"""

from __future__ import annotations

from typing import Any, Final

from celery import Task, signals
from celery.exceptions import Reject, Retry

from worker_sdk.adapters import check_arguments
from worker_sdk.client import PermitClient
from worker_sdk.errors import PermitTimeout

WAIT_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 2.0


def permit_task(
    client: PermitClient, destination: str, *, wait_seconds: float = WAIT_SECONDS
) -> type[Task]:
    """Return a base class: ``@app.task(base=permit_task(client, "orders-db"))``.

    A call of the task outside a worker takes a permit too, and raises `worker_sdk.PermitTimeout`
    where none is to be had.

    Args:
        client: not started; each process of the worker starts it for itself and says goodbye.
        destination: what the task's permits are for.
        wait_seconds: how long a task waits in the worker before it goes back to the queue. It is
            due again when a permit is expected, or after 5 s where none is in sight.

    Raises:
        ConfigurationError: if the client was not made for the destination.
    """
    permits = client.destination(destination)
    check_arguments(permits, wait_seconds)
    _follow(client)

    class PermitTask(Task):  # type: ignore[misc]  # celery has no types: its Task is Any
        abstract = True

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            client.start()
            permit = permits.permit(timeout=wait_seconds)
            try:
                permit.__enter__()
            except PermitTimeout as late:
                _put_back(self, late)
            try:
                if self.request.called_directly:
                    return super().__call__(*args, **kwargs)
                return self.run(*args, **kwargs)  # the worker's request stays the task's
            finally:
                permit.__exit__(None, None, None)

    return PermitTask


def _put_back(task: Task, late: PermitTimeout) -> None:
    request = task.request
    if request.called_directly or request.is_eager:
        raise late
    seconds = AGAIN_SECONDS if late.retry_after_seconds is None else late.retry_after_seconds
    again = task.signature_from_request(request, countdown=seconds, retries=request.retries)
    try:
        again.apply_async()
    except Exception as error:
        if task.acks_late:  # the broker still has the message, and gives it out again
            raise Reject(error, requeue=True) from error
        raise late from error  # the message is gone already: the task fails, for all to see
    raise Retry(str(late), late, seconds, sig=again)


def _follow(client: PermitClient) -> None:
    """Start and end the client with each process of a worker."""

    def start(**_: object) -> None:
        client.start()

    def close(**_: object) -> None:
        client.close(CLOSE_SECONDS)

    for signal, follow in (
        (signals.worker_process_init, start),
        (signals.worker_process_shutdown, close),
        (signals.worker_shutdown, close),
    ):
        signal.connect(follow, weak=False, dispatch_uid=(__name__, id(client), follow.__name__))
