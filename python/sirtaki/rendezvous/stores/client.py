"""A client of a store that a server keeps, for any kind of socket."""

from __future__ import annotations

import socket
import time

from sirtaki.rendezvous.network import local_socket
from sirtaki.rendezvous.stores import wire
from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.trust.auth import AlteredError, Seal


class StoreClient:
    """A store reached by one connection per request, see `Store`.

    address: of the store. timeout: seconds for a `set`.
    """

    def __init__(self, address: str, timeout: float) -> None:
        self.address = address
        self._timeout = timeout

    def _connect(self, deadline: float) -> tuple[socket.socket, Seal]:
        """Connect until `deadline` (time.monotonic()). Raises OSError naming the server."""
        raise NotImplementedError

    def set(self, key: str, value: bytes, timeout: float | None = None) -> None:
        """See `Store.set`."""
        encoded = wire.checked(key, value)
        timeout = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        sock, seal = self._connect(deadline)
        with sock:
            try:
                self._exchange(sock, seal, wire.SET, encoded, value, deadline)
            except TimeoutError:
                raise TimeoutError(
                    f"the rendezvous store did not take {key!r} within {timeout:.3g} s"
                ) from None

    def get(self, key: str, timeout: float) -> bytes:
        """See `Store.get`."""
        encoded = wire.checked(key)
        deadline = time.monotonic() + timeout
        sock, seal = self._connect(max(deadline, time.monotonic() + auth.SECONDS))
        with sock:
            try:
                return self._exchange(sock, seal, wire.GET, encoded, b"", deadline)
            except TimeoutError:
                raise TimeoutError(f"nobody set {key!r} within {timeout:g} s") from None

    def peek(self, key: str) -> bytes | None:
        """See `Store.peek`; an empty value counts as not set."""
        encoded = wire.checked(key)
        deadline = time.monotonic() + self._timeout
        sock, seal = self._connect(deadline)
        with sock:
            return self._exchange(sock, seal, wire.PEEK, encoded, b"", deadline) or None

    def close(self) -> None:
        """See `Store.close`."""

    def _exchange(
        self, sock: socket.socket, seal: Seal, kind: int, key: bytes, value: bytes, deadline: float
    ) -> bytes:
        """Make one request on a connection and return the answer's value."""
        try:
            local_socket.set_deadline(sock, deadline)
            sock.sendall(wire.pack_request(kind, key, value, seal))
            header = local_socket.receive_exactly(sock, wire.answer_header_bytes(seal), deadline)
            size = wire.answer_content_bytes(header, seal)
            return wire.answer_value(local_socket.receive_exactly(sock, size, deadline), seal)
        except AlteredError as error:
            raise AlteredError(
                f"the answer of the rendezvous store at {self.address} to the question for "
                f"{key.decode()!r} was altered on its way: somebody on the network between changes "
                "what is sent"
            ) from error
        except ConnectionError as error:
            raise ConnectionError(
                f"the rendezvous store at {self.address} went away while asked for "
                f"{key.decode()!r}: the launcher has ended ({error})"
            ) from error
