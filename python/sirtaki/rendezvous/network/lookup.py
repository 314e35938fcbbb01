"""Resolves a host in a thread of its own, because a name server may not answer for minutes."""

from __future__ import annotations

import socket
import threading
from typing import Any

from sirtaki.rendezvous.threads import start_thread

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


class Lookup:
    """A lookup of a host, started at once.

    host: a name, or an address, which is resolved immediately.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._found: list[Address] = []
        self._failure: Exception | None = None
        self._done = threading.Event()
        try:
            self._ask(socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            try:
                start_thread(self._ask_servers, "sirtaki-lookup")
            except OSError as error:
                self._failure = error
                self._done.set()
        else:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the answer; return whether it has arrived."""
        return self._done.wait(max(0.0, seconds))

    def addresses(self, port: int) -> list[Address]:
        """Return families and addresses, with `port`, after the answer. Raises OSError."""
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
    """Return the message for a host that no name server has resolved."""
    return f"no name server has answered where {host} is"
