"""A store over TCP, for ranks on several hosts, which parses data of authenticated peers only."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Sequence

from sirtaki.rendezvous.network import tcp_socket
from sirtaki.rendezvous.network.dial import dial
from sirtaki.rendezvous.network.serving import RejectionLog
from sirtaki.rendezvous.stores.client import StoreClient
from sirtaki.rendezvous.stores.store_server import StoreServer
from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.trust.auth import Seal

SCHEME = "tcp:"
TLS_SCHEME = "tls:"
_UNSENT_SECONDS = 10.0


class TcpStore(StoreClient):
    """A client of `TcpStoreServer`; it connects for each request.

    address: "tcp:HOST[,HOST...]:PORT", or "tls:…" for a server that encrypts; several ports are
    several such parts joined by ";". timeout: seconds to reach the server in every `set`. secret:
    the job's. patient: whether the server may not be running yet. Raises ValueError for an address
    of another form or a secret of another length.
    """

    def __init__(self, address: str, timeout: float, secret: bytes, patient: bool = False) -> None:
        super().__init__(address, timeout)
        self._endpoints = endpoints_of(address)
        self._tls = address.startswith(TLS_SCHEME)
        self._patient = patient
        self._authenticate = functools.partial(
            auth.Dialer, checked_secret(secret), auth.STORE, auth.own_identity()
        )

    def reach(self, deadline: float) -> None:
        """Test the connection to the server until `deadline` (time.monotonic()). Raises OSError."""
        self._connect(deadline)[0].close()

    def _connect(self, deadline: float) -> tuple[socket.socket, Seal]:
        who = f"the rendezvous store at {self.address}"
        sock, keys = dial(
            self._endpoints, self._authenticate, who, deadline, self._patient, self._tls
        )
        # After the first answer its address is fixed, and without an answer it has ended.
        self._patient = False
        self._endpoints = [sock.getpeername()[:2]]
        tcp_socket.tune(sock, _UNSENT_SECONDS)
        return sock, Seal(keys)


class TcpStoreServer(StoreServer):
    """A store served on some of this machine's addresses.

    hosts: numeric addresses to listen on. secret: the job's 32 bytes. port: 0 for any free port.
    log: takes a line for each rejected connection, default to standard error. tls: whether to
    encrypt. `address` ("tcp:HOST[,HOST...]:PORT", "tls:…" if it encrypts) is valid from
    construction on. Raises OSError when it cannot listen.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        secret: bytes,
        port: int = 0,
        log: Callable[[str], None] | None = None,
        tls: bool = False,
    ) -> None:
        guard = functools.partial(
            auth.Listener,
            checked_secret(secret),
            auth.STORE,
            auth.own_identity(),
            listener_claim(tls),
        )
        listeners, self.port = tcp_socket.listen_together(hosts, port)
        scheme = TLS_SCHEME if tls else SCHEME
        address = scheme + tcp_socket.format_endpoints(hosts, self.port)
        super().__init__(listeners, address, guard, RejectionLog(log), tls)


def endpoints_of(address: str) -> list[tcp_socket.Endpoint]:
    """Return the endpoints in a TCP store's address. Raises ValueError for another form."""
    if not address.startswith((SCHEME, TLS_SCHEME)):
        raise ValueError(f"not the address of a TCP store: {address!r}")
    return [
        endpoint
        for part in address[len(SCHEME) :].split(";")
        for endpoint in tcp_socket.parse_endpoints(part)
    ]


def listener_claim(tls: bool) -> bytes:
    """Return a listener's claim: the fingerprint of its certificate, if it has one."""
    if not tls:
        return auth.NO_CLAIM
    from sirtaki.rendezvous.trust.tls import listener_tls

    return listener_tls().claim


def checked_secret(secret: bytes) -> bytes:
    """Return the secret. Raises ValueError unless it has 32 bytes."""
    if len(secret) != auth.SECRET_BYTES:
        raise ValueError(f"a job's secret has {auth.SECRET_BYTES} bytes, not {len(secret)}")
    return secret
