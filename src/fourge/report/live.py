"""The page of a run that goes on, served on loopback.

Two addresses exist, both behind a random token: the page, and the part of it that changes, which
the page's script asks for every two seconds. Everything else is not found, whoever asks; a request
that names another host (a web page that had its name pointed at this machine) is refused.

The run is not touched: its files are opened for reading, what was read is not read again, and
drawing waits at least ten times as long as it takes, in a process that gives way to all others.
"""

import os
import secrets
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fourge.core.errors import ConfigError
from fourge.report.page import body, page
from fourge.report.record import Record

HOST = "127.0.0.1"
_REST = 10  # times what a drawing took
_NICE = 10


class View:
    """The page as it was last drawn; ``seen`` is its number."""

    def __init__(self, records: Sequence[Record], *, compare: bool = False) -> None:
        self._records, self._compare = records, compare
        self._lock = threading.Lock()
        self.seen = 0
        self._main = ""
        self._next_at = 0.0

    def main(self) -> str:
        """What changes, drawn again if there is something new and it was not drawn just now."""
        with self._lock:
            start = time.monotonic()
            if start >= self._next_at and (
                sum([each.read() for each in self._records]) or not self.seen
            ):
                self._main = body(self._records, compare=self._compare)
                self.seen += 1
                now = time.monotonic()
                self._next_at = now + _REST * (now - start)
            return self._main

    def page(self) -> str:
        """The whole, to begin with."""
        self.main()
        with self._lock:
            return page(self._records, compare=self._compare, live=True)


def server(view: View, port: int = 0) -> tuple[ThreadingHTTPServer, str]:
    """A server that is not running yet, and the address to open.

    Raises:
        ConfigError: the port is taken, or may not be used.
    """
    token = secrets.token_urlsafe(24)
    try:
        made = ThreadingHTTPServer((HOST, port), _handler(view, token))
    except OSError as error:
        raise ConfigError(
            f"Port {port} cannot be used: {error.strerror}.", fix="leave --port out"
        ) from error
    made.daemon_threads = True
    return made, f"http://{HOST}:{made.server_port}/{token}/"


def serve(made: ThreadingHTTPServer) -> None:
    """Until interrupted; the run comes first."""
    os.nice(_NICE)
    with made:
        made.serve_forever()


def _handler(view: View, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "fourge", ""

        def do_GET(self) -> None:
            at = urlsplit(self.path)
            host = self.headers.get("Host", "")
            if not secrets.compare_digest(
                host.encode(), f"{HOST}:{self.server.server_port}".encode()
            ):  # type: ignore[attr-defined]
                self._answer(403, "")
            elif secrets.compare_digest(at.path.encode(), f"/{token}/".encode()):
                self._answer(200, view.page())
            elif secrets.compare_digest(at.path.encode(), f"/{token}/main".encode()):
                main = view.main()
                old = parse_qs(at.query).get("seen") == [str(view.seen)]
                self._answer(204 if old else 200, "" if old else main)
            else:
                self._answer(404, "")

        def _answer(self, status: int, text: str) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("X-Seen", str(view.seen))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """A terminal full of requests would hide the address."""

    return Handler
