"""Servers of ours on this machine: who may ask them, and what every answer carries.

Any user of the machine, and any site that a browser here has open, can connect to a port of
loopback. The first has no token, the second cannot send our Host or Origin.
"""

from __future__ import annotations

import secrets
import socketserver
from http.server import BaseHTTPRequestHandler

LOOPBACK = "127.0.0.1"
_NAMES = (LOOPBACK, "localhost")
_PATIENCE_SECONDS = 10
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
    """Whoever asks may not; the message says why."""


class LoopbackServer(socketserver.ThreadingTCPServer):
    """Listens on loopback; port 0: on any that is free.

    Raises:
        OSError: Something else listens there.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, handler: type[Handler]) -> None:
        super().__init__((LOOPBACK, port), handler)

    @property
    def port(self) -> int:
        """The one that it listens on."""
        return int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever hangs up is no matter of this program's user."""


class Handler(BaseHTTPRequestHandler):
    """Checks what is asked before `answer` does anything."""

    timeout = _PATIENCE_SECONDS

    def answer(self) -> None:
        """Answer what is allowed so far, or raise Refused."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """See `answer`."""
        self._checked()

    def do_POST(self) -> None:
        """See `answer`."""
        self._checked()

    def _checked(self) -> None:
        try:
            self._require_own_names()
            self.answer()
        except Refused as why:
            self.reply(403, "text/plain", f"{why}\n")

    def _require_own_names(self) -> None:
        """Refuse other sites: those whose name leads to this machine, and those that ask it."""
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
        """Send an answer. headers: with "_" for "-"."""
        body = text.encode(errors="replace") if isinstance(text, str) else text
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """Add what protects the page, to errors too."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def version_string(self) -> str:
        """Return the server's name; which Python it is nobody needs to know."""
        return "sirtaki"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal has other uses."""


def same(given: str, wanted: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell how far they are."""
    return secrets.compare_digest(given.encode(errors="replace"), wanted.encode())


def _short(text: str) -> str:
    return repr(text[:100]) if text else "unnamed"
