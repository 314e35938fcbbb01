"""Accepts the connections of agents that a scheduler's program starts, one on each host."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from sirtaki.launch.processes.channels import Channel
from sirtaki.launch.starters.starter import Starter
from sirtaki.rendezvous.network import tcp_socket
from sirtaki.rendezvous.network.serving import Peer, RejectionLog, Server
from sirtaki.rendezvous.network.tls_relay import Relay
from sirtaki.rendezvous.stores.tcp_store import TLS_SCHEME, listener_claim
from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.trust.tls import TlsSocket

_FLUSH_LOOK_SECONDS = 0.002


def secure(sock: socket.socket, pair: tuple[socket.socket, socket.socket] | None = None) -> Relay:
    """Return a relay with a plain socket for an authenticated connection; see `Relay`."""
    assert isinstance(sock, TlsSocket)
    # Both ends send pings, so their silence is a better sign than the network's.
    tcp_socket.tune(sock, unsent_seconds=0, silent_seconds=0)
    return Relay(sock, silent_seconds=0, pair=pair)


class AgentServer(Server):
    """Accepts agents, by TLS only, after they have proved that they know the job's secret.

    addresses: numeric ones, to listen on. hosts: the names of those with agents; an agent claims
    the number of its host. complete: called, in the server's thread, when all have connected. log:
    see `RejectionLog`. port: to listen at, any if 0. `address` is where agents connect, valid from
    construction on. `relays`: of the hosts whose agents have connected. Raises OSError when it
    cannot listen.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        secret: bytes,
        hosts: Sequence[str],
        complete: Callable[[], object],
        log: Callable[[str], None] | None = None,
        port: int = 0,
    ) -> None:
        guard = functools.partial(
            auth.Listener, secret, auth.AGENT, auth.own_identity(), listener_claim(tls=True)
        )
        listeners, port = tcp_socket.listen_together(addresses, port)
        super().__init__(listeners, "the launcher", guard, RejectionLog(log), tls=True)
        self.address = TLS_SCHEME + tcp_socket.format_endpoints(addresses, port)
        self._hosts = hosts
        self._complete = complete
        self._lock = threading.Lock()
        self.relays: dict[int, Relay] = {}
        self._ours: list[socket.socket] = []
        self._awaited: dict[int, tuple[socket.socket, socket.socket]] = {}
        for number in range(len(hosts)):
            ours, theirs = socket.socketpair()
            self._ours.append(ours)
            self._awaited[number] = (theirs, ours)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.give_up(range(len(self._hosts)))
        for ours in self._ours:
            ours.close()

    def socket_of(self, number: int) -> socket.socket:
        """Return the plain end of the connection to a host's agent, possibly before it is made."""
        return self._ours[number]

    def give_up(self, numbers: Iterable[int]) -> None:
        """Stop waiting for the agents of these hosts: their sockets are closed."""
        with self._lock:
            for number in numbers:
                if number in self._awaited:
                    self._awaited.pop(number)[0].close()

    def hang_up(self, numbers: Iterable[int]) -> None:
        """Close the direction to the agents of these hosts, which ends them."""
        for number in numbers:
            with contextlib.suppress(OSError):
                self._ours[number].shutdown(socket.SHUT_WR)

    def flush(self, number: int, sent: int, seconds: float) -> None:
        """Wait at most `seconds` until all bytes sent so far to a host have left this process."""
        relay = self.relays.get(number)
        give_up_at = time.monotonic() + seconds
        while relay is not None and relay.passed < sent and time.monotonic() < give_up_at:
            time.sleep(_FLUSH_LOOK_SECONDS)

    def cut(self, number: int) -> None:
        """Break the connection to a host at once, or stop waiting for it."""
        self.give_up([number])
        with contextlib.suppress(OSError):
            self._ours[number].shutdown(socket.SHUT_RDWR)

    def handle(self, peer: Peer) -> bool:
        """See `Server.handle`; the peer is an authenticated agent."""
        number = int.from_bytes(peer.claim, "big")
        if number >= len(self._hosts):
            raise ValueError(f"host {number} of {len(self._hosts)} is none of this job's")
        with self._lock:
            pair = self._awaited.pop(number, None)
        if pair is None:
            raise ValueError(f"host {self._hosts[number]} has joined already")
        if not self._awaited:
            self._complete()
        self.relays[number] = secure(self.release(peer), pair)
        return True


class NodeChannel(Channel):
    """The connection that the launcher of another node makes.

    server: accepts it. number: of the host.
    """

    def __init__(self, server: AgentServer, number: int) -> None:
        self._server = server
        self._number = number

    def open(self, host: str) -> socket.socket:
        """See `Channel`."""
        return self._server.socket_of(self._number)

    def flush(self, sent: int, seconds: float) -> None:
        """See `Channel`."""
        self._server.flush(self._number, sent, seconds)

    def explain(self, code: int | None, lines: Sequence[str]) -> str:
        """See `Channel`."""
        return f"its launcher has not called node 0 at {self._server.address}"

    def cut(self) -> None:
        """See `Channel`."""
        self._server.cut(self._number)


class CallChannel(NodeChannel):
    """The connection that an agent makes.

    server: accepts it. number: of the host. starter: starts the agent.
    """

    def __init__(self, server: AgentServer, number: int, starter: Starter) -> None:
        super().__init__(server, number)
        self._starter = starter

    def open(self, host: str) -> socket.socket:
        """See `Channel`."""
        self._starter.begin(self._server.give_up, self._server.hang_up)
        return super().open(host)

    def wait(self) -> int | None:
        """See `Channel`: the starter may still run for other hosts."""
        return self._starter.code

    def explain(self, code: int | None, lines: Sequence[str]) -> str:
        """See `Channel`."""
        program = self._starter.argv[0]
        if code is None:
            return (
                f"the agent that {program} has started there has ended; what it said stands above"
            )
        return (
            f"{program} ended (code {code}) before its agent there had called the launcher at "
            f"{self._server.address}; what it said stands above"
        )

    def close(self, patiently: bool) -> None:
        """See `Channel`."""
        self._starter.release(patiently)
