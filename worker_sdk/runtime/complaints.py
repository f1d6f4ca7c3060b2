"""What the host's log is told of a failure behind the client.

Decides the words; how often they are said, the member decides.
"""

from __future__ import annotations

from typing import Final

from worker_sdk.errors import PermitError
from worker_sdk.runtime.member import Member
from worker_sdk.transports.base import names_of

TEXT_MAX: Final = 300


def complain(member: Member, what: str, error: Exception) -> None:
    """Warn of a failure, at most once a minute for each cause."""
    cause = f"{what}:{names_of(error)}"
    member.warn(cause, "%s: %s; permits go on by what is known", what, _text(error))


def trouble(member: Member, what: str, error: Exception) -> None:
    """Count and warn of a failure that no driver is to blame for."""
    member.failed(what, names_of(error))
    complain(member, what, error)


def _text(error: Exception) -> str:
    try:
        text = str(error) if isinstance(error, PermitError) else repr(error)
    except Exception:  # it is somebody else's code
        text = type(error).__name__
    return text[:TEXT_MAX]
