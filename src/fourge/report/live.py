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
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fourge.core.errors import ConfigError
from fourge.report.markup import Markup
from fourge.report.page import body, document, title_of
from fourge.report.record import Record, read_records

HOST = "127.0.0.1"
_REST = 10  # times what a drawing took
_NICE = 10
_HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)


class View:
    """The page as it was last drawn."""

    def __init__(self, folders: Sequence[Path], *, compare: bool = False) -> None:
        self._folders, self._compare = folders, compare
        self._known: dict[Path, Record] = {}
        self._lock = threading.Lock()
        self._drawn, self._title, self._main = 0, "", Markup("")  # of how many events
        self._next_at = 0.0

    def main(self) -> tuple[int, Markup]:
        """What changes, and its number: drawn again if there is news, but not at once."""
        with self._lock:
            start = time.monotonic()
            if start >= self._next_at:
                self._draw()
                now = time.monotonic()
                self._next_at = now + _REST * (now - start)
            return self._drawn, self._main

    def _draw(self) -> None:
        records = [each for folder in self._folders for each in read_records(folder, self._known)]
        taken = sum(record.taken for record in records)
        if taken != self._drawn or not self._main:
            self._main = body(records, compare=self._compare)
            self._drawn, self._title = taken, title_of(records)

    def page(self) -> tuple[int, str]:
        """The whole, to begin with."""
        number, main = self.main()
        return number, document(self._title, main, live=True)


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
            if self.headers.get("Host") != f"{HOST}:{self.connection.getsockname()[1]}":
                self._answer(403)
            elif _same(at.path, f"/{token}/"):
                self._answer(200, *view.page())
            elif _same(at.path, f"/{token}/main"):
                number, main = view.main()
                is_new = parse_qs(at.query).get("seen") != [str(number)]
                self._answer(200 if is_new else 204, number, main if is_new else "")
            else:
                self._answer(404)

        def _answer(self, status: int, number: int = 0, text: str = "") -> None:
            data = text.encode()
            self.send_response(status)
            for name, value in (*_HEADERS, ("X-Seen", str(number))):
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(data)))
            with suppress(ConnectionError):  # a reader may leave in the middle
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """A terminal full of requests would hide the address."""

    return Handler


def _same(one: str, other: str) -> bool:
    """Without telling by the time it takes how much of a token was right."""
    return secrets.compare_digest(one.encode(), other.encode())
