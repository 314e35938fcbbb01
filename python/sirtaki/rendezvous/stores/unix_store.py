"""A store on an abstract Unix socket: the kernel says that both ends belong to the same user."""

from __future__ import annotations

import socket
import time

from sirtaki.rendezvous.network import local_socket
from sirtaki.rendezvous.stores import wire
from sirtaki.rendezvous.stores.store_server import StoreServer
from sirtaki.rendezvous.trust.sealing import AlteredError, Seal

SCHEME = "unix:"
_RETRY_SECONDS = 0.02


class UnixStore:
    """A client of `UnixStoreServer`.

    address: "unix:@name". timeout: seconds for reaching the server, here and at every `set`.
    patient: whether the server may still be about to come. Raises ValueError, ConnectionError when
    nobody serves there, TimeoutError, PermissionError when the server is another user's.
    """

    def __init__(self, address: str, timeout: float, patient: bool = False) -> None:
        if not address.startswith(SCHEME):
            raise ValueError(f"not the address of a Unix socket store: {address!r}")
        self.address = address
        self._timeout = timeout
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._connect(deadline).close()
                return
            except ConnectionError:
                if not patient or time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_SECONDS)

    def set(self, key: str, value: bytes, timeout: float | None = None) -> None:
        """See `Store.set`."""
        encoded = wire.checked(key, value)
        timeout = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        try:
            self._request(wire.SET, encoded, value, deadline)
        except TimeoutError:
            raise TimeoutError(
                f"the rendezvous store did not take {key!r} within {timeout:.3g} s"
            ) from None

    def get(self, key: str, timeout: float) -> bytes:
        """See `Store.get`."""
        encoded = wire.checked(key)
        try:
            return self._request(wire.GET, encoded, b"", time.monotonic() + timeout)
        except TimeoutError:
            raise TimeoutError(f"nobody set {key!r} within {timeout:g} s") from None

    def close(self) -> None:
        """See `Store.close`."""

    def _connect(self, deadline: float) -> socket.socket:
        try:
            return local_socket.connect(self.address.removeprefix(SCHEME), deadline)
        except ConnectionError as error:
            raise ConnectionError(
                f"no rendezvous store at {self.address}: the launcher has ended ({error})"
            ) from error

    def _request(self, kind: int, key: bytes, value: bytes, deadline: float) -> bytes:
        with self._connect(deadline) as sock:
            return exchange(sock, Seal(), self.address, kind, key, value, deadline)


def exchange(
    sock: socket.socket,
    seal: Seal,
    address: str,
    kind: int,
    key: bytes,
    value: bytes,
    deadline: float,
) -> bytes:
    """Make one request on a connection and return the answer's value.

    seal: of the connection. address: of the store, for messages. deadline: a time of
    time.monotonic(). Raises TimeoutError, ConnectionError, AlteredError.
    """
    try:
        local_socket.set_deadline(sock, deadline)
        sock.sendall(wire.pack_request(kind, key, value, seal))
        header = local_socket.receive_exactly(sock, wire.answer_header_bytes(seal), deadline)
        size = wire.answer_content_bytes(header, seal)
        return wire.answer_value(local_socket.receive_exactly(sock, size, deadline), seal)
    except AlteredError as error:
        raise AlteredError(
            f"the answer of the rendezvous store at {address} to the question for {key.decode()!r} "
            "was altered on its way: somebody on the network between changes what is sent"
        ) from error
    except ConnectionError as error:
        raise ConnectionError(
            f"the rendezvous store at {address} went away while asked for "
            f"{key.decode()!r}: the launcher has ended ({error})"
        ) from error


class UnixStoreServer(StoreServer):
    """A store served on an abstract Unix socket.

    name: of the socket, default a fresh random one; somebody else using it is an OSError.
    `address` ("unix:@name") is valid from construction on.
    """

    def __init__(self, name: str = "") -> None:
        listener, name = local_socket.listen(name)
        super().__init__([listener], SCHEME + name)

    def admit(self, sock: socket.socket) -> bool:
        """See `Server.admit`: only processes of this user."""
        return local_socket.is_same_user(sock)

    def __enter__(self) -> UnixStoreServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
