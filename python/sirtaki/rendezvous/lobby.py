"""Where a rank is connected to by ranks of other hosts, and how it connects to them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sirtaki.rendezvous import auth, local_socket, tcp_socket
from sirtaki.rendezvous.dial import dial
from sirtaki.rendezvous.serving import Peer, RejectionLog, Server
from sirtaki.rendezvous.tcp_socket import Endpoint, format_endpoint
from sirtaki.rendezvous.tcp_store import listener_claim

if TYPE_CHECKING:
    from sirtaki.rendezvous.relay import Relay

CONTROL = 1
DATA = 2

# World, rank of the dialer, rank of the listener, purpose, lane.
_HELLO = struct.Struct("!16sIIBI3x")
_WELCOME = b"\x01"
# A control link carries heartbeats and is always read, so bytes that stay unsent mean a lost peer.
# On a data link they may also mean that the other rank has been stopped for a while.
_UNSENT_SECONDS = {CONTROL: 4.0, DATA: 30.0}
_FLUSH_SECONDS = 5.0
_NAMES = {CONTROL: "control", DATA: "data"}


class Lobby(Server):
    """The listening sockets of a rank, and who has come through them.

    rank, size: of this world. prefix: what makes the world unlike others of the job. addresses:
    numeric ones of this host. timeout: seconds for one connection. log: takes one line for a
    connection that is turned away. tls: whether to encrypt. Connections wait until `open`. Raises
    OSError when none of the addresses can be listened on.
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
    ) -> None:
        listeners = _listen(addresses)
        name = f"rank {rank} ({socket.gethostname()})"
        super().__init__(listeners, name, self._guard_one, RejectionLog(log), tls)
        self.endpoints: list[Endpoint] = [sock.getsockname()[:2] for sock in listeners]
        self._rank = rank
        self._size = size
        self._world = hashlib.sha256(prefix.encode()).digest()[:16]
        self._timeout = timeout
        self._secret = b""
        self._names: Sequence[str] = ["unknown host"] * size
        self._peers: Mapping[int, Sequence[Endpoint]] = {}
        self._arrived: dict[tuple[int, int, int], socket.socket] = {}
        self._taken: dict[tuple[int, int, int], _Connected] = {}
        self._changed = threading.Condition()
        self._relays: list[Relay] = []

    def open(self, secret: bytes) -> None:
        """Begin to take connections of those who know the job's secret; once only."""
        self._secret = secret
        self.start()

    def introduce(self, peers: Mapping[int, Sequence[Endpoint]], names: Sequence[str]) -> None:
        """Tell where each other rank listens, and the name of each rank's host."""
        self._peers = peers
        self._names = names

    def connect(self, rank: int, lane: int) -> int:
        """Return a connected, non-blocking data socket to `rank`, which asks for the same.

        The higher rank dials, the lower one waits. The caller owns the descriptor. Raises
        TimeoutError, ConnectionError naming the rank, its host and what was tried.
        """
        return self.link(DATA, rank, lane)

    def link(self, purpose: int, rank: int, lane: int) -> int:
        """Do as `connect` for either purpose."""
        deadline = time.monotonic() + self._timeout
        if rank < self._rank:
            sock = self._dial(purpose, rank, lane, deadline)
        else:
            sock = self._take(purpose, rank, lane, deadline)
        with contextlib.ExitStack() as undo:
            undo.callback(sock.close)
            tcp_socket.tune(sock, _UNSENT_SECONDS[purpose])
            if self._tls:
                sock = self._decrypted(sock)
                self._taken[purpose, rank, lane] = _Connected(sock)
            sock.setblocking(False)
            undo.pop_all()
        return sock.detach()

    def close(self) -> None:
        """Stop listening; connections that nobody has asked for are closed.

        What was sent on encrypted ones gets to the other end first, for up to 5 s.
        """
        deadline = time.monotonic() + _FLUSH_SECONDS
        for relay in self._relays:
            relay.finish(deadline)
        self._relays.clear()
        super().close()
        with self._changed:
            for sock in self._arrived.values():
                sock.close()
            self._arrived.clear()
            self._changed.notify_all()

    def handle(self, peer: Peer) -> bool:
        """See `Server.handle`: a peer that has proved itself and said what it wants."""
        if peer.incoming:
            raise ValueError("it spoke before it was welcome")
        world, source, target, purpose, lane = _HELLO.unpack(peer.claim)
        key = (purpose, source, lane)
        if world != self._world or target != self._rank:
            raise ValueError("it looks for a rank of another world, or for another rank")
        if not self._rank < source < self._size or purpose not in _NAMES:
            raise ValueError(f"rank {source} is not to connect to rank {self._rank}")
        if self._is_connected(key):
            raise ValueError(f"{_NAMES[purpose]} lane {lane} of rank {source} is connected already")
        peer.sock.send(_WELCOME)
        with self._changed:
            if key in self._arrived:
                self._arrived.pop(key).close()
            self._arrived[key] = self.release(peer)
            self._changed.notify_all()
        return True

    def _is_connected(self, key: tuple[int, int, int]) -> bool:
        """Tell whether a lane is in use; one that either end has closed may be opened again."""
        with self._changed:
            if key in self._arrived:
                return _Connected(self._arrived[key]).is_open()
            return key in self._taken and self._taken[key].is_open()

    def _guard_one(self) -> auth.Listener:
        claim = listener_claim(self._tls)
        return auth.Listener(self._secret, auth.LOBBY, auth.own_identity(), claim)

    def _decrypted(self, sock: socket.socket) -> socket.socket:
        from sirtaki.rendezvous.relay import Relay
        from sirtaki.rendezvous.tls import TlsSocket

        assert isinstance(sock, TlsSocket)
        relay = Relay(sock)
        self._relays.append(relay)
        return relay.socket

    def _dial(self, purpose: int, rank: int, lane: int, deadline: float) -> socket.socket:
        hello = _HELLO.pack(self._world, self._rank, rank, purpose, lane)
        who = f"{self._describe(rank)} from rank {self._rank} ({socket.gethostname()})"
        sock = dial(
            self._peers[rank],
            lambda: auth.Dialer(self._secret, auth.LOBBY, auth.own_identity(), hello),
            who,
            deadline,
            tls=self._tls,
        )
        try:
            local_socket.receive_exactly(sock, len(_WELCOME), deadline)
        except BaseException as error:
            sock.close()
            if isinstance(error, ConnectionError):
                raise ConnectionError(f"{self._describe(rank)} refused our connection") from error
            raise
        return sock

    def _take(self, purpose: int, rank: int, lane: int, deadline: float) -> socket.socket:
        key = (purpose, rank, lane)
        with self._changed:
            self._changed.wait_for(
                lambda: key in self._arrived or self._closed, deadline - time.monotonic()
            )
            if key in self._arrived:
                sock = self._arrived.pop(key)
                self._taken[key] = _Connected(sock)
                return sock
        offered = ", ".join(map(format_endpoint, self.endpoints))
        raise TimeoutError(
            f"{self._describe(rank)} did not connect to rank {self._rank} "
            f"({socket.gethostname()}), which listens on {offered}, within {self._timeout:g} s"
        )

    def _describe(self, rank: int) -> str:
        return f"rank {rank} ({self._names[rank]})"


class _Connected:
    """Remembers a connection whose descriptor then belongs to somebody else."""

    def __init__(self, sock: socket.socket) -> None:
        self._descriptor = sock.fileno()
        self._inode = os.fstat(self._descriptor).st_ino

    def is_open(self) -> bool:
        """Tell whether neither end has closed it."""
        try:
            copy = os.dup(self._descriptor)  # it cannot become another one's while we look
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
            # An address may have gone, or not be ready, without being needed.
            failure = error
    if not listeners:
        raise failure
    return listeners
