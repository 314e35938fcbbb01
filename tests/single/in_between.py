"""A man in the middle, for a rank that runs with him: all that it connects to goes through him."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable
from typing import Any


def stand_between(alter: Callable[[bytes], bytes]) -> None:
    """Relay every connection that this process dials from now on.

    alter: what arrives from the other end, before this process gets it.
    """
    connect_ex = socket.socket.connect_ex
    ways: dict[Any, Any] = {}

    def redirected(sock: socket.socket, address: Any) -> int:
        if sock.family == socket.AF_INET6:
            return errno.ECONNREFUSED
        if sock.family == socket.AF_INET and address not in ways.values():
            if address not in ways:
                ways[address] = _relay(address, alter)
            address = ways[address]
        return connect_ex(sock, address)

    socket.socket.connect_ex = redirected  # type: ignore[method-assign]


def _relay(target: Any, alter: Callable[[bytes], bytes]) -> Any:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            here, _ = listener.accept()
            there = socket.create_connection(target)
            for way in ((here, there, bytes), (there, here, alter)):
                threading.Thread(target=_pump, args=way, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()


def _pump(
    source: socket.socket, destination: socket.socket, alter: Callable[[bytes], bytes]
) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            destination.sendall(alter(data))
    for sock in (source, destination):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
