"""Strict reading of JSON from strangers: plain values or a `WireError`, never anything else.

Decides which bytes are JSON at all and whether a value has the asked type and range. Knows no
message of the protocol.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from worker_sdk.errors import RejectReason, WireError
from worker_sdk.wire.limits import (
    INSTANT_MAX_MS,
    INSTANT_MIN_MS,
    JSON_ITEMS_MAX,
    NAME_MAX_BYTES,
)

DIGITS_MAX: Final = 20
"""More digits than any number of the protocol has; longer ones are not even parsed."""


NOT_AN_INTEGER: Final = float("nan")
"""Stands for NaN, infinity and numbers of absurd length: no field of the protocol accepts it."""


def _refuse_constant(_text: str) -> float:
    return NOT_AN_INTEGER


def _parse_int(text: str) -> int | float:
    return int(text) if len(text) <= DIGITS_MAX else NOT_AN_INTEGER


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
_WARY_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_parse_int)
"""Looks at each number's length before it is parsed, which takes twice the time of all the rest."""

_ALIKE: Final = bytes(ord("0") if chr(byte).isdecimal() else ord(" ") for byte in range(256))
_LONG: Final = b"0" * DIGITS_MAX


def _may_have_long_number(body: bytes) -> bool:
    """Say whether so many digits stand in a row, be it in a text, that a number may be too long."""
    return _LONG in body.translate(_ALIKE)


def parse_json(body: bytes, *, items_max: int = JSON_ITEMS_MAX) -> object:
    """Return the JSON value in ``body`` (UTF-8).

    A number that no field may hold becomes `NOT_AN_INTEGER` rather than an error, so that it costs
    its own tuple or field and not everything around it. Of equal keys the last one counts.

    Args:
        body: the text.
        items_max: commas, brackets and braces that may open in it, those in texts included. A few
            bytes of text become a hundred of memory, so they are counted before they are parsed.

    Raises:
        WireError: BAD_JSON, or TOO_MANY.
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") > items_max:
        raise WireError(RejectReason.TOO_MANY, f"over {items_max} commas and brackets")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WireError(RejectReason.BAD_JSON, "not UTF-8") from error
    decoder = _WARY_DECODER if _may_have_long_number(body) else _DECODER
    try:
        value: object = decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise WireError(RejectReason.BAD_JSON, "not JSON") from error
    return value


def as_object(value: object, what: str) -> Mapping[str, object]:
    """Return ``value`` as a JSON object.

    Raises:
        WireError: BAD_FIELD where it is anything else.
    """
    if not isinstance(value, dict):
        raise WireError(RejectReason.BAD_FIELD, f"{what} is not an object")
    return value


def as_list(value: object, what: str, *, most: int) -> list[object]:
    """Return ``value`` as a list of at most ``most`` items.

    Raises:
        WireError: BAD_FIELD where it is no list, TOO_MANY where it is longer.
    """
    if not isinstance(value, list):
        raise WireError(RejectReason.BAD_FIELD, f"{what} is not a list")
    if len(value) > most:
        raise WireError(RejectReason.TOO_MANY, f"{what} has {len(value)} items, at most {most}")
    return value


def as_int(value: object, what: str, *, least: int, most: int) -> int:
    """Return ``value`` as an integer within ``least`` and ``most``; booleans are none.

    Raises:
        WireError: BAD_NUMBER.
    """
    if type(value) is not int or not least <= value <= most:
        raise WireError(RejectReason.BAD_NUMBER, f"{what} is not an integer in [{least}, {most}]")
    return value


def as_instant_ms(value: object, what: str) -> int:
    """Return ``value`` as a Unix instant in milliseconds between the years 2000 and 2100.

    Raises:
        WireError: BAD_NUMBER.
    """
    return as_int(value, what, least=INSTANT_MIN_MS, most=INSTANT_MAX_MS)


def as_bool(value: object, what: str) -> bool:
    """Return ``value`` as a boolean.

    Raises:
        WireError: BAD_FIELD.
    """
    if not isinstance(value, bool):
        raise WireError(RejectReason.BAD_FIELD, f"{what} is not true or false")
    return value


def as_name(value: object, what: str) -> str:
    """Return ``value`` as a legal name (see `check_name`).

    Raises:
        WireError: BAD_NAME.
    """
    if not isinstance(value, str):
        raise WireError(RejectReason.BAD_NAME, f"{what} is not text")
    return check_name(value, what)


def check_name(name: str, what: str) -> str:
    """Return ``name`` if it has 1 to 255 bytes of UTF-8 and no control character.

    Control characters are U+0000 to U+001F and U+007F to U+009F. Lone surrogates are not UTF-8.

    Raises:
        WireError: BAD_NAME.
    """
    if not name:
        raise WireError(RejectReason.BAD_NAME, f"{what} is empty")
    if len(name) > NAME_MAX_BYTES:
        raise WireError(RejectReason.BAD_NAME, f"{what} is over {NAME_MAX_BYTES} bytes")
    if name.isascii():
        if not name.isprintable():
            raise WireError(RejectReason.BAD_NAME, f"{what} has a control character")
        return name
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise WireError(RejectReason.BAD_NAME, f"{what} is not UTF-8") from error
    if size > NAME_MAX_BYTES:
        raise WireError(RejectReason.BAD_NAME, f"{what} is over {NAME_MAX_BYTES} bytes")
    if any(ch < " " or "\x7f" <= ch <= "\x9f" for ch in name):
        raise WireError(RejectReason.BAD_NAME, f"{what} has a control character")
    return name


def check_version(value: Mapping[str, object], what: str, version: int) -> None:
    """Check the ``v`` of a message.

    Raises:
        WireError: BAD_VERSION where it is missing or not the one known.
    """
    found = value.get("v")
    if type(found) is not int or found != version:
        raise WireError(RejectReason.BAD_VERSION, f"{what} has no version {version}")


def dump_json(value: object) -> bytes:
    """Return ``value`` as compact JSON in UTF-8, keys in the order given, no needless escapes.

    Raises:
        WireError: BAD_NAME where a text is not UTF-8 (a lone surrogate).
    """
    return as_utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def as_utf8(text: str) -> bytes:
    """Return ``text`` as UTF-8.

    Raises:
        WireError: BAD_NAME where it is none (a lone surrogate).
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise WireError(RejectReason.BAD_NAME, "a text is not UTF-8") from error
