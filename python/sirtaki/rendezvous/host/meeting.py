"""The meeting point of one host's ranks and their leader, and their messages."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

from sirtaki.rendezvous.network import local_socket
from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.trust import digests

_LENGTH = struct.Struct("!I")
_MOST_BYTES = 64 << 20
RETRY_SECONDS = 0.01
_FIRST_PAUSE_SECONDS = 0.0005


class HostMeeting:
    """An abstract Unix socket on which the leader of a host waits for the other ranks there.

    With a secret its name is derived from `key`, which nobody else can guess, without the store.
    Without a secret the leader puts a random name in the store. key: used once only.
    """

    def __init__(self, store: Store, key: str, secret: bytes | None) -> None:
        self._store = store
        self._key = key
        self._name = "" if secret is None else "@sirtaki-" + _derived(secret, key)

    def listen(self) -> socket.socket:
        """Start to listen, as the leader. Raises ValueError when another leader does already."""
        try:
            listener, name = local_socket.listen(self._name)
        except OSError as error:
            raise ValueError(
                f"two ranks of this host have local rank 0 ({error}); do two of the launcher's "
                "hosts run on this machine? Then they need different host names"
            ) from error
        if not self._name:
            self._store.set(self._key, name.encode())
        return listener

    def connect(self, deadline: float) -> socket.socket:
        """Connect to the leader. Raises TimeoutError, ConnectionError, PermissionError."""
        if not self._name:
            name = self._store.get(self._key, max(0.0, deadline - time.monotonic())).decode()
            return local_socket.connect(name, deadline)
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return local_socket.connect(self._name, deadline)
            except ConnectionRefusedError:
                if time.monotonic() + pause >= deadline:
                    raise TimeoutError("no such rank came on this host") from None
                time.sleep(pause)
                pause = min(1.5 * pause, RETRY_SECONDS)


def _derived(secret: bytes, key: str) -> str:
    return digests.keyed(secret, b"sirtaki meeting of a host\0" + key.encode()).hex()


def send(sock: socket.socket, message: bytes, deadline: float) -> None:
    """Send one message of at most 64 MiB. Raises TimeoutError, ConnectionError."""
    local_socket.set_deadline(sock, deadline)
    sock.sendall(_LENGTH.pack(len(message)) + message)


def receive(sock: socket.socket, deadline: float) -> bytes:
    """Receive one message. Raises TimeoutError, ConnectionError."""
    header = local_socket.receive_exactly(sock, _LENGTH.size, deadline)
    (length,) = _LENGTH.unpack(header)
    if length > _MOST_BYTES:
        raise ConnectionError(f"a message of {length} bytes is not allowed")
    return local_socket.receive_exactly(sock, length, deadline)


class Gathering:
    """The leader's side: the connections of the ranks that have come.

    expected: whether any rank has to come.
    """

    def __init__(self, meeting: HostMeeting, expected: bool) -> None:
        self._listener = meeting.listen() if expected else None
        self._come: list[socket.socket] = []

    def next(self, deadline: float) -> tuple[socket.socket, bytes]:
        """Return the next rank that comes and its message. Raises TimeoutError."""
        assert self._listener is not None
        while True:
            local_socket.set_deadline(self._listener, deadline)
            sock, _ = self._listener.accept()
            if local_socket.is_same_user(sock):
                # A rank that died is reported at the deadline.
                with contextlib.suppress(ConnectionError):
                    message = receive(sock, deadline)
                    self._come.append(sock)
                    return sock, message
            sock.close()

    def tell(self, message: bytes, deadline: float) -> None:
        """Send a message to all ranks that came; a lost one is noticed when it is needed."""
        for sock in self._come:
            with contextlib.suppress(OSError):
                send(sock, message, deadline)

    def close(self) -> None:
        """End the meeting; detached sockets stay open."""
        if self._listener is not None:
            self._listener.close()
        for sock in self._come:
            sock.close()
