"""Where a host is, found out in a thread of its own: a name server may not answer for minutes."""

from __future__ import annotations

import socket
import threading
from typing import Any

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


class Lookup:
    """The question where a host is, asked at once.

    host: a name, or an address, whose answer is there at once.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._found: list[Address] = []
        self._failure: Exception | None = None
        self._done = threading.Event()
        try:
            self._ask(socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            threading.Thread(target=self._ask_servers, name="sirtaki-lookup", daemon=True).start()
        else:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the answer for so long at most; tell whether it is there."""
        return self._done.wait(max(0.0, seconds))

    def addresses(self, port: int) -> list[Address]:
        """Return families and addresses, with `port`, once the answer is there. Raises OSError."""
        if self._failure is not None:
            raise self._failure
        return [(family, (ip, port, *more)) for family, (ip, _port, *more) in self._found]

    def _ask(self, flags: int = 0) -> None:
        found = socket.getaddrinfo(self._host, 0, type=socket.SOCK_STREAM, flags=flags)
        self._found = [(family, address) for family, _kind, _protocol, _name, address in found]

    def _ask_servers(self) -> None:
        try:
            self._ask()
        except OSError as error:
            self._failure = error
        except Exception as error:
            self._failure = OSError(f"{self._host!r} is not the name of a host: {error}")
        self._done.set()


def unanswered(host: str) -> str:
    """Say for people that nobody has told where a host is."""
    return f"no name server has answered where {host} is"
