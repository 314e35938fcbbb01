"""Measures the connection of two hosts: one listens, the other connects.

After the token each request is a letter and a number: "P" with the number of messages to send
back, "S" to receive blocks, "R" with the milliseconds for which to send blocks. A block's first
byte tells whether another follows.
"""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import statistics
import struct
import threading
import time
from collections.abc import Sequence

from sirtaki.rendezvous.network.tcp_socket import Endpoint, format_endpoint, listen

TOKEN_BYTES = 32
CONNECT_SECONDS = 3.0
STALL_SECONDS = 10.0
_REQUEST = struct.Struct(">cQ")
_COUNT = struct.Struct(">Q")
_PING = b"ping    "
_PINGS = 100
_MOST_PINGS = 10_000
_BLOCK = 1 << 16
_MOST_MILLISECONDS = 60_000
# The best turn counts: a busy moment of a host does not make a link slow.
_TURNS = 3


class LinkListener(threading.Thread):
    """Serves one client that knows the token, at addresses of this host, for some seconds."""

    def __init__(self, addresses: Sequence[str], token: bytes, seconds: float) -> None:
        super().__init__(name="sirtaki-doctor-listener", daemon=True)
        self._token = token
        self._deadline = time.monotonic() + seconds
        self._sockets = []
        for address in addresses:
            with contextlib.suppress(OSError):
                self._sockets.append(listen(address))
        if not self._sockets:
            raise OSError(f"cannot listen on {', '.join(addresses)}")
        self.endpoints = [sock.getsockname()[:2] for sock in self._sockets]

    def run(self) -> None:
        """Serve until the client has come and gone, or the time is over."""
        with selectors.DefaultSelector() as selector:
            for sock in self._sockets:
                sock.setblocking(False)
                selector.register(sock, selectors.EVENT_READ)
            while (left := self._deadline - time.monotonic()) > 0:
                if any(self._serve(key.fileobj) for key, _ in selector.select(left)):
                    break
        self.close()

    def close(self) -> None:
        """Stop listening."""
        for sock in self._sockets:
            sock.close()

    def _serve(self, listener: object) -> bool:
        assert isinstance(listener, socket.socket)
        with contextlib.suppress(OSError):
            link, _ = listener.accept()
            with link:
                link.settimeout(CONNECT_SECONDS)
                if not hmac.compare_digest(_receive(link, TOKEN_BYTES), self._token):
                    return False
                link.sendall(b"!")
                _prepare(link)
                with contextlib.suppress(OSError):
                    serve(link)
                return True
        return False


def serve(link: socket.socket) -> None:
    """Serve the requests of the other side until it hangs up. Raises OSError."""
    while True:
        kind, number = _REQUEST.unpack(_receive(link, _REQUEST.size))
        if kind == b"P":
            for _ in range(min(number, _MOST_PINGS)):
                link.sendall(_receive(link, len(_PING)))
        elif kind == b"S":
            link.sendall(_COUNT.pack(_take_blocks(link)))
        elif kind == b"R":
            _send_blocks(link, min(number, _MOST_MILLISECONDS) / 1e3)
        else:
            raise OSError("a request that is none")


def measure(endpoints: Sequence[Endpoint], token: bytes, seconds: float) -> dict[str, object]:
    """Measure the connection to a listener, at the first of its endpoints that answers.

    Args:
        endpoints: Where it listens, the most likely first.
        token: Sent first, to authenticate.
        seconds: How long to send in each direction; 0 only to connect and to send small messages.

    Returns:
        ``source``, ``target``: addresses, ``refused``: why earlier endpoints did not answer,
        ``latency``: seconds of a small message and its answer, ``sends``, ``receives``: bytes per
        second, None if not measured, ``stalled``: why large messages did not pass.

    Raises:
        OSError: No endpoint answers.
    """
    refused: list[str] = []
    for endpoint in endpoints:
        try:
            link = _connect(endpoint, token)
        except OSError as error:
            refused.append(f"{format_endpoint(endpoint)}: {error.strerror or error}")
            continue
        with link:
            return {
                "source": link.getsockname()[0],
                "target": link.getpeername()[0],
                "refused": refused,
                **_figures(link, seconds),
            }
    raise OSError("; ".join(refused) or "there is no address to connect to")


def _connect(endpoint: Endpoint, token: bytes) -> socket.socket:
    link = socket.create_connection(endpoint, CONNECT_SECONDS)
    try:
        link.sendall(token)
        if _receive(link, 1) != b"!":
            raise OSError("somebody else listens there")
        _prepare(link)
    except BaseException:
        link.close()
        raise
    return link


def _figures(link: socket.socket, seconds: float) -> dict[str, object]:
    found: dict[str, object] = {"latency": None, "sends": None, "receives": None, "stalled": ""}
    try:
        found["latency"] = _round_trip(link)
        if seconds > 0:
            turns = range(_TURNS)
            found["sends"] = max(_send_rate(link, seconds / _TURNS) for _ in turns)
            found["receives"] = max(_receive_rate(link, seconds / _TURNS) for _ in turns)
    except TimeoutError:
        found["stalled"] = f"nothing moved for {STALL_SECONDS:g} s"
    except OSError as error:
        found["stalled"] = str(error.strerror or error)
    return found


def _round_trip(link: socket.socket) -> float:
    link.sendall(_REQUEST.pack(b"P", _PINGS))
    times = []
    for _ in range(_PINGS):
        begun = time.perf_counter()
        link.sendall(_PING)
        _receive(link, len(_PING))
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _send_rate(link: socket.socket, seconds: float) -> float:
    begun = time.perf_counter()
    link.sendall(_REQUEST.pack(b"S", 0))
    _send_blocks(link, seconds)
    (count,) = _COUNT.unpack(_receive(link, _COUNT.size))
    return float(count) / (time.perf_counter() - begun)


def _receive_rate(link: socket.socket, seconds: float) -> float:
    link.sendall(_REQUEST.pack(b"R", int(seconds * 1e3)))
    begun = time.perf_counter()
    return _take_blocks(link) / (time.perf_counter() - begun)


def _send_blocks(link: socket.socket, seconds: float) -> None:
    deadline = time.perf_counter() + seconds
    block, last = b"\1" + bytes(_BLOCK - 1), bytes(_BLOCK)
    while time.perf_counter() < deadline:
        link.sendall(block)
    link.sendall(last)


def _take_blocks(link: socket.socket) -> int:
    block = memoryview(bytearray(_BLOCK))
    count = 0
    while True:
        at = 0
        while at < _BLOCK:
            got = link.recv_into(block[at:])
            if got == 0:
                raise ConnectionResetError("the other side has left")
            at += got
        count += _BLOCK
        if block[0] == 0:
            return count


def _prepare(link: socket.socket) -> None:
    link.settimeout(STALL_SECONDS)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _receive(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = link.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the other side has left")
        data += part
    return data
