"""An HTTP server on loopback whose every answer is the test's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

POLL_SECONDS: Final = 0.01
"""How soon the server sees that it is to end; by default that costs each test half a second."""


@contextmanager
def answering(
    answer: Callable[[BaseHTTPRequestHandler, bytes], None], *, protocol: str = "HTTP/1.0"
) -> Iterator[str]:
    """Let a function answer each request, given its body; yield the server's address.

    Args:
        answer: writes status, headers and body.
        protocol: by HTTP/1.0 each connection ends with its answer.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = protocol

        def _do(self) -> None:
            answer(self, self.rfile.read(int(self.headers.get("Content-Length", "0"))))

        do_GET = do_PUT = do_DELETE = do_HEAD = _do  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
