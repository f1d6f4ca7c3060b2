"""What a worker imports to take permits.

Decides which names are public. Nothing is loaded before it is used: importing this package costs
next to nothing and starts nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker_sdk.client import PermitClient
    from worker_sdk.core.ladder import Mode
    from worker_sdk.errors import (
        ClientClosedError,
        ConfigurationError,
        ImpossibleRequestError,
        PermitError,
        PermitTimeout,
        ReentrantCallError,
        TransportError,
    )
    from worker_sdk.handle import DestinationHandle, Permit
    from worker_sdk.runtime.states import ClientState, DestinationState

_HOMES = {
    "ClientClosedError": "worker_sdk.errors",
    "ClientState": "worker_sdk.runtime.states",
    "ConfigurationError": "worker_sdk.errors",
    "DestinationHandle": "worker_sdk.handle",
    "DestinationState": "worker_sdk.runtime.states",
    "ImpossibleRequestError": "worker_sdk.errors",
    "Mode": "worker_sdk.core.ladder",
    "Permit": "worker_sdk.handle",
    "PermitClient": "worker_sdk.client",
    "PermitError": "worker_sdk.errors",
    "PermitTimeout": "worker_sdk.errors",
    "ReentrantCallError": "worker_sdk.errors",
    "TransportError": "worker_sdk.errors",
}

__all__ = [
    "ClientClosedError",
    "ClientState",
    "ConfigurationError",
    "DestinationHandle",
    "DestinationState",
    "ImpossibleRequestError",
    "Mode",
    "Permit",
    "PermitClient",
    "PermitError",
    "PermitTimeout",
    "ReentrantCallError",
    "TransportError",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
