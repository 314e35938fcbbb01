"""A thread that serves many connections and never blocks on one of them."""

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

from sirtaki.rendezvous.threads import Lasting, start_thread
from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.trust.auth import Seal

_RECEIVE_BYTES = 1 << 18
# The most unauthenticated connections; beyond it the oldest is closed.
_MOST_STRANGERS = 256
_PAUSE_WITHOUT_DESCRIPTORS = 0.05
_ADDRESSES_REMEMBERED = 256
_SILENCE_SECONDS = 60.0


class RejectionLog:
    """Logs rejected connections, at most once per minute and address. write: takes a line."""

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = _to_stderr if write is None else write
        self._last: collections.OrderedDict[str, float] = collections.OrderedDict()

    def add(self, server: str, address: str, why: str) -> None:
        """Record a rejected connection."""
        now = time.monotonic()
        if now - self._last.get(address, -_SILENCE_SECONDS) < _SILENCE_SECONDS:
            return
        self._last[address] = now
        self._last.move_to_end(address)
        while len(self._last) > _ADDRESSES_REMEMBERED:
            self._last.popitem(last=False)
        with contextlib.suppress(OSError, ValueError):
            self.say(f"{server} turned away a connection from {address}: {why}")

    def say(self, text: str) -> None:
        """Write a line."""
        self._write(f"sirtaki: {text}")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Peer:
    """One connection: received bytes, bytes to send, and the state of its authentication."""

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
    """A thread with listening sockets; subclasses handle the data of its connections.

    listeners: bound and listening, owned from here on. name: of the server, in the log. guard:
    makes the authentication of one connection; None when the subclass's `admit` is enough. tls:
    whether connections are encrypted, including the authentication.
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
        self._lasting = Lasting(name, self._rejections.say)
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
        """Start to serve, in a daemon thread."""
        for listener in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._thread = start_thread(self._serve, "sirtaki-server")

    def close(self) -> None:
        """Stop serving and close all connections. Another call has no effect."""
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
        """Return whether to accept a connection, before anything is read from it."""
        return True

    def handle(self, peer: Peer) -> bool:
        """Process `peer.incoming`, which has grown; False hangs up. ValueError rejects it."""
        raise NotImplementedError

    def forget(self, peer: Peer) -> None:
        """Drop the state of a connection that ends."""

    def answer(self, peer: Peer, data: bytes) -> None:
        """Send the last message, then hang up."""
        peer.closing = True
        self._send(peer, data)

    def release(self, peer: Peer) -> socket.socket:
        """Remove a connection from the server and return its socket."""
        self._selector.unregister(peer.sock)
        peer.released = True
        return peer.sock

    # ---- The thread ----

    def _serve(self) -> None:
        while not self._closed:
            with self._lasting:
                for key, events in self._selector.select(self._next_deadline()):
                    if isinstance(key.data, Peer):
                        if key.data.sock.fileno() >= 0:
                            self._advance(key.data, events)
                    elif isinstance(key.fileobj, socket.socket) and not self._closed:
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
            # No descriptor is free: the connection stays in the queue, so make room for it.
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
        except Exception as error:  # after any error, serve the others
            self._lasting.note(error)
            self._drop(peer)

    def _shake(self, peer: Peer) -> None:
        """Continue the TLS handshake; our side of it fits into the socket's buffer."""
        peer.sock.do_handshake()  # type: ignore[attr-defined]
        peer.handshaking = False

    def _receive_all(self, peer: Peer) -> None:
        """Read until nothing is left: the selector does not see data buffered by TLS."""
        while not peer.closing and not peer.released:
            if not self._receive(peer):
                self._drop(peer)
                return
            if not self._tls:
                return

    def _receive(self, peer: Peer) -> bool:
        # Before the authentication only the bytes of the next message are read.
        limit = _RECEIVE_BYTES if peer.listener is None else _missing(peer)
        data = peer.sock.recv(limit)
        if not data:
            # After a valid greeting, it may have connected at another of our addresses.
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
        """Send the rest and `data`, as far as the socket accepts them now."""
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
        try:
            self.forget(peer)
        finally:
            self._selector.unregister(peer.sock)
            peer.sock.close()


_BOTH = selectors.EVENT_READ | selectors.EVENT_WRITE


def _missing(peer: Peer) -> int:
    """Return how many bytes of the next message of an authentication are missing."""
    whole = auth.PROOF_BYTES if peer.answered else auth.GREETING_BYTES
    return whole - len(peer.incoming)


def _address_text(address: object) -> str:
    return str(address[0]) if isinstance(address, tuple) else "this host"
