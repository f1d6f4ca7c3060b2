"""A pool of threads whose every task takes a permit first.

Decides nothing: each thread waits for the permit of its own task, so that no more tasks wait for
permits than there are threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from worker_sdk.adapters import check_arguments
from worker_sdk.handle import DestinationHandle

P = ParamSpec("P")
T = TypeVar("T")


class PermitThreadPool(ThreadPoolExecutor):
    """A ``ThreadPoolExecutor`` for work that all goes to one destination.

    A task for which no permit was to be had in time is not run; its future raises
    `worker_sdk.PermitTimeout`. Close the pool before the client.

    Args:
        permits: the destination.
        max_workers: threads, as in ``ThreadPoolExecutor``.
        timeout: seconds that a task waits for its permit at most, once a thread has taken it up;
            None waits as long as it takes.
        thread_name_prefix: as in ``ThreadPoolExecutor``.
    """

    def __init__(
        self,
        permits: DestinationHandle,
        max_workers: int | None = None,
        *,
        timeout: float | None = None,
        thread_name_prefix: str = "",
    ) -> None:
        check_arguments(permits, timeout)
        super().__init__(max_workers, thread_name_prefix)
        self._permits = permits
        self._timeout = timeout

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have ``fn`` run with a permit in some thread; ``map`` goes by this as well."""

        def deliver() -> T:
            with self._permits.permit(timeout=self._timeout):
                return fn(*args, **kwargs)

        return super().submit(deliver)
