"""The protection of our servers on loopback: access checks, and headers of every answer.

Any user of the machine, and any site open in a browser here, can connect to a port of loopback.
Other users do not have the token, and other sites cannot send our Host or Origin.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

LOOPBACK = "127.0.0.1"
_NAMES = (LOOPBACK, "localhost")
_PATIENCE_SECONDS = 10
# Each connection has a thread; beyond this many the oldest is closed.
_MOST_CONNECTIONS = 32
_MOST_SECONDS = 30.0
_PAUSE_WITHOUT_DESCRIPTORS = 0.05
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request is not allowed; the message explains why."""


class LoopbackServer(socketserver.ThreadingTCPServer):
    """A server on loopback with few connections at a time; port 0: any free port.

    Raises:
        OSError: Another process listens there.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, handler: type[Handler]) -> None:
        # With the times at which they were opened; other threads close connections too.
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__((LOOPBACK, port), handler)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; if no descriptor is free, pause: it stays in the queue."""
        try:
            found = super().get_request()
        except OSError:
            self._cut(len(self._open) - 1)
            time.sleep(_PAUSE_WITHOUT_DESCRIPTORS)
            raise
        with self._lock:
            self._open[found[0]] = time.monotonic()
        self._cut(_MOST_CONNECTIONS)
        return found

    def service_actions(self) -> None:
        """Close connections that are too slow."""
        late = time.monotonic() - _MOST_SECONDS
        with self._lock:
            slow = sum(begun < late for begun in self._open.values())
        self._cut(len(self._open) - slow)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def _cut(self, most: int) -> None:
        """Shut down the oldest connections until `most` are left; their threads close them."""
        with self._lock:
            for link in list(self._open)[: max(0, len(self._open) - most)]:
                del self._open[link]
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up: they do not concern this program's user."""


class Handler(BaseHTTPRequestHandler):
    """Checks a request before it calls `answer`."""

    timeout = _PATIENCE_SECONDS

    def answer(self) -> None:
        """Answer a request that passed the checks, or raise Refused."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """See `answer`."""
        try:
            self._require_own_names()
            self.answer()
        except Refused as why:
            self.reply(403, "text/plain", f"{why}\n")

    do_POST = do_GET

    def _require_own_names(self) -> None:
        """Refuse other sites: names that resolve to this machine, and cross-origin requests."""
        port = self.server.server_address[1]  # type: ignore[index]
        ours = [f"{name}:{port}" for name in _NAMES]
        host = self.headers.get("Host", "")
        if host not in ours:
            raise Refused(f"this is {ours[0]}, not {_short(host)}: open the address as printed")
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            raise Refused(f"a page of {_short(origin)} may not ask here")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refused("another page may not ask here")

    def reply(self, status: int, kind: str, text: str | bytes, **headers: str) -> None:
        """Send an answer. headers: their names with "_" for "-"."""
        if "charset=" not in kind:
            kind += "; charset=utf-8"
        body = text.encode(errors="replace") if isinstance(text, str) else text
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """Add the headers that protect the page, to errors too."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def version_string(self) -> str:
        """Return the server's name without the version of Python."""
        return "sirtaki"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the terminal has other uses."""


def same(given: str, wanted: str) -> bool:
    """Return whether two secrets are equal, compared in constant time."""
    return secrets.compare_digest(given.encode(errors="replace"), wanted.encode())


def _short(text: str) -> str:
    return repr(text[:100]) if text else "unnamed"
