"""A plain socket in front of a TLS connection, for the core, which has no TLS."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time

from sirtaki.rendezvous.network import tcp_socket
from sirtaki.rendezvous.trust.tls import TlsSocket

_CHUNK_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 20
_FLUSH_SECONDS = 5.0
_LOOK_MILLISECONDS = 250


class _Direction:
    """The transfer of bytes from one socket to another."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.waiting = bytearray()
        self.ended = False
        self.sent = False
        self.passed = 0
        self.reason = ""

    def room(self) -> bool:
        return not self.ended and len(self.waiting) < _BUFFER_BYTES

    def move(self) -> None:
        """Receive and send as much as possible without blocking."""
        try:
            while self.room():
                data = self.source.recv(_CHUNK_BYTES)
                self.ended = not data
                self.waiting += data
        except BlockingIOError:
            pass
        except OSError as error:
            self.reason = _text(error)
            self.ended = True
        try:
            while self.waiting:
                with memoryview(self.waiting)[:_CHUNK_BYTES] as chunk:
                    sent = self.target.send(chunk)
                del self.waiting[:sent]
                self.passed += sent
                self.sent = True
        except BlockingIOError:
            pass
        except OSError:
            # The other direction notices that the target is gone.
            self.waiting.clear()


class Relay:
    """A daemon thread that moves bytes between `secure`, which it then owns, and a plain socket.

    socket: the plain one's other end, for the caller. When one side ends, the other sees the end of
    its stream; `reason` explains an end that was not a close. silent_seconds: see
    `tcp_socket.is_silent`. pair: the plain socket and its other end, if the caller has made them.
    """

    def __init__(
        self,
        secure: TlsSocket,
        silent_seconds: float = tcp_socket.SILENT_SECONDS,
        pair: tuple[socket.socket, socket.socket] | None = None,
    ) -> None:
        self._plain, self.socket = pair or socket.socketpair()
        self.reason = ""
        self._secure = secure
        self._silent = silent_seconds
        self._sockets = (secure, self._plain)
        self._directions = (_Direction(secure, self._plain), _Direction(self._plain, secure))
        self._thread = threading.Thread(target=self._run, name="sirtaki-tls", daemon=True)
        self._thread.start()

    @property
    def passed(self) -> int:
        """How many of the caller's bytes have left this process."""
        return self._directions[1].passed

    @property
    def ended(self) -> bool:
        """Whether it has stopped moving bytes."""
        return not self._thread.is_alive()

    def finish(self, deadline: float) -> None:
        """Forward what the caller has sent, as far as possible by `deadline`, and hang up.

        deadline: of `time.monotonic()`. The caller may have closed its end before.
        """
        with contextlib.suppress(OSError):
            # Bytes sent before can still be received, but no new ones.
            self._plain.shutdown(socket.SHUT_RDWR)
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        with self._secure, self._plain, contextlib.suppress(OSError):
            self._secure.setblocking(False)
            self._plain.setblocking(False)
            self._move()
            self.reason = self.reason or self._directions[0].reason
            self._flush()

    def _move(self) -> None:
        """Move bytes both ways until one side has ended."""
        poll = select.poll()
        outgoing = self._directions[1]
        while not any(way.ended for way in self._directions):
            for way in self._directions:
                way.move()
            for sock, (reads, writes) in zip(
                self._sockets, (self._directions, self._directions[::-1]), strict=True
            ):
                wanted = select.POLLIN if reads.room() else 0
                poll.register(sock, wanted | (select.POLLOUT if writes.waiting else 0))
            if any(way.ended for way in self._directions):
                return
            if not poll.poll(_LOOK_MILLISECONDS if outgoing.sent else None):
                if tcp_socket.is_silent(self._secure, self._silent):
                    self.reason = "no answer from the other host"
                    outgoing.waiting.clear()  # nobody will receive it
                    return
                outgoing.sent = not tcp_socket.all_acknowledged(self._secure)

    def _flush(self) -> None:
        """Forward the remaining bytes; the caller may be slow, another host may be gone."""
        incoming, outgoing = self._directions
        for way, seconds in ((outgoing, _FLUSH_SECONDS), (incoming, None)):
            with contextlib.suppress(OSError):
                way.target.settimeout(seconds)
                way.target.sendall(way.waiting)


def _text(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS reports {error.reason or error}"
    return error.strerror or str(error)
