"""Which handler a path has.

Decides nothing else. The table is looked up by the path's parts: `GET /distribution/<host>` is
asked by whole fleets, and a general router costs more than the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

PARTS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Route:
    """A path with its handlers by method; ``name`` is the path as metrics tell it."""

    name: str
    handlers: Mapping[str, Handler]

    def handler(self, method: str) -> Handler:
        """Return the handler of a method; HEAD has that of GET.

        Raises:
            HTTPNotFound: where the path is none of ours.
            HTTPMethodNotAllowed: naming those that there are.
        """
        if not self.handlers:
            raise web.HTTPNotFound
        found = self.handlers.get(method)
        if found is None and method == "HEAD":
            found = self.handlers.get("GET")
        if found is None:
            allowed = [*self.handlers, *(["HEAD"] if "GET" in self.handlers else [])]
            raise web.HTTPMethodNotAllowed(method, sorted(allowed))
        return found


NOWHERE: Final = Route("none", {})
"""Every path that is none of ours."""


class Routes:
    """All of them.

    Args:
        table: handlers by path and method; a part ``{…}`` stands for any name, which is the
            second part of its path.
    """

    def __init__(self, table: Mapping[str, Mapping[str, Handler]]) -> None:
        self._routes = {_key(path.split("/")): Route(path, table[path]) for path in table}

    def find(self, path: str) -> Route:
        """Return the route of a raw path."""
        parts = path.split("/", PARTS_MAX)
        if len(parts) > 2 and not parts[2]:
            return NOWHERE
        return self._routes.get(_key(parts), NOWHERE)


def _key(parts: list[str]) -> tuple[str, ...]:
    """Return what routes differ by: every part but the name."""
    return ("", *parts[1:2], "", *parts[3:]) if len(parts) > 2 else tuple(parts)
