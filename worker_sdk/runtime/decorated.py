"""Functions whose every call is done within a context.

Decides which functions can be: those that do their work when they are called or awaited. Knows
nothing of permits: what is entered is somebody else's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


class Context(
    AbstractContextManager[object, None], AbstractAsyncContextManager[object, None], Protocol
):
    """What can be entered by ``with`` and by ``async with``."""


def decorated(deliver: Callable[P, T], context: Callable[[], Context]) -> Callable[P, T]:
    """Return the function with each call of it in a context of its own.

    Args:
        deliver: a function or a coroutine function.
        context: makes one.

    Raises:
        TypeError: if it is a generator function.
    """
    if inspect.isgeneratorfunction(deliver) or inspect.isasyncgenfunction(deliver):
        raise TypeError(
            f"{deliver!r} is a generator function: calling it delivers nothing; "
            "use permit() inside of it"
        )
    if inspect.iscoroutinefunction(deliver):

        @functools.wraps(deliver)
        async def deliver_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            async with context():
                return await deliver(*args, **kwargs)

        return cast("Callable[P, T]", deliver_async)

    @functools.wraps(deliver)
    def deliver_now(*args: P.args, **kwargs: P.kwargs) -> T:
        with context():
            return deliver(*args, **kwargs)

    return deliver_now
