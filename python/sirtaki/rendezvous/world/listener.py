"""A rank accepts connections from ranks of other hosts, and connects to them."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sirtaki.rendezvous.network import tcp_socket
from sirtaki.rendezvous.network.dial import dial, never
from sirtaki.rendezvous.network.serving import Peer, RejectionLog, Server
from sirtaki.rendezvous.network.tcp_socket import Endpoint, format_endpoint
from sirtaki.rendezvous.stores.tcp_store import listener_claim
from sirtaki.rendezvous.trust import auth, digests
from sirtaki.rendezvous.trust.auth import AlteredError, Seal

if TYPE_CHECKING:
    from sirtaki.rendezvous.network.tls_relay import Relay

CONTROL = 1
DATA = 2

# World, generation, rank of the dialer, rank of the listener, purpose, number.
_HELLO = struct.Struct("!12sIIIBI3x")
_WORLD_BYTES = 12
_WELCOME = b"\x01"
_LOOK_SECONDS = 0.1
_FLUSH_SECONDS = 5.0
_NAMES = {CONTROL: "control", DATA: "data"}
_LINK_LABELS = {CONTROL: b"sirtaki control link\0", DATA: b"sirtaki data link\0"}
_LINK_KEY_BYTES = 16


class ControlLink(NamedTuple):
    """A connection for the core: the other rank, the descriptor, and both directions' keys."""

    rank: int
    descriptor: int
    sending: bytes
    receiving: bytes

    def __repr__(self) -> str:
        return auth.repr_without(self, "sending", "receiving")


class DataLink(NamedTuple):
    """A connection for data: the descriptor, and the keys of both directions."""

    descriptor: int
    sending: bytes
    receiving: bytes

    def __repr__(self) -> str:
        return auth.repr_without(self, "sending", "receiving")


class _Key(NamedTuple):
    """The key of a connection: generation, purpose, other rank, and number."""

    generation: int
    purpose: int
    rank: int
    number: int


