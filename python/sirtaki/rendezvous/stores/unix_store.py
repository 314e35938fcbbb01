"""A store on an abstract Unix socket; the kernel vouches that both ends are the same user's."""

from __future__ import annotations

import socket
import time

from sirtaki.rendezvous.network import local_socket
from sirtaki.rendezvous.stores.client import StoreClient
from sirtaki.rendezvous.stores.store_server import StoreServer
from sirtaki.rendezvous.trust.auth import Seal

SCHEME = "unix:"
_RETRY_SECONDS = 0.02


class UnixStore(StoreClient):
    """A client of `UnixStoreServer`.

    address: "unix:@name". timeout: seconds to reach the server, here and in every `set`. patient:
    whether the server may not be running yet. Raises ValueError, ConnectionError when there is no
    server, TimeoutError, PermissionError when the server is another user's.
    """

    def __init__(self, address: str, timeout: float, patient: bool = False) -> None:
        if not address.startswith(SCHEME):
            raise ValueError(f"not the address of a Unix socket store: {address!r}")
        super().__init__(address, timeout)
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._connect(deadline)[0].close()
                return
            except ConnectionError:
                if not patient or time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_SECONDS)

    def _connect(self, deadline: float) -> tuple[socket.socket, Seal]:
        try:
            return local_socket.connect(self.address.removeprefix(SCHEME), deadline), Seal()
        except TimeoutError as error:
            raise TimeoutError(f"the rendezvous store at {self.address}: {error}") from None
        except ConnectionError as error:
            raise ConnectionError(
                f"no rendezvous store at {self.address}: the launcher has ended ({error})"
            ) from error


class UnixStoreServer(StoreServer):
    """A store served on an abstract Unix socket.

    name: of the socket, default a fresh random one; OSError if it is in use.
    `address` ("unix:@name") is valid from construction on.
    """

    def __init__(self, name: str = "") -> None:
        listener, name = local_socket.listen(name)
        super().__init__([listener], SCHEME + name)

    def admit(self, sock: socket.socket) -> bool:
        """See `Server.admit`: only processes of this user."""
        return local_socket.is_same_user(sock)
