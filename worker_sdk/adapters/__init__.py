"""Permits in the libraries that workers already use; a module each, named after its library.

Decides nothing but that a wrong argument is told when it is given. A module here needs its library
(an extra of the same name) and is loaded by nobody but the program that imports it.
"""

from __future__ import annotations

from worker_sdk.runtime.asking import checked_seconds


def check_arguments(permits: object, seconds: float | None = None) -> None:
    """Check what every adapter is given.

    Args:
        permits: must be a handle.
        seconds: must be a number of seconds, or None.

    Raises:
        TypeError: where ``permits`` is none.
        ValueError: where ``seconds`` is no number.
    """
    if not callable(getattr(permits, "permit", None)):  # a double in a user's test has it too
        raise TypeError(
            f"permits must be a destination's handle, not {permits!r:.60}; "
            'an example: client.destination("orders-db")'
        )
    if seconds is not None:
        checked_seconds(seconds)
