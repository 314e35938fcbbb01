"""A thread that serves many connections without ever waiting for one of them."""

from __future__ import annotations

import collections
import contextlib
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.trust.sealing import Seal

_RECEIVE_BYTES = 1 << 18
# Connections that have proved nothing yet; beyond it the oldest goes.
_MOST_STRANGERS = 256
_PAUSE_WITHOUT_DESCRIPTORS = 0.05
_ADDRESSES_REMEMBERED = 256
_SILENCE_SECONDS = 60.0


class RejectionLog:
    """Says who was turned away, at most once a minute and address. write: takes a line."""

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = _to_stderr if write is None else write
        self._last: collections.OrderedDict[str, float] = collections.OrderedDict()

    def add(self, server: str, address: str, why: str) -> None:
        """Note one connection that was turned away."""
        now = time.monotonic()
        if now - self._last.get(address, -_SILENCE_SECONDS) < _SILENCE_SECONDS:
            return
        self._last[address] = now
        self._last.move_to_end(address)
        while len(self._last) > _ADDRESSES_REMEMBERED:
            self._last.popitem(last=False)
        with contextlib.suppress(OSError, ValueError):
            self._write(f"sirtaki: {server} turned away a connection from {address}: {why}")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Peer:
    """One connection: what has arrived, what is still to be sent, what it has proved."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.sock = sock
        self.address = address
        self.incoming = bytearray()
        self.outgoing = memoryview(b"")
        self.closing = False
        self.listener: auth.Listener | None = None
        self.answered = False
        self.claim = b""
        self.keys: auth.Keys | None = None
        self.seal = Seal()
        self.deadline = 0.0
        self.context: object = None
        self.handshaking = False
        self.released = False


S = TypeVar("S", bound="Server")


class Server:
    """A thread with listening sockets; what its connections say is for subclasses.

    listeners: bound and listening, owned from here on. name: of the server, in the log. guard:
    makes the authentication of one connection; None when the subclass's `admit` is enough. tls:
    whether connections are encrypted, from before the authentication on.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        name: str,
        guard: Callable[[], auth.Listener] | None = None,
        rejections: RejectionLog | None = None,
        tls: bool = False,
    ) -> None:
        self._listeners = list(listeners)
        self._name = name
        self._guard = guard
        self._tls = tls
        self._rejections = rejections or RejectionLog()
        self._strangers: collections.OrderedDict[Peer, None] = collections.OrderedDict()
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._thread: threading.Thread | None = None
        self._closed = False

    def __enter__(self: S) -> S:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Begin to answer, in a daemon thread."""
        for listener in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="sirtaki-server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering and hang up on everybody. Calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._wake_writer.close()
        if self._thread is not None:
            self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Peer):
                key.data.sock.close()
        self._selector.close()
        for listener in self._listeners:
            listener.close()
        self._wake_reader.close()

    # ---- For subclasses; all are called in the thread ----

    def admit(self, sock: socket.socket) -> bool:
        """Decide about a connection before anything is read from it."""
        return True

    def handle(self, peer: Peer) -> bool:
        """Look at `peer.incoming`, which has grown; False hangs up. ValueError: it is rejected."""
        raise NotImplementedError

    def forget(self, peer: Peer) -> None:
        """Drop what is remembered of a connection that ends."""

    def answer(self, peer: Peer, data: bytes) -> None:
        """Send the last that is to be said, then hang up."""
        peer.closing = True
        self._send(peer, data)

    def release(self, peer: Peer) -> socket.socket:
        """Take a connection out of the server's hands."""
        self._selector.unregister(peer.sock)
        peer.released = True
        return peer.sock

    # ---- The thread ----

    def _serve(self) -> None:
        while True:
            for key, events in self._selector.select(self._next_deadline()):
                if key.fileobj is self._wake_reader:
                    return
                if isinstance(key.data, Peer):
                    if key.data.sock.fileno() >= 0:
                        self._advance(key.data, events)
                elif isinstance(key.fileobj, socket.socket):
                    self._accept(key.fileobj)
            self._expire()

    def _next_deadline(self) -> float | None:
        for peer in self._strangers:
            return max(0.0, peer.deadline - time.monotonic())
        return None

    def _expire(self) -> None:
        now = time.monotonic()
        while self._strangers:
            peer = next(iter(self._strangers))
            if peer.deadline > now:
                return
            self._reject(peer, f"it proved nothing within {auth.SECONDS:g} s")

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, address = listener.accept()
        except BlockingIOError:
            return
        except OSError:
            # Out of descriptors: the connection stays in the queue, so make room for it.
            if self._strangers:
                self._reject(next(iter(self._strangers)), "too many connections")
            else:
                time.sleep(_PAUSE_WITHOUT_DESCRIPTORS)
            return
        if not self.admit(sock):
            sock.close()
            return
        sock.setblocking(False)
        if self._tls:
            from sirtaki.rendezvous.trust.tls import wrap_accepted

            try:
                sock = wrap_accepted(sock)
            except OSError:
                sock.close()  # it has gone already
                return
        peer = Peer(sock, _address_text(address))
        peer.handshaking = self._tls
        self._selector.register(sock, selectors.EVENT_READ, peer)
        if self._guard is None:
            return
        peer.listener = self._guard()
        peer.deadline = time.monotonic() + auth.SECONDS
        self._strangers[peer] = None
        if len(self._strangers) > _MOST_STRANGERS:
            self._reject(next(iter(self._strangers)), "too many connections at once")

    def _advance(self, peer: Peer, events: int) -> None:
        try:
            if peer.handshaking:
                self._shake(peer)
                return
            if events & selectors.EVENT_WRITE:
                self._send(peer, b"")
            if events & selectors.EVENT_READ:
                self._receive_all(peer)
        except BlockingIOError:
            pass
        except auth.AuthenticationError as error:
            with contextlib.suppress(OSError):
                peer.sock.send(error.answer)
            self._reject(peer, str(error))
        except ValueError as error:
            self._reject(peer, str(error))
        except OSError:
            self._drop(peer)

    def _shake(self, peer: Peer) -> None:
        """Go on with the handshake of TLS; our side of it fits into the socket's buffer."""
        peer.sock.do_handshake()  # type: ignore[attr-defined]
        peer.handshaking = False

    def _receive_all(self, peer: Peer) -> None:
        """Read until there is no more; what TLS has read ahead, the selector does not see."""
        while not peer.closing and not peer.released:
            if not self._receive(peer):
                self._drop(peer)
                return
            if not self._tls:
                return

    def _receive(self, peer: Peer) -> bool:
        # A stranger's bytes are read only as far as its proof goes.
        limit = _RECEIVE_BYTES if peer.listener is None else _missing(peer)
        data = peer.sock.recv(limit)
        if not data:
            # One that has greeted well may have reached us at another of our addresses.
            if peer.listener is not None and peer.incoming:
                raise auth.NotAPeerError("it closed the connection in the middle of a message")
            return False
        peer.incoming += data
        if peer.listener is not None:
            return self._authenticate(peer, peer.listener)
        return self.handle(peer)

    def _authenticate(self, peer: Peer, listener: auth.Listener) -> bool:
        if not peer.answered and not auth.could_be_greeting(peer.incoming):
            raise auth.NotAPeerError("not a Sirtaki peer")
        if _missing(peer) > 0:
            return True
        message = bytes(peer.incoming)
        peer.incoming = bytearray()
        if not peer.answered:
            answer = listener.answer(message)
            peer.answered = True
            self._send(peer, answer)
            return True
        peer.claim = listener.accept(message)
        peer.keys = listener.keys()
        peer.seal = Seal(peer.keys)
        peer.listener = None
        del self._strangers[peer]
        return self.handle(peer)

    def _send(self, peer: Peer, data: bytes) -> None:
        """Send what was left and `data`, as far as the other side takes it now."""
        peer.outgoing = memoryview(bytes(peer.outgoing) + data) if data else peer.outgoing
        with contextlib.suppress(BlockingIOError):
            while peer.outgoing:
                peer.outgoing = peer.outgoing[peer.sock.send(peer.outgoing) :]
        if peer.outgoing:
            events = selectors.EVENT_WRITE if peer.closing else _BOTH
            self._selector.modify(peer.sock, events, peer)
        elif peer.closing:
            self._drop(peer)
        else:
            self._selector.modify(peer.sock, selectors.EVENT_READ, peer)

    def _reject(self, peer: Peer, why: str) -> None:
        if peer.sock.fileno() >= 0 and self._guard is not None:
            self._rejections.add(self._name, peer.address, why)
        self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        self._strangers.pop(peer, None)
        if peer.sock.fileno() < 0:
            return
        self.forget(peer)
        self._selector.unregister(peer.sock)
        peer.sock.close()


_BOTH = selectors.EVENT_READ | selectors.EVENT_WRITE


def _missing(peer: Peer) -> int:
    """How many bytes of a stranger's next message have not arrived."""
    whole = auth.PROOF_BYTES if peer.answered else auth.GREETING_BYTES
    return whole - len(peer.incoming)


def _address_text(address: object) -> str:
    return str(address[0]) if isinstance(address, tuple) else "this host"