class RankListener(Server):
    """The listening sockets of a rank, and the connections accepted on them.

    rank, size: of this world. prefix: distinguishes the world from others of the job. addresses:
    numeric ones of this host. timeout: seconds for one connection. log: takes a line for each
    rejected connection. tls: whether to encrypt. silent_seconds: how long a host may be silent; 0:
    for ever. Connections wait until `open`. Raises OSError when it can listen on no address.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        prefix: str,
        addresses: Sequence[str],
        timeout: float,
        log: Callable[[str], None] | None = None,
        tls: bool = False,
        silent_seconds: float = tcp_socket.SILENT_SECONDS,
    ) -> None:
        listeners = _listen(addresses)
        name = f"rank {rank} ({socket.gethostname()})"
        super().__init__(listeners, name, self._guard_one, RejectionLog(log), tls)
        self.endpoints: list[Endpoint] = [sock.getsockname()[:2] for sock in listeners]
        self._rank = rank
        self._size = size
        self._world = digests.sha256(prefix.encode())[:_WORLD_BYTES]
        self._generation = 1
        self._timeout = timeout
        self._silent = silent_seconds
        self._secret = b""
        self._names: Sequence[str] = ["unknown host"] * size
        self._peers: Mapping[int, Sequence[Endpoint]] = {}
        self._arrived: dict[_Key, tuple[socket.socket, auth.Keys]] = {}
        self._taken: dict[_Key, _Connected] = {}
        self._changed = threading.Condition()
        self._relays: list[tuple[int, Relay]] = []

    def open(self, secret: bytes) -> None:
        """Start to accept connections from processes with the job's secret; once only."""
        self._secret = secret
        self.start()

    def introduce(self, peers: Mapping[int, Sequence[Endpoint]], names: Sequence[str]) -> None:
        """Set the endpoints of the other ranks, and the name of each rank's host."""
        self._peers = peers
        self._names = names

    def begin(self, generation: int) -> None:
        """Connect for engine number `generation` from now on; close connections of earlier engines.

        Ranks that are ahead may have connected for it already.
        """
        with self._changed:
            self._generation = generation
            self._taken.clear()
            self._relays = [(to, relay) for to, relay in self._relays if not relay.ended]
            for key in [key for key in self._arrived if key.generation < generation]:
                self._arrived.pop(key)[0].close()

    def connect(self, rank: int, number: int, ended: Callable[[], bool] = never) -> DataLink:
        """Connect a non-blocking data socket to `rank`, which calls this too.

        The higher rank dials, the lower one waits, both only until `ended()` is true. The caller
        owns the descriptor. Raises TimeoutError, ConnectionError naming the rank, its host and the
        addresses tried.
        """
        return DataLink(*self._connect(DATA, rank, number, ended))

    def control_link(self, rank: int) -> ControlLink:
        """Connect as `connect` does, for control messages."""
        return ControlLink(rank, *self._connect(CONTROL, rank, 0, never))

    def _connect(
        self, purpose: int, rank: int, number: int, ended: Callable[[], bool]
    ) -> tuple[int, bytes, bytes]:
        deadline = time.monotonic() + self._timeout
        if rank < self._rank:
            sock, keys = self._dial(purpose, rank, number, deadline, ended)
        else:
            sock, keys = self._take(purpose, rank, number, deadline, ended)
        with contextlib.ExitStack() as undo:
            undo.callback(sock.close)
            # A control link carries heartbeats and is always read, so bytes that stay unsent mean a
            # lost peer. On a data link the other rank may only be stopped for a while; a rank that
            # waits for it checks whether its host still answers.
            unsent = self._silent if purpose == CONTROL else 0.0
            tcp_socket.tune(sock, unsent, self._silent)
            if self._tls:
                sock = self._decrypted(rank, sock)
                self._taken[_Key(self._generation, purpose, rank, number)] = _Connected(sock)
            sock.setblocking(False)
            undo.pop_all()
        label = _LINK_LABELS[purpose]
        return sock.detach(), _link_key(keys.sending, label), _link_key(keys.receiving, label)

    def why_broken(self, rank: int) -> str:
        """Return what ended an encrypted connection to `rank`, "" if that is unknown."""
        return next((relay.reason for to, relay in self._relays if to == rank and relay.reason), "")

    def close(self) -> None:
        """Stop listening, and close connections that no caller has taken.

        Encrypted connections first deliver the bytes sent on them, for up to 5 s.
        """
        deadline = time.monotonic() + _FLUSH_SECONDS
        for _rank, relay in self._relays:
            relay.finish(deadline)
        self._relays.clear()
        super().close()
        with self._changed:
            for sock, _ in self._arrived.values():
                sock.close()
            self._arrived.clear()
            self._changed.notify_all()

    def handle(self, peer: Peer) -> bool:
        """See `Server.handle`: handles the hello of an authenticated peer."""
        if peer.incoming:
            raise ValueError("it spoke before it was welcome")
        world, generation, source, target, purpose, number = _HELLO.unpack(peer.claim)
        key = _Key(generation, purpose, source, number)
        if world != self._world or target != self._rank:
            raise ValueError("it looks for a rank of another world, or for another rank")
        if not self._rank < source < self._size or purpose not in _NAMES:
            raise ValueError(f"rank {source} is not to connect to rank {self._rank}")
        # Under the lock, so that `begin` sees every welcomed connection.
        with self._changed:
            self._welcome(peer, key)
        return True

    def _welcome(self, peer: Peer, key: _Key) -> None:
        if key.generation < self._generation:
            raise ValueError(f"rank {key.rank} connects for an engine that has ended")
        if self._is_connected(key):
            connection = f"{_NAMES[key.purpose]} connection {key.number}"
            raise ValueError(f"{connection} of rank {key.rank} is there already")
        assert peer.keys is not None
        peer.sock.send(peer.seal.sealed(0, _WELCOME))
        if key in self._arrived:
            self._arrived.pop(key)[0].close()
        self._arrived[key] = self.release(peer), peer.keys
        self._changed.notify_all()

    def _is_connected(self, key: _Key) -> bool:
        """Return whether a connection is in use; one that an end has closed may be opened again."""
        if key in self._arrived:
            return _Connected(self._arrived[key][0]).is_open()
        return key in self._taken and self._taken[key].is_open()

    def _guard_one(self) -> auth.Listener:
        claim = listener_claim(self._tls)
        return auth.Listener(self._secret, auth.RANK, auth.own_identity(), claim)

    def _decrypted(self, rank: int, sock: socket.socket) -> socket.socket:
        from sirtaki.rendezvous.network.tls_relay import Relay
        from sirtaki.rendezvous.trust.tls import TlsSocket

        assert isinstance(sock, TlsSocket)
        relay = Relay(sock, self._silent)
        self._relays.append((rank, relay))
        return relay.socket

    def _dial(
        self, purpose: int, rank: int, number: int, deadline: float, ended: Callable[[], bool]
    ) -> tuple[socket.socket, auth.Keys]:
        hello = _HELLO.pack(self._world, self._generation, self._rank, rank, purpose, number)
        who = f"{self._describe(rank)} from rank {self._rank} ({socket.gethostname()})"
        sock, keys = dial(
            self._peers[rank],
            lambda: auth.Dialer(self._secret, auth.RANK, auth.own_identity(), hello),
            who,
            deadline,
            tls=self._tls,
            ended=ended,
            answer_seconds=self._silent or float("inf"),
        )
        with contextlib.ExitStack() as undo:
            undo.callback(sock.close)
            # Only the welcome is in flight so far, so a silent host is lost.
            tcp_socket.tune(sock, self._silent, self._silent)
            self._await_welcome(sock, Seal(keys), rank, deadline, ended)
            undo.pop_all()
        return sock, keys

    def _await_welcome(
        self,
        sock: socket.socket,
        seal: Seal,
        rank: int,
        deadline: float,
        ended: Callable[[], bool],
    ) -> None:
        sock.settimeout(_LOOK_SECONDS)
        missing = len(_WELCOME) + seal.tag_bytes
        welcome = b""
        while missing:
            try:
                welcome += self._some(sock, missing)
                missing = len(_WELCOME) + seal.tag_bytes - len(welcome)
                continue
            except ConnectionError as error:
                raise ConnectionError(f"{self._describe(rank)} refused our connection") from error
            except TimeoutError as error:
                if error.errno is not None:
                    raise  # an error of the network itself
            if ended():
                raise ConnectionError("the world has ended")
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{self._describe(rank)} does not answer our connection")
        try:
            seal.opened(0, welcome)
        except AlteredError as error:
            raise AlteredError(f"the welcome of {self._describe(rank)}: {error}") from error

    @staticmethod
    def _some(sock: socket.socket, most: int) -> bytes:
        data = sock.recv(most)
        if not data:
            raise ConnectionError("it closed the connection")
        return data

    def _take(
        self, purpose: int, rank: int, number: int, deadline: float, ended: Callable[[], bool]
    ) -> tuple[socket.socket, auth.Keys]:
        key = _Key(self._generation, purpose, rank, number)
        with self._changed:
            while not self._closed and not ended() and time.monotonic() < deadline:
                if key in self._arrived:
                    break
                self._changed.wait(_LOOK_SECONDS)
            if key in self._arrived:
                sock, keys = self._arrived.pop(key)
                self._taken[key] = _Connected(sock)
                return sock, keys
        if ended():
            raise ConnectionError(f"the world ended before {self._describe(rank)} connected")
        offered = ", ".join(map(format_endpoint, self.endpoints))
        raise TimeoutError(
            f"{self._describe(rank)} did not connect to rank {self._rank} "
            f"({socket.gethostname()}), which listens on {offered}, within {self._timeout:g} s"
        )

    def _describe(self, rank: int) -> str:
        return f"rank {rank} ({self._names[rank]})"


def _link_key(key: bytes, label: bytes) -> bytes:
    return digests.keyed(key, label)[:_LINK_KEY_BYTES]


class _Connected:
    """Refers to a connection whose descriptor has passed to another owner."""

    def __init__(self, sock: socket.socket) -> None:
        self._descriptor = sock.fileno()
        self._inode = os.fstat(self._descriptor).st_ino

    def is_open(self) -> bool:
        """Return whether neither end has closed it."""
        try:
            copy = os.dup(self._descriptor)  # a copy cannot be closed and reused during the check
        except OSError:
            return False
        try:
            poll = select.poll()
            poll.register(copy, select.POLLRDHUP)
            return os.fstat(copy).st_ino == self._inode and not poll.poll(0)
        finally:
            os.close(copy)


def _listen(addresses: Sequence[str]) -> list[socket.socket]:
    listeners: list[socket.socket] = []
    failure = OSError("this host has no address to listen on")
    for address in addresses:
        try:
            listeners.append(tcp_socket.listen(address))
        except OSError as error:
            # An address that is gone, or not ready, may not be needed.
            failure = error
    if not listeners:
        raise failure
    return listeners
