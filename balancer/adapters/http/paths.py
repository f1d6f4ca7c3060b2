"""Names in paths: every legal name, taken for exactly what it is.

Decides which segment of the raw path is the name and which bytes it stands for. A slash in a name
comes as %2F; one that comes as a slash parts segments.
"""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from aiohttp import web

from worker_sdk.errors import WireError
from worker_sdk.wire.strict import check_name


def name_in(request: web.BaseRequest, position: int) -> str:
    """Return the name that is the path's segment at ``position``, counted from 1.

    Raises:
        HTTPNotFound: where it is no legal name, so that there can be nothing under it.
    """
    segment = request.rel_url.raw_path.split("/")[position]
    try:
        return check_name(unquote_to_bytes(segment).decode("utf-8"), "the name")
    except (UnicodeDecodeError, WireError) as error:
        raise web.HTTPNotFound(
            text="the path holds no legal name: 1 to 255 bytes of UTF-8 without control "
            "characters, percent-encoded"
        ) from error
