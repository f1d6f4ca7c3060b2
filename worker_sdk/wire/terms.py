"""What a document says of a destination as a whole: windows, capacity, release of permits.

Decides how terms look in files and in HTTP answers, which have their keys in common, and which
values are none. Knows nothing of members.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.limits import INSTANT_MAX_MS, PERMITS_MAX, SPAN_MAX_MS, WINDOW_SECONDS_MAX
from worker_sdk.wire.strict import as_bool, as_int, as_object

PERMILLE: Final = 1000
WINDOW_MAX: Final = INSTANT_MAX_MS // 1000
GUARD_MAX_MS: Final = 60_000


class Pacing(StrEnum):
    """How a window's permits are released within it."""

    EVEN = "even"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class OnExpiry:
    """What a member may do once its newest document has expired.

    ``permille`` of its safe points for ``for_ms`` more; 0 and 0 mean closed.
    """

    permille: int = 0
    for_ms: int = 0


CLOSED: Final = OnExpiry()


@dataclass(frozen=True, slots=True)
class Terms:
    """What a document says of a destination as a whole.

    Attributes:
        destination: its name.
        capacity: permits a window for all members together.
        window_seconds: length of its windows.
        from_window: first window covered.
        until_window: first window no longer covered.
        on_expiry: what remains after the document's validity.
        guard_ms: nothing is granted so near a window's edge.
        pacing: release of permits within a window.
        enforce: False lets everything pass and only counts (a trial).
        lends: points may be had within the window by reporting that one has run out.
    """

    destination: str
    capacity: int
    window_seconds: int
    from_window: int
    until_window: int
    on_expiry: OnExpiry = CLOSED
    guard_ms: int = 250
    pacing: Pacing = Pacing.EVEN
    enforce: bool = True
    lends: bool = False

    def covers(self, window: int) -> bool:
        """Say whether ``window`` is covered."""
        return self.from_window <= window < self.until_window


def encode_terms(terms: Terms) -> dict[str, object]:
    """Return the keys that files and HTTP answers have in common, without the name."""
    rule = terms.on_expiry
    late = "closed" if rule == CLOSED else {"permille": rule.permille, "for_ms": rule.for_ms}
    return {
        "capacity": terms.capacity,
        "window_seconds": terms.window_seconds,
        "from_window": terms.from_window,
        "until_window": terms.until_window,
        "on_expiry": late,
        "guard_ms": terms.guard_ms,
        "pacing": terms.pacing.value,
        "enforce": terms.enforce,
        **({"lends": True} if terms.lends else {}),
    }


def decode_terms(value: object, destination: str) -> Terms:
    """Return the terms of ``destination`` from the keys of `encode_terms`; others are ignored.

    Raises:
        WireError: where a key is missing or wrong.
    """
    line = as_object(value, "a destination")
    seconds = as_int(line.get("window_seconds"), "window_seconds", least=1, most=WINDOW_SECONDS_MAX)
    first = as_int(line.get("from_window"), "from_window", least=0, most=WINDOW_MAX)
    until = as_int(line.get("until_window"), "until_window", least=first, most=WINDOW_MAX)
    pacing = line.get("pacing")
    if pacing not in ("even", "window"):
        raise WireError(RejectReason.BAD_FIELD, "pacing is not one known")
    return Terms(
        destination=destination,
        capacity=as_int(line.get("capacity"), "capacity", least=0, most=PERMITS_MAX),
        window_seconds=seconds,
        from_window=first,
        until_window=until,
        on_expiry=_decode_on_expiry(line.get("on_expiry")),
        guard_ms=as_int(line.get("guard_ms"), "guard_ms", least=0, most=GUARD_MAX_MS),
        pacing=Pacing(pacing),
        enforce=as_bool(line.get("enforce"), "enforce"),
        lends=as_bool(line.get("lends", False), "lends"),
    )


def _decode_on_expiry(value: object) -> OnExpiry:
    if value == "closed":
        return CLOSED
    line = as_object(value, "on_expiry")
    return OnExpiry(
        permille=as_int(line.get("permille"), "permille", least=0, most=PERMILLE),
        for_ms=as_int(line.get("for_ms"), "for_ms", least=0, most=SPAN_MAX_MS),
    )
