"""The errors of the balancer, under one base class that is itself a `PermitError`.

Decides nothing; knows nothing of the rest of the package.
"""

from __future__ import annotations

from worker_sdk.errors import PermitError


class BalancerError(PermitError):
    """Base of every error that the balancer raises on purpose."""


class PolicyError(BalancerError):
    """A destination or policy has a value out of its bounds; the message names it."""


class InstantError(BalancerError):
    """A text names no instant; the message says which forms are good."""


class SettingsError(BalancerError):
    """A setting is missing or wrong; the message names it, the fault and an example."""


class SchemaError(BalancerError):
    """The database's schema is not the one this version works on; says what to run."""


class NewerSchemaError(SchemaError):
    """It is a later version's; what runs already goes on by it."""


class UnavailableError(BalancerError):
    """A dependency did not answer, or its answer is not known; trying again later can help."""


class RefusedError(BalancerError):
    """The database refuses a value of what was to be stored; trying the same again is in vain."""


class ConflictError(BalancerError):
    """Somebody else changed what this call was based on, or the change is not allowed."""
