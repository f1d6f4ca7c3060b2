"""The errors a user of the SDK can meet, under one base class.

Decides nothing; knows nothing of the rest of the package.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class PermitError(Exception):
    """Base of every error that this distribution raises on purpose."""


class ConfigurationError(PermitError):
    """A setting is missing or wrong; the message names the setting, the fault and an example."""


class PermitTimeout(PermitError):  # noqa: N818 - the established word for it, as in TimeoutError
    """No permit became free within the time the caller was ready to wait.

    Attributes:
        destination: name of the destination asked.
        retry_after_seconds: the soonest time after which asking again can succeed, as far as is
            known now; None where no further permit is in sight.
        concurrency: the limit of deliveries at once, where that and no lack of permits was in the
            way; else None.
    """

    def __init__(
        self,
        destination: str,
        retry_after_seconds: float | None,
        concurrency: int | None = None,
    ) -> None:
        self.destination = destination
        self.retry_after_seconds = retry_after_seconds
        self.concurrency = concurrency
        if concurrency is not None:
            many = "1 delivery is" if concurrency == 1 else f"{concurrency} deliveries are"
            hint = f"{many} under way, which is the limit"
        elif retry_after_seconds is not None:
            hint = f"try again in {retry_after_seconds:.3f} s"
        else:
            hint = "no further permit is in sight"
        super().__init__(f"no permit for {destination!r} in time; {hint}")

    def __reduce__(self) -> tuple[type[Self], tuple[str, float | None, int | None]]:
        # Errors cross processes: pools of processes and task queues hand them over.
        return type(self), (self.destination, self.retry_after_seconds, self.concurrency)


class ImpossibleRequestError(PermitError):
    """More permits were asked for at once than any window can give, so waiting is in vain."""


class ClientClosedError(PermitError):
    """The client was closed (or never started) and gives no permits."""


class ReentrantCallError(PermitError):
    """A signal handler or finaliser called the client amid a call of the same thread.

    The client is half changed then and can only be asked again later; ``try_acquire`` says False.
    """


class TransportError(PermitError):
    """Kafka, the object store or the balancer could not be reached or gave no usable answer."""


class RejectReason(StrEnum):
    """Why an input was refused: the label of the counters and of the rejected topic's header."""

    EMPTY = "empty"
    TOO_LARGE = "too_large"
    BAD_COMPRESSION = "bad_compression"
    BAD_JSON = "bad_json"
    BAD_VERSION = "bad_version"
    BAD_CONTENT_TYPE = "bad_content_type"
    BAD_FIELD = "bad_field"
    BAD_NAME = "bad_name"
    BAD_NUMBER = "bad_number"
    BAD_SPAN = "bad_span"
    TOO_MANY = "too_many"
    INCONSISTENT = "inconsistent"


class WireError(PermitError):
    """Bytes or values that the wire contract does not allow.

    Attributes:
        reason: the cause, from a closed list, for counting.
    """

    def __init__(self, reason: RejectReason, message: str) -> None:
        self.reason = reason
        self._message = message
        super().__init__(f"{reason.value}: {message}")

    def __reduce__(self) -> tuple[type[Self], tuple[RejectReason, str]]:
        return type(self), (self.reason, self._message)
